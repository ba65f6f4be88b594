package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// generation is one generation of a member, and the Run that its task works with.
//
// Two groups of goroutines serve it. Writing (restore, prepares, votes, the timer of a scope with
// one member) ends when the generation is closed. Finishing (one lane per resource, reports of
// proofs) goes on until everything is proven or rolled back, or the next generation takes over.
type generation struct {
	m     *Member
	id    uint64
	order *unisinkv1.Restore

	writing   *life
	finishing *life
	done      chan struct{} // closed when the generation is over
	retired   chan []string

	mu      sync.Mutex // guards the rest; never held across I/O or a callback
	changed chan struct{}
	phase   Phase
	set     settings
	end     ending
	work    work

	marks
}

// marks are how far a generation has come.
type marks struct {
	voted   uint64 // newest epoch for which Vote was called
	outcome uint64 // every epoch through it is decided
	proven  uint64 // every branch through it is proven committed
	told    uint64 // proven, as far as a leader has heard
	// answeredTo is the newest epoch whose vote a leader has answered.
	answeredTo uint64
	barrier    barriers // seen
	current    *epoch   // being written; nil until asked for
	epochs     []*epoch // voted for and not resolved, in order
}

// settings of a running generation.
type settings struct {
	interval, prepareTimeout time.Duration
	maxPending               uint64
	inlineLimit              int
	solo                     bool
}

// ending is how far the end of a generation has come.
type ending struct {
	over     bool // no vote and no branch any more
	closed   bool // the log says so: outcome is final
	halted   bool // the task has stopped
	settled  bool // every handle is known; what is undecided may be rolled back
	taskSeen bool // the task was given the generation, so it is owed Halted
	failed   error
	cause    string
}

// work is what a member tells of itself.
type work struct {
	has   bool
	ended bool
	lag   int64

	proofs     []*unisinkv1.BranchProof // of the restore, repeated with Ready
	heuristics []*unisinkv1.BranchProof // not told yet
	retired    []string
	retiring   bool
}

// barriers are those that the member has seen.
type barriers struct {
	newest uint64
	// ordered are those given to the task by Barrier: sources only.
	ordered uint64
	final   bool
}

func newGeneration(m *Member, order *unisinkv1.Restore) *generation {
	return &generation{
		m: m, id: order.GetGeneration(), order: order,
		writing: m.newLife(), finishing: m.newLife(),
		done: make(chan struct{}), retired: make(chan []string), changed: make(chan struct{}),
		phase: PhaseRestoring, work: work{lag: -1}, set: settings{maxPending: 2, prepareTimeout: 30 * time.Second},
	}
}

// is reports whether g is the generation of that number. A nil generation is none.
func (g *generation) is(id uint64) bool { return g != nil && g.id == id }

// note wakes everyone who waits for a change. Called with mu held.
func (g *generation) note() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// until waits, with mu held, until ready says so; it gives mu up while it waits, and holds it when
// it returns. The error is the context's cause.
func (g *generation) until(ctx context.Context, ready func() bool) error {
	for !ready() {
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// over ends writing; called with mu held. It reports false when that was so already.
func (g *generation) over(cause error) bool {
	if g.end.over {
		return false
	}
	g.end.over = true
	g.writing.end(cause)
	close(g.done)
	g.note()
	return true
}

// closed notes the close that the log holds. False: it was known.
func (g *generation) closed(final uint64, cause string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.end.closed {
		return false
	}
	g.end.closed, g.end.cause = true, cause
	if !mutant.On("participant/final-of-the-close") {
		g.outcome = max(g.outcome, final)
	}
	g.over(fmt.Errorf("%w: %s", ErrClosed, cause))
	g.phase = PhaseIdle
	g.note()
	return true
}

// supersede ends writing without a close having been heard. It reports whether the generation was open.
func (g *generation) supersede(cause error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := g.over(cause)
	g.phase = PhaseIdle
	return open
}

func (g *generation) isOver() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.end.over
}

// refuse is why nothing may be written or voted for, with mu held; nil when it may.
func (g *generation) refuse() error {
	switch {
	case g.end.failed != nil:
		return fmt.Errorf("%w: %w", ErrClosed, g.end.failed)
	case g.end.over:
		return fmt.Errorf("%w: %s", ErrClosed, g.end.cause)
	case g.phase != PhaseRunning:
		return fmt.Errorf("%w: generation %d is %s, not running", ErrBug, g.id, g.phase)
	}
	return nil
}

// decidedThrough notes that the epochs through n are decided.
func (g *generation) decidedThrough(n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n > g.outcome && !g.end.closed {
		g.outcome = n
		g.advance()
		g.note()
	}
}

// advance moves the proven mark over epochs whose branches are all proven committed, and forgets
// those. Called with mu held.
func (g *generation) advance() {
	for len(g.epochs) > 0 && g.epochs[0].n <= g.outcome && g.epochs[0].provenCommitted() {
		g.proven = g.epochs[0].n
		g.epochs = g.epochs[1:]
	}
}

// standing is what a member tells a leader when it attaches. The votes in it have left the process.
func (g *generation) standing() *unisinkv1.Standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &unisinkv1.Standing{
		Generation: g.id, Phase: g.phase.wire(),
		NewestBarrier: g.barrier.newest, NewestBarrierFinal: g.barrier.final,
		NewestOutcome: g.outcome, ProvenThrough: g.proven,
	}
	if g.end.over {
		return s
	}
	for _, e := range g.epochs {
		if e.ballot != nil && e.n > g.outcome {
			s.Votes = append(s.Votes, g.measured(e))
		}
	}
	return s
}

