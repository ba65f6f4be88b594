package participanttest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/unisink/unisink/participant"
)

func checkDescribe(t testing.TB, target Target) {
	b := newBench(t, target)
	one, err := b.process().Describe(b.ctx)
	two, err2 := b.process().Describe(b.ctx)
	if err != nil || err2 != nil {
		b.Fatalf("describe: %v, %v", err, err2)
	}
	if one != two {
		b.Errorf("two processes describe one resource differently: %+v, %+v", one, two)
	}
	if one.Kind == "" || one.Identity == "" || one.Text == "" {
		b.Errorf("kind, identity or text is missing: %+v", one)
	}
	if h := b.epoch(b.opened(1), 1, "a"); h.Kind != one.Kind || h.Identity != one.Identity || h.Alias != "out" {
		b.Errorf("a handle says kind %q, identity %q, alias %q; the resource says %q, %q and is called out",
			h.Kind, h.Identity, h.Alias, one.Kind, one.Identity)
	}
}

func checkInvisible(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	branch := b.begin(r, branchName(home, 1, 1), "a", "b")
	b.sees()
	h := b.prepared(branch)
	b.sees()
	b.commit(r, h)
	b.sees("a", "b")
}

func checkBeginTwice(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	name := branchName(home, 1, 1)
	b.begin(r, name) // its answer is lost, so nobody writes to it
	h := b.prepared(b.begin(r, name, "a"))
	b.lists(r, home, name)
	b.commit(r, h)
	b.commit(r, b.epoch(r, 2, "b"))
	b.lists(r, home)
	b.sees("a", "b")
}

func checkPrepareTwice(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	branch := b.begin(r, branchName(home, 1, 1), "a")
	first := b.prepared(branch)
	if second := b.prepared(branch); !first.Same(second) || string(first.Body) != string(second.Body) {
		b.Errorf("prepared once as %s, then as %s", first.Name, second.Name)
	}
	b.lists(r, home, branchName(home, 1, 1))
}

func checkReadOnly(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	vote, err := b.begin(r, branchName(home, 1, 1)).Prepare(b.ctx)
	switch {
	case err == nil && vote.Kind == participant.Yes && b.bare():
		b.commit(r, vote.Handle) // as good, if it bears it
		b.gap("it votes yes for a branch without a record, and commits it")
	case err != nil || vote.Kind != participant.ReadOnly:
		b.Fatalf("prepare without a record: vote %v, error %v; want read-only", vote.Kind, err)
	}
	b.sees()
	b.lists(r, home)
	b.commit(r, b.epoch(r, 2, "a"))
	b.sees("a")
}

func checkRepeats(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	if err := r.Open(b.ctx, opening(home, 1)); err != nil {
		b.Fatalf("open again: %v", err)
	}
	kept, dropped := b.epoch(r, 1, "a"), b.epoch(r, 2, "b")
	for range 3 {
		b.commit(r, kept)
		b.rollback(r, dropped)
		b.sees("a")
	}
	if b.claims.Asserted {
		b.gap("its proofs are asserted, so nothing tells a call against the first from the first")
		return
	}
	// The first proof stands: the opposite call changes nothing and says so.
	if proof, err := r.Rollback(b.ctx, kept); err == nil && proof.Verdict != participant.Committed {
		b.Errorf("rollback of a committed branch proves verdict %d", proof.Verdict)
	}
	if proof, err := r.Commit(b.ctx, dropped); err == nil && proof.Verdict != participant.RolledBack {
		b.Errorf("commit of a rolled back branch proves verdict %d", proof.Verdict)
	}
	b.sees("a")
	b.lists(r, home)
}

func checkReopen(t testing.TB, target Target) {
	b := newBench(t, target)
	first := b.opened(1)
	h1, h2 := b.epoch(first, 1, "a"), b.epoch(first, 2, "b")
	if err := first.Close(); err != nil {
		b.Fatalf("close: %v", err)
	}
	finisher := b.process() // never opened: a resolver
	b.lists(finisher, home, branchName(home, 1, 1), branchName(home, 1, 2))
	b.commit(finisher, h1)
	next := b.opened(2)
	b.rollback(next, h2)
	b.commit(next, h1)
	b.sees("a")
	b.lists(next, home)
}

