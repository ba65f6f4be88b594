//go:build faults

package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/participant"
)

// ledger is what the walk's coordinator knows: handles decided commit, in order, until it closes.
type ledger struct {
	mu      sync.Mutex
	closed  bool
	decided []participant.Handle
}

// decide counts a vote, unless its generation is closed.
func (l *ledger) decide(v participant.Vote) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || v.Kind != participant.Yes {
		return false
	}
	l.decided = append(l.decided, v.Handle)
	return true
}

func (l *ledger) close() []participant.Handle {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return slices.Clone(l.decided)
}

// live is a member's life: two epochs, of which the ledger decides what it is asked in time, and
// one that it discards. It takes errors as a member does: the generation is over.
func live(ctx context.Context, s *Sink, l *ledger) error {
	if err := s.Open(ctx, opening(1)); err != nil {
		return err
	}
	for n := uint64(1); n <= 3; n++ {
		b, err := s.Begin(ctx, branchName(1, n))
		if err != nil {
			return err
		}
		if err := b.(*Branch).Write(ctx, numbered(10)); err != nil {
			return err
		}
		if n == 3 {
			return b.Discard(ctx)
		}
		v, err := b.Prepare(ctx)
		if err != nil {
			return err
		}
		if !l.decide(v) {
			return fmt.Errorf("not decided: %w", v.Reason)
		}
		if _, err := s.Commit(ctx, v.Handle); err != nil {
			return err
		}
	}
	return nil
}

// restore is what a member does before it writes: commit what the ledger lists, roll back the rest.
func (r *rig) restore(s *Sink, decided []participant.Handle) {
	r.Helper()
	for _, h := range decided {
		r.commit(s, h, participant.Committed)
	}
	for range 2 {
		r.sweep(s, decided)
	}
}

// sweep rolls back what generation 1 left and nobody decided.
func (r *rig) sweep(s *Sink, decided []participant.Handle) {
	r.Helper()
	found, err := s.List(r.Context(), opening(1).Namespace)
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range found {
		if f.Name.Generation == 1 && !slices.ContainsFunc(decided, f.Handle.Same) {
			r.rollback(s, f.Handle, participant.RolledBack)
		}
	}
}

// TestPausedAtEveryPointNothingIsLostDoubledOrLeft stops a member at each hit of each point as if it were paused for long: a successor
// restores and writes, and then the paused one wakes and goes on as if nothing had happened.
func TestPausedAtEveryPointNothingIsLostDoubledOrLeft(t *testing.T) {
	record := map[string]int{}
	var mu sync.Mutex
	restore := fault.Set(func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		record[name]++
		return nil
	})
	first := newRig(t)
	if err := live(t.Context(), first.sink(), &ledger{}); err != nil {
		t.Fatal(err)
	}
	restore()
	if len(record) < 7 {
		t.Fatalf("only these points were reached: %v", record)
	}
	for name, hits := range record {
		for hit := 1; hit <= hits; hit++ {
			t.Run(fmt.Sprintf("%s@%d", name, hit), func(t *testing.T) { walkTo(t, name, hit) })
		}
	}
}

func walkTo(t *testing.T, name string, hit int) {
	stopped, wake := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	seen := 0
	defer fault.Set(func(at string) error {
		if at != name {
			return nil
		}
		mu.Lock()
		seen++
		mine := seen == hit
		mu.Unlock()
		if mine {
			close(stopped)
			<-wake
		}
		return nil
	})()
	r := newRig(t)
	zombie, l := r.sink(), &ledger{}
	over := make(chan error, 1)
	go func() { over <- live(t.Context(), zombie, l) }()
	select {
	case <-stopped:
	case err := <-over:
		t.Fatalf("the member ended before the point: %v", err)
	}

	decided := l.close()
	next := r.opened(2)
	r.restore(next, decided)
	r.sees(10 * len(decided))
	r.commit(next, r.prepared(next, branchName(2, 1), 10), participant.Committed)

	close(wake)
	t.Logf("%d decided; the paused one ended with %v", len(decided), <-over)
	r.sweep(next, decided)
	r.commit(next, r.prepared(next, branchName(2, 2), 10), participant.Committed)
	r.sees(10*len(decided) + 20)
	left, err := r.a.ListTransactions(t.Context(), opening(1).Namespace, unfinishedStates()...)
	if err != nil || len(left) != 0 {
		t.Errorf("transactions left open: %v, %v", left, err)
	}
}