// report fills a renewal.
func (g *generation) report(r *unisinkv1.RenewRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.Generation, r.HasWork, r.Ended, r.Lag = g.id, g.work.has, g.work.ended, g.work.lag
}

func (g *generation) status(s *Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Generation, s.Phase = g.id, g.phase
	s.Barrier, s.Outcome, s.Proven = g.barrier.newest, g.outcome, g.proven
	if s.WaitingFor != "" || g.phase != PhaseRunning {
		return
	}
	if pending := g.voted - g.proven; pending >= g.set.maxPending {
		what := "the decision of epoch"
		if g.outcome > g.proven {
			what = "the proof of epoch"
		}
		s.WaitingFor = fmt.Sprintf("%s %d.%d", what, g.id, g.proven+1)
		if g.outcome <= g.proven {
			s.WaitingFor = fmt.Sprintf("%s %d.%d", what, g.id, g.outcome+1)
		}
	}
}

// start lets the task run.
func (g *generation) start(ctx context.Context, o *unisinkv1.Start) {
	g.mu.Lock()
	if g.end.over || g.phase != PhaseReady {
		g.mu.Unlock()
		return // a repeat, or too late
	}
	g.phase = PhaseRunning
	g.set = settings{
		interval:       time.Duration(o.GetEpochIntervalMs()) * time.Millisecond,
		prepareTimeout: time.Duration(o.GetPrepareTimeoutMs()) * time.Millisecond,
		maxPending:     max(uint64(o.GetMaxPending()), 1),
		inlineLimit:    int(o.GetInlineLimit()),
		solo:           o.GetSolo(),
	}
	for alias := range g.m.cfg.Resources {
		g.finishing.spawn(func(ctx context.Context) { g.lane(ctx, alias) })
	}
	g.finishing.spawn(g.reportProofs)
	if g.set.solo {
		g.writing.spawn(g.keepTime)
	}
	set := g.set
	g.mu.Unlock()

	g.m.log.InfoContext(ctx, "started", obs.Gen(g.id))
	err := g.writing.run(func(ctx context.Context) error {
		return g.m.task.Start(ctx, Start{
			Generation: g.id, EpochInterval: set.interval, MaxPending: int(set.maxPending), InlineLimit: set.inlineLimit, Run: g,
		})
	})
	if err != nil {
		g.Fail(fmt.Errorf("start: %w", err))
	}
}

// halt stops the task, once, if it was given the generation.
func (g *generation) halt(ctx context.Context, why string) {
	g.mu.Lock()
	owed := g.end.taskSeen && !g.end.halted
	g.mu.Unlock()
	if owed {
		if err := g.m.task.Halted(ctx, why); err != nil {
			g.m.log.ErrorContext(ctx, "the task did not stop cleanly", obs.Gen(g.id), obs.Err(err))
		}
	}
	g.writing.wait()
	g.mu.Lock()
	g.end.halted = true
	g.note()
	g.mu.Unlock()
}

// dropUnprepared drops the branches that were never prepared. What is prepared stays.
func (g *generation) dropUnprepared(ctx context.Context) {
	g.mu.Lock()
	var all []*share
	if g.current != nil {
		all = append(all, g.current.all()...)
	}
	for _, e := range g.epochs {
		all = append(all, e.all()...)
	}
	g.current = nil
	g.mu.Unlock()
	for _, s := range all {
		if s.branch == nil || s.vote.Kind == Yes {
			continue
		}
		if err := s.branch.Discard(ctx); err != nil && !errors.Is(err, ErrPrepared) {
			g.m.log.WarnContext(ctx, "branch not dropped; the next generation's opening does it",
				obs.Gen(g.id), obs.Resource(s.alias), obs.Err(err))
		}
	}
}