func checkTwoPrepared(t testing.TB, target Target) {
	b := newBench(t, target)
	h1 := b.epoch(b.opened(1), 1, "first")
	// The first vote was lost with its process and the epoch written again: both are prepared, and
	// only the handle in the decision tells which is meant.
	h2 := b.prepared(b.begin(b.opened(2), branchName(home, 2, 1), "second"))
	if h1.Same(h2) {
		b.Fatalf("two prepared branches have one handle, %s", h1.Name)
	}
	r := b.process()
	b.rollback(r, h1)
	b.commit(r, h2)
	b.sees("second")
}

func checkUnknownRollback(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	h := b.epoch(r, 1, "a")
	b.rollback(r, h)
	b.rollback(b.process(), h)
	if b.NeverPrepared == nil {
		b.gap("no handle of what was never prepared (Target.NeverPrepared); only one that was rolled back before")
	} else {
		b.rollback(r, b.NeverPrepared(branchName(home, 1, 7)))
	}
	b.sees()
}

func checkLatePrepare(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	name := branchName(home, 1, 1)
	branch := b.begin(r, name, "late")
	if b.NeverPrepared != nil {
		b.rollback(b.process(), b.NeverPrepared(name))
	}
	finisher := b.process()
	// A resource that cannot tell what is prepared from what is being written lists both.
	if found, err := finisher.List(b.ctx, home); err != nil || len(found) > 1 {
		b.Fatalf("list with one branch being written: %d found, error %v", len(found), err)
	}
	vote, err := branch.Prepare(b.ctx)
	if err != nil {
		b.Fatalf("prepare: %v", err)
	}
	if vote.Kind != participant.Yes {
		return // the rollback kept it out for good, which is better still
	}
	if !b.claims.CanList {
		b.rollback(finisher, vote.Handle)
		b.sees()
		b.gap("it cannot list, so what is prepared late is found by its announcement alone")
		return
	}
	for _, l := range b.lists(finisher, home, name) {
		b.rollback(finisher, l.Handle)
	}
	b.lists(finisher, home)
	b.sees()
}

func checkTwoFinishers(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	h := b.epoch(r, 1, "a")
	finishers := []participant.Resource{r, b.process(), b.process()}
	var group sync.WaitGroup
	for i := range 9 {
		group.Go(func() {
			proof, err := finishers[i%len(finishers)].Commit(b.ctx, h)
			if err == nil && proof.Verdict != participant.Committed {
				b.Errorf("a finisher found verdict %d: %s", proof.Verdict, proof.Evidence)
			}
			b.passing("a commit beside others", err)
		})
	}
	group.Wait()
	b.commit(r, h)
	b.sees("a")
}

func checkInspect(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	kept, dropped := b.epoch(r, 1, "a"), b.epoch(r, 2, "b")
	is := func(h participant.Handle, want ...participant.State) {
		b.Helper()
		got, err := b.process().Inspect(b.ctx, h)
		for _, w := range want {
			if err == nil && got == w {
				return
			}
		}
		b.Fatalf("inspect %s: state %d, error %v; want one of %d", h.Name, got, err, want)
	}
	undecided, committed := []participant.State{participant.Undecided}, []participant.State{participant.StateCommitted}
	if b.claims.Asserted {
		undecided, committed = append(undecided, participant.Unknown), append(committed, participant.Unknown)
		b.gap("its proofs are asserted, so it may answer unknown where others must know")
	}
	is(kept, undecided...)
	is(kept, undecided...)
	b.sees()
	b.commit(r, kept)
	b.rollback(r, dropped)
	is(kept, committed...)
	is(dropped, participant.StateRolledBack, participant.Unknown)
	if b.NeverPrepared != nil {
		is(b.NeverPrepared(branchName(home, 1, 9)), participant.StateRolledBack, participant.Unknown)
	}
}

func checkCancelled(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	kept, dropped := b.epoch(r, 1, "a"), b.epoch(r, 2, "b")
	gone, cancel := context.WithCancel(b.ctx)
	cancel()
	// A cancelled call may answer or not; whatever it says, it decides nothing else than was asked.
	if proof, err := r.Commit(gone, kept); err == nil && proof.Verdict != participant.Committed {
		b.Errorf("a cancelled commit proves verdict %d", proof.Verdict)
	}
	if proof, err := r.Rollback(gone, dropped); err == nil && proof.Verdict != participant.RolledBack {
		b.Errorf("a cancelled rollback proves verdict %d", proof.Verdict)
	}
	branch := b.begin(r, branchName(home, 1, 3), "c")
	if vote, err := branch.Prepare(gone); err == nil && vote.Kind == participant.No {
		b.Errorf("a cancelled prepare says no: %v", vote.Reason)
	}
	b.commit(r, kept)
	b.rollback(r, dropped)
	b.commit(r, b.prepared(branch))
	b.sees("a", "c")
}

