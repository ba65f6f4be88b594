package participanttest

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/unisink/unisink/participant"
)

// unfenced is the gap of those who claim so little that they can have no fence in the resource.
const unfenced = "it has no fence in the resource: an older generation can still prepare, and the ledger alone keeps that from being committed"

func checkFence(t testing.TB, target Target) {
	b := newBench(t, target)
	old := b.opened(1)
	decided, open := b.epoch(old, 1, "decided"), b.begin(old, branchName(home, 1, 2), "zombie")
	fresh := b.opened(2)
	vote, err := open.Prepare(b.ctx)
	reason := errors.Join(err, vote.Reason)
	switch yes := err == nil && vote.Kind == participant.Yes; {
	case yes && b.bare():
		b.gap("%s", unfenced)
		b.rollback(fresh, vote.Handle)
	case yes:
		b.Errorf("a branch of generation 1 was prepared after generation 2 had been opened")
	case !errors.Is(reason, participant.ErrFenced) && !errors.Is(reason, participant.ErrLost):
		b.Errorf("the older generation's prepare says %v, want fenced or lost", reason)
	}
	if err := old.Open(b.ctx, opening(home, 1)); !errors.Is(err, participant.ErrFenced) && !(b.bare() && err == nil) {
		b.Errorf("opening generation 1 again: %v, want fenced", err)
	}
	// What was prepared before stays to be decided, by whoever holds the handle.
	b.commit(fresh, decided)
	b.commit(fresh, b.prepared(b.begin(fresh, branchName(home, 2, 1), "new")))
	b.sees("decided", "new")
}

// A paused process wakes up when its successor has opened, written and prepared, and goes on as if
// nothing had happened.
func checkTwoHolders(t testing.TB, target Target) {
	b := newBench(t, target)
	old := b.opened(1)
	first := b.begin(old, branchName(home, 1, 1), "old")
	fresh := b.opened(2)
	voted := b.prepared(b.begin(fresh, branchName(home, 2, 1), "voted"))
	writing := b.begin(fresh, branchName(home, 2, 2), "writing")

	second, err := old.Begin(b.ctx, branchName(home, 1, 2))
	if err == nil {
		err = b.tries(func(t testing.TB) { b.Write(t, second, "late") })
	}
	if err == nil {
		vote, perr := second.Prepare(b.ctx)
		switch yes := perr == nil && vote.Kind == participant.Yes; {
		case yes && b.bare():
			b.gap("%s", unfenced)
			b.rollback(fresh, vote.Handle)
		case yes:
			b.Errorf("generation 1 began and prepared a branch after generation 2 had been opened")
		}
	}
	_ = first.Discard(b.ctx) // whatever it answers
	_ = old.Close()          // it, too, must leave alone what is not its own

	b.commit(fresh, voted)
	b.commit(fresh, b.prepared(writing))
	b.lists(fresh, home)
	b.sees("voted", "writing")
}

func checkReopened(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	voted := b.epoch(r, 1, "voted")
	open := b.begin(r, branchName(home, 1, 2), "dropped")
	b.open(r, 2)
	if vote, err := open.Prepare(b.ctx); err == nil && vote.Kind == participant.Yes {
		b.Errorf("a branch of generation 1 was prepared after its own process had opened generation 2")
	}
	b.settles(r, home, 1)
	b.lists(r, home, branchName(home, 1, 1))
	b.commit(r, voted)
	b.commit(r, b.prepared(b.begin(r, branchName(home, 2, 1), "new")))
	b.lists(r, home)
	b.sees("voted", "new")
}

// Whichever is first, the fence or the prepare, what is prepared is found and ended by the next holder.
func checkRacingPrepare(t testing.TB, target Target) {
	b := newBench(t, target)
	for g := uint64(1); g <= 16; g += 2 {
		old, fresh := b.opened(g), b.process()
		branch := b.begin(old, branchName(home, g, 1), "late")
		var vote participant.Vote
		var perr error
		var group sync.WaitGroup
		both := []func(){
			func() { vote, perr = branch.Prepare(b.ctx) },
			func() {
				if err := fresh.Open(b.ctx, opening(home, g+1)); err != nil {
					b.Errorf("open generation %d beside a prepare: %v", g+1, err)
				}
			},
		}
		if g%4 == 1 {
			slices.Reverse(both) // the one that starts last tends to be first
		}
		for _, f := range both {
			group.Go(f)
		}
		group.Wait()
		if b.Failed() {
			return
		}
		yes := perr == nil && vote.Kind == participant.Yes
		if b.claims.CanList {
			found, err := fresh.List(b.ctx, home)
			if err != nil {
				b.Fatalf("list: %v", err)
			}
			if yes && len(found) == 0 {
				b.Fatalf("a branch that was prepared beside the fence is not listed")
			}
		}
		b.sweep(fresh)
		if yes {
			b.rollback(fresh, vote.Handle)
		}
		b.sees()
	}
	if !b.claims.CanList {
		b.gap("it cannot list, so what is prepared late is found by its announcement alone")
	}
}

// Numbers begin anew in each generation, and a rewind writes again what was written before: neither is
// a repeat of anything.
func checkGenerations(t testing.TB, target Target) {
	b := newBench(t, target)
	var want []string
	for _, g := range []uint64{1, 2, 7} {
		r := b.opened(g)
		for n := uint64(1); n <= 3; n++ {
			b.commit(r, b.prepared(b.begin(r, branchName(home, g, n), record(int(n)))))
			want = append(want, record(int(n)))
		}
		b.sees(want...)
	}
}

// The highest generation is opened first: were they taken for one holder, the others would be fenced.
func checkNeighbours(t testing.TB, target Target) {
	b := newBench(t, target)
	type holder struct{ pipeline, member string }
	var want []string
	type held struct {
		r participant.Resource
		h participant.Handle
	}
	var all []held
	for i, who := range []holder{{"orders", "sink"}, {"orders", "sink-2"}, {"orders", "sin"}, {"orders-2", "sink"}, {"order", "sink"}} {
		g := uint64(10 - i)
		name := branchName(home, g, 1)
		name.Pipeline, name.Member = who.pipeline, who.member
		o := opening(home, g)
		o.Scope, o.Member = name.Scope(), name.Member
		r := b.process()
		if err := r.Open(b.ctx, o); err != nil {
			b.Fatalf("open generation %d of member %q of %s beside others: %v", g, o.Member, o.Scope, err)
		}
		all = append(all, held{r, b.prepared(b.begin(r, name, record(i)))})
		want = append(want, record(i))
	}
	b.sees()
	for _, x := range all {
		b.commit(x.r, x.h)
	}
	b.sees(want...)
}

// Three epochs, finished in their order by whoever is there: each commit shows its own and no other's.
func checkOrder(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	var handles []participant.Handle
	for n := range 4 {
		handles = append(handles, b.epoch(r, uint64(n+1), record(n)))
	}
	finishers := []participant.Resource{r, b.process()}
	var want []string
	for n, h := range handles {
		who := finishers[n%2]
		if n == 2 { // undecided work in the middle, dead, is passed over
			b.rollback(who, h)
		} else {
			b.commit(who, h)
			want = append(want, record(n))
		}
		b.sees(want...)
	}
	b.lists(r, home)
}
