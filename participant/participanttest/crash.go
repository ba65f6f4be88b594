package participanttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/participant"
)

// life is what a process of a member does before it dies. Its first epoch is decided commit, its second
// falls to its generation's end, its third is discarded, its fourth is prepared as the process comes to its end.
type life struct {
	r          participant.Resource
	write      func(b participant.Branch, record string) error
	generation uint64
	// before and after are called around each call to the resource; an error of theirs is the process's end.
	before, after func(call string) error
	// voted tells the ledger of a vote: from its return on the handle is known.
	voted func(n uint64, h participant.Handle) error
}

// text is what each epoch writes.
func text(generation, n uint64) string { return fmt.Sprintf("g%d-epoch-%d", generation, n) }

func (l life) call(name string, f func() error) error {
	if err := l.before(name); err != nil {
		return err
	}
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return l.after(name)
}

func (l life) run(ctx context.Context) error {
	if err := l.call("open", func() error { return l.r.Open(ctx, opening(home, l.generation)) }); err != nil {
		return err
	}
	for n := uint64(1); n <= 4; n++ {
		if err := l.epoch(ctx, n); err != nil {
			return err
		}
	}
	return l.call("close", l.r.Close)
}

func (l life) epoch(ctx context.Context, n uint64) error {
	var branch participant.Branch
	err := l.call("begin", func() (err error) {
		branch, err = l.r.Begin(ctx, branchName(home, l.generation, n))
		return err
	})
	if err != nil {
		return err
	}
	if err := l.call("write", func() error { return l.write(branch, text(l.generation, n)) }); err != nil {
		return err
	}
	if n == 3 {
		return l.call("discard", func() error { return branch.Discard(ctx) })
	}
	var vote participant.Vote
	err = l.call("prepare", func() (err error) {
		if vote, err = branch.Prepare(ctx); err == nil && vote.Kind != participant.Yes {
			err = fmt.Errorf("vote %d, %w", vote.Kind, vote.Reason)
		}
		return err
	})
	if err != nil {
		return err
	}
	if n == 4 {
		return nil // dies before it says so
	}
	if err := l.voted(n, vote.Handle); err != nil {
		return err
	}
	if n == 2 {
		return l.call("rollback", func() error { return proves(l.r.Rollback(ctx, vote.Handle))(participant.RolledBack) })
	}
	return l.call("commit", func() error { return proves(l.r.Commit(ctx, vote.Handle))(participant.Committed) })
}

// proves makes an error of a proof of anything else.
func proves(p participant.Proof, err error) func(want participant.Verdict) error {
	return func(want participant.Verdict) error {
		if err == nil && p.Verdict != want {
			err = fmt.Errorf("proven otherwise: verdict %d, %s", p.Verdict, p.Evidence)
		}
		return err
	}
}

// ledger is what the kit knows of a process that is gone.
type ledger struct {
	generation uint64
	votes      map[uint64]participant.Handle
}

// recover is what comes after a process that is gone: the next generation finishes what is decided,
// rolls back everything else, and readers see what was decided and nothing more. Want grows by that.
func (b bench) recover(l ledger, want *[]string) {
	b.Helper()
	r := b.Process(b.TB)
	defer func() { _ = r.Close() }()
	b.open(r, l.generation+1)
	if h, ok := l.votes[1]; ok {
		b.commit(r, h)
		*want = append(*want, text(l.generation, 1))
	}
	if h, ok := l.votes[2]; ok {
		b.rollback(r, h)
	}
	b.sweep(r)
	b.sees(*want...)
	// Once more, as finishers do that heard no answer.
	if h, ok := l.votes[1]; ok {
		b.commit(r, h)
		b.sees(*want...)
	}
}

// errGone ends a life.
var errGone = errors.New("the process is gone")

// lives runs a life in this process and leaves it as it lies where it ends: nothing of it is closed
// before the check is over. It tells what a ledger would know, and whether the life came to its end.
func (b bench) lives(g uint64, r participant.Resource, ctx context.Context, between func(call string) error) (ledger, bool) { //nolint:revive // the context is the process's
	b.Helper()
	l := ledger{generation: g, votes: map[uint64]participant.Handle{}}
	err := life{
		r: r, generation: g, before: between, after: between,
		write: func(branch participant.Branch, record string) error {
			return b.tries(func(t testing.TB) { b.Write(t, branch, record) })
		},
		voted: func(n uint64, h participant.Handle) error {
			l.votes[n] = h
			return between("voted")
		},
	}.run(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errGone) {
		b.Fatalf("a member's life in generation %d: %v", g, err)
	}
	return l, err == nil
}

func checkGone(t testing.TB, target Target) {
	b := patientBench(t, target, 5)
	var want []string
	k := 0
	for g := uint64(1); ; g += 2 {
		at, where := 0, ""
		l, whole := b.lives(g, b.process(), b.ctx, func(call string) error {
			if at++; at > k {
				where = call
				return errGone
			}
			return nil
		})
		b.recover(l, &want)
		if b.Failed() {
			b.Fatalf("that was gone at %s, %d", where, k)
		}
		if whole {
			b.figure("%s", plural.Of(k, "place"))
			return
		}
		k++
	}
}

// To the world a process is gone when it takes no further step: from step k on all of them fail.
func checkCutOff(t testing.TB, target Target) {
	b := patientBench(t, target, 5)
	if b.Stepped == nil {
		b.skip("no steps at which it could be cut off (Target.Stepped)")
	}
	var want, steps []string
	g := uint64(1)
	once := func(k int) int {
		p := &trap{}
		r := b.Stepped(b.TB, p.at)
		b.Cleanup(func() { _ = r.Close() })
		ctx, cancel := context.WithCancel(b.ctx)
		defer cancel()
		p.set(k, false, func() error { cancel(); return errGone })
		l, _ := b.lives(g, r, ctx, func(string) error { return ctx.Err() })
		g += 2
		hit := p.where() // and it stays cut off
		b.recover(l, &want)
		if b.Failed() {
			b.Fatalf("that was cut off at step %d, %s", k, hit)
		}
		if hit != "" {
			steps = append(steps, hit)
		}
		return p.longest()
	}
	for _, k := range b.picks(once(never)) {
		once(k)
	}
	b.steps(slices.Clone(steps))
}