func checkClose(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	h := b.epoch(r, 1, "a")
	b.begin(r, branchName(home, 1, 2), "unprepared")
	if err := r.Close(); err != nil {
		b.Fatalf("close: %v", err)
	}
	b.sees()
	next := b.opened(2)
	b.lists(next, home, branchName(home, 1, 1))
	b.commit(next, h)
	b.sees("a")
}

func checkDiscard(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	if err := b.begin(r, branchName(home, 1, 1), "dropped").Discard(b.ctx); err != nil {
		b.Fatalf("discard: %v", err)
	}
	branch := b.begin(r, branchName(home, 1, 2), "kept")
	h := b.prepared(branch)
	if err := branch.Discard(b.ctx); !errors.Is(err, participant.ErrPrepared) {
		b.Errorf("discard of a prepared branch: %v, want ErrPrepared", err)
	}
	b.lists(r, home, branchName(home, 1, 2))
	b.commit(r, h)
	b.sees("kept")
}

func checkRollback(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	h1, h2 := b.epoch(r, 1, "a"), b.epoch(r, 2, "b")
	b.rollback(r, h1)
	b.commit(r, h2)
	b.sees("b")
	b.lists(r, home)
}

func checkNamespaces(t testing.TB, target Target) {
	b := newBench(t, target)
	if !b.claims.CanList {
		b.skip("it claims no listing")
	}
	others := []participant.Namespace{
		{Name: "kit-eu", Incarnation: 1}, {Name: "ki", Incarnation: 1}, {Name: "kit", Incarnation: 2},
	}
	r := b.opened(1)
	mine := b.epoch(r, 1, "mine")
	for i, ns := range others {
		other := b.process()
		if err := other.Open(b.ctx, opening(ns, 1)); err != nil {
			b.Fatalf("open in namespace %s: %v", ns, err)
		}
		h := b.prepared(b.begin(other, branchName(ns, 1, 1), record(i)))
		b.lists(r, ns, branchName(ns, 1, 1))
		b.Cleanup(func() { _, _ = other.Rollback(context.Background(), h) })
	}
	b.lists(r, home, branchName(home, 1, 1))
	b.commit(r, mine)
	b.sees("mine")
}

func checkNames(t testing.TB, target Target) {
	b := newBench(t, target)
	// The longest that the coordinator lets through.
	name := participant.BranchName{
		Namespace: participant.Namespace{Name: strings.Repeat("n", 24), Incarnation: 12}, Pipeline: strings.Repeat("p", 40), Shard: 1 << 20,
		Member: strings.Repeat("m", 32), Resource: strings.Repeat("r", 32), Generation: 1 << 40, N: 1 << 40,
	}
	r := b.process()
	o := opening(name.Namespace, name.Generation)
	o.Scope, o.Member, o.Resource = name.Scope(), name.Member, name.Resource
	if err := r.Open(b.ctx, o); err != nil {
		b.Fatalf("open with the longest names: %v", err)
	}
	h := b.prepared(b.begin(r, name, "a"))
	if err := h.Check(); err != nil {
		b.Errorf("handle: %v", err)
	}
	for _, l := range b.lists(r, name.Namespace, name) {
		if _, err := participant.ParseBranchName(l.Name.String()); err != nil {
			b.Errorf("listed name: %v", err)
		}
		if !l.Handle.Same(h) {
			b.Errorf("listed as %s, prepared as %s", l.Handle.Name, h.Name)
		}
	}
	b.commit(r, h)
	b.sees("a")
}

func checkForeign(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	h := b.epoch(r, 1, "a")
	kind, version, identity := h, h, h
	kind.Kind += "x"
	version.Version += 1000
	identity.Identity += "x"
	for _, other := range []participant.Handle{kind, version, identity} {
		if _, err := r.Commit(b.ctx, other); !errors.Is(err, participant.ErrUnknownHandle) {
			b.Errorf("commit of %s version %d of %q: %v, want ErrUnknownHandle", other.Kind, other.Version, other.Identity, err)
		}
	}
	b.sees()
	b.commit(r, h)
}