// keepTime makes the barriers of a scope with one member, when there is work and room.
func (g *generation) keepTime(ctx context.Context) {
	tick := time.NewTicker(max(g.set.interval, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		g.mu.Lock()
		err := g.until(ctx, func() bool {
			next := g.barrier.newest + 1
			return g.work.has && !g.barrier.final && g.voted == g.barrier.newest && next-g.proven <= g.set.maxPending
		})
		next := g.barrier.newest + 1
		g.mu.Unlock()
		if err != nil {
			return
		}
		// Through the driver, so that the task's calls come one at a time.
		g.m.steps.add(func(context.Context) {
			g.inject(&unisinkv1.Barrier{Epoch: &unisinkv1.Epoch{Generation: g.id, N: next}})
		})
		g.mu.Lock()
		err = g.until(ctx, func() bool { return g.barrier.newest >= next })
		g.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// barrierOrdered gives the task every barrier up to the one ordered that it has not had, in order.
func (g *generation) barrierOrdered(o *unisinkv1.Barrier) {
	n := o.GetEpoch().GetN()
	g.mu.Lock()
	newest, final, solo := g.barrier.newest, g.barrier.final, g.set.solo
	g.mu.Unlock()
	if final {
		return
	}
	if mutant.On("participant/barrier-once") {
		newest = n - 1 // as it was ordered, whatever was seen
	}
	if solo && o.GetFinal() {
		// Own barriers may have crossed the order on its way: the next one is the last.
		n = max(n, newest+1)
	}
	for next := newest + 1; next <= n; next++ {
		b := &unisinkv1.Barrier{Epoch: &unisinkv1.Epoch{Generation: g.id, N: next}}
		if next == n {
			b.Final, b.Drain = o.GetFinal(), o.GetDrain()
		}
		g.inject(b)
	}
}

// inject gives the task one barrier, unless it has had it.
func (g *generation) inject(b *unisinkv1.Barrier) {
	n := b.GetEpoch().GetN()
	g.mu.Lock()
	if g.refuse() != nil || (n != g.barrier.newest+1 || g.barrier.final) && !mutant.On("participant/barrier-once") {
		g.mu.Unlock()
		return
	}
	g.barrier = barriers{newest: n, ordered: n, final: b.GetFinal()}
	// What was reported before is covered by this barrier; what comes from here on may not be.
	g.work.has = false
	g.note()
	g.mu.Unlock()
	err := g.writing.run(func(ctx context.Context) error {
		return g.m.task.Barrier(ctx, Barrier{Generation: g.id, N: n, Final: b.GetFinal(), Drain: b.GetDrain()})
	})
	if err != nil {
		g.Fail(fmt.Errorf("barrier %d.%d: %w", g.id, n, err))
	}
}

// HasWork implements Run.
func (g *generation) HasWork() {
	g.mu.Lock()
	news := !g.work.has
	g.work.has = true
	if news {
		g.note()
	}
	solo := g.set.solo
	g.mu.Unlock()
	if news && !solo { // one that times its own barriers need not tell anybody
		g.m.kick()
	}
}

// Progress implements Run.
func (g *generation) Progress(lag int64, ended bool) {
	g.mu.Lock()
	news := g.work.ended != ended
	g.work.lag, g.work.ended = lag, ended
	g.mu.Unlock()
	if news {
		g.m.kick()
	}
}

// Done implements Run.
func (g *generation) Done() <-chan struct{} { return g.done }

// Retired implements Run.
func (g *generation) Retired() <-chan []string { return g.retired }

// retire hands ids to the task, which takes them when it likes.
func (g *generation) retire(ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.end.over {
		return
	}
	g.work.retired = append(g.work.retired, ids...)
	if g.work.retiring || len(g.work.retired) == 0 {
		return
	}
	g.work.retiring = true
	g.writing.spawn(func(ctx context.Context) {
		for {
			g.mu.Lock()
			ids := slices.Clone(g.work.retired)
			g.work.retired = nil
			g.work.retiring = len(ids) > 0
			g.mu.Unlock()
			if len(ids) == 0 {
				return
			}
			select {
			case g.retired <- ids:
			case <-ctx.Done():
				return
			}
		}
	})
}
