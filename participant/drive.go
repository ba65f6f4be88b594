package participant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// steps is what the driver has still to do, in order. It has no bound: its length is that of the
// orders of one leader, who waits for answers.
type steps struct {
	mu   sync.Mutex // guards todo
	todo []func(ctx context.Context)
	more chan struct{} // holds one
}

func newSteps() *steps { return &steps{more: make(chan struct{}, 1)} }

func (s *steps) add(step func(ctx context.Context)) {
	s.mu.Lock()
	s.todo = append(s.todo, step)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *steps) next() func(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.todo) == 0 {
		return nil
	}
	step := s.todo[0]
	s.todo = s.todo[1:]
	return step
}

// drive takes the steps one at a time, so that the task's calls come one at a time, until ctx ends.
func (m *Member) drive(ctx context.Context) {
	for {
		step := m.steps.next()
		for ; step != nil && ctx.Err() == nil; step = m.steps.next() {
			step(ctx)
		}
		select {
		case <-m.steps.more:
		case <-ctx.Done():
			return
		}
	}
}

// obey takes in one order. What must be known at once is noted here, on the stream's goroutine;
// what takes time becomes a step of the driver. Orders may come again, from the same or a newer
// leader; a repeat changes nothing.
func (m *Member) obey(ctx context.Context, order *unisinkv1.Order) {
	g := m.generation()
	switch o := order.GetOrder().(type) {
	case *unisinkv1.Order_Waiting:
		m.links.wait(o.Waiting.GetFor())
	case *unisinkv1.Order_Restore:
		m.obeyRestore(ctx, g, o.Restore)
	case *unisinkv1.Order_Start:
		if g.is(o.Start.GetGeneration()) {
			m.links.wait("")
			m.steps.add(func(ctx context.Context) { g.start(ctx, o.Start) })
		}
	case *unisinkv1.Order_Barrier:
		if g.is(o.Barrier.GetEpoch().GetGeneration()) {
			m.steps.add(func(context.Context) { g.barrierOrdered(o.Barrier) })
		}
	case *unisinkv1.Order_Committed:
		if g.is(o.Committed.GetEpoch().GetGeneration()) {
			g.decidedThrough(o.Committed.GetEpoch().GetN())
		}
	case *unisinkv1.Order_Close:
		if g.is(o.Close.GetGeneration()) {
			m.obeyClose(ctx, g, o.Close.GetFinal(), o.Close.GetCause())
		}
	case *unisinkv1.Order_Stop:
		m.steps.add(func(ctx context.Context) { m.stop(ctx, o.Stop.GetCause()) })
	case *unisinkv1.Order_Fenced:
		m.end(fmt.Errorf("%w: %s", ErrFenced, o.Fenced.GetCause()))
	case *unisinkv1.Order_Retired:
		if g.is(o.Retired.GetGeneration()) {
			g.retire(o.Retired.GetParts())
		}
	case *unisinkv1.Order_VoteAgain:
		m.links.heard(o.VoteAgain.GetStamp())
		g.voteAgain()
	default:
		m.log.WarnContext(ctx, "order of an unknown kind; this SDK is older than the coordinator")
	}
}

// obeyRestore begins a generation, which ends the one before wherever it stands.
func (m *Member) obeyRestore(ctx context.Context, old *generation, r *unisinkv1.Restore) {
	id := r.GetGeneration()
	switch {
	case old != nil && id < old.id:
		m.log.WarnContext(ctx, "order to restore an older generation ignored", obs.Gen(id))
		return
	case old.is(id):
		// A new leader that missed our Ready; while restoring, Ready is still to come.
		old.readyAgain()
		return
	}
	if old != nil {
		old.supersede(fmt.Errorf("%w: generation %d begins", ErrClosed, id))
	}
	g := newGeneration(m, r)
	m.mu.Lock()
	m.gen = g
	m.mu.Unlock()
	m.links.wait("")
	m.steps.add(func(ctx context.Context) { m.restore(ctx, old, g) })
}

// obeyClose notes that g is closed in the log, with everything through final decided. The task is
// halted and the rest rolled back by the driver; nothing is touched before this order (P17).
func (m *Member) obeyClose(ctx context.Context, g *generation, final uint64, cause string) {
	if !g.closed(final, cause) {
		return
	}
	m.log.InfoContext(ctx, "generation closed", obs.Gen(g.id), obs.Epoch(g.id, final), obs.Cause(cause))
	m.steps.add(func(ctx context.Context) {
		g.halt(ctx, cause)
		g.settle(ctx)
	})
}

// stop ends Run when the pipeline is not to run any more. Everything of the member is proven when
// the order comes; what was never decided is rolled back, for a while, and else left to the sweep.
func (m *Member) stop(ctx context.Context, cause string) {
	if g := m.generation(); g != nil {
		g.supersede(fmt.Errorf("%w: %s", ErrClosed, cause))
		g.halt(ctx, cause)
		g.settle(ctx)
		patience, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if !g.finished(patience) {
			m.log.WarnContext(ctx, "stopped with branches that are not finished; the next generation finishes them", obs.Gen(g.id))
		}
	}
	m.log.InfoContext(ctx, "stopped", obs.Cause(cause))
	m.end(errStopped)
}

// restore takes the member from the end of one generation to Ready in the next.
func (m *Member) restore(ctx context.Context, old, g *generation) {
	if old != nil {
		cause := fmt.Sprintf("generation %d begins", g.id)
		old.halt(ctx, cause)
		old.dropUnprepared(ctx)
		old.finishing.over(fmt.Errorf("%w: %s", ErrClosed, cause))
	}
	err := g.writing.run(g.restore)
	switch {
	case err == nil:
		m.log.InfoContext(ctx, "restored", obs.Gen(g.id))
		g.ready()
	case ctx.Err() != nil || g.isOver():
	case errors.Is(err, ErrFenced):
		g.suspect(ctx, err)
	default:
		g.Fail(fmt.Errorf("restore generation %d: %w", g.id, err))
	}
}

// suspect is what follows when a resource says fenced in a generation that is ours as far as is
// known: first the lease is renewed. If that says that we are fenced, Run ends; if the generation
// is closed the order is on its way; and if it is still ours its undecided work is lost.
func (g *generation) suspect(ctx context.Context, err error) {
	switch lease := g.m.renewed(ctx); {
	case ctx.Err() != nil, errors.Is(lease, ErrClosed):
	case errors.Is(lease, ErrFenced):
		g.m.end(lease)
	default:
		g.Fail(fmt.Errorf("%w: %w", ErrLost, err))
	}
}

// retry calls f until it succeeds, ctx ends, or the error is such that trying again changes nothing.
func (m *Member) retry(ctx context.Context, what, alias string, f func(ctx context.Context) error) error {
	pause := newResourceBackOff()
	defer m.troubles.over(what, alias)
	for attempt := 1; ; attempt++ {
		err := f(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case hopeless(err):
			return fmt.Errorf("%s %q: %w", what, alias, err)
		}
		wait := pause.NextBackOff()
		if later := (*RetryAfter)(nil); errors.As(err, &later) {
			wait = max(wait, later.After)
		}
		m.troubles.note(what, alias, err)
		m.log.WarnContext(ctx, "resource not ready, trying again",
			obs.Command(what), obs.Resource(alias), obs.Attempt(attempt), obs.Next(wait), obs.Err(err))
		if !route.Sleep(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}
