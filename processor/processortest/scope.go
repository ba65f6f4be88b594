package processortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/unisink/unisink/participant"
)

// Scope is a scope with one member, in memory: coordinator, ledger and member in one, driven by the
// test. What it has decided survives Close; everything else is rolled back, as after a crash.
type Scope struct {
	// MaxPending epochs may be open or not proven; default 2. Set before the first Open.
	MaxPending int
	// InlineLimit of a vote, bytes; default 64 KiB.
	InlineLimit int
	// Keep restore points; default 3.
	Keep int

	sinks map[string]participant.Resource

	generation uint64
	points     []point
	run        *Run
}

// point is a restore point.
type point struct {
	generation, n uint64
	contribution  participant.Contribution
}

// NewScope makes a scope over sinks by resource name.
func NewScope(sinks map[string]participant.Resource) *Scope {
	return &Scope{MaxPending: 2, InlineLimit: 64 << 10, Keep: 3, sinks: sinks}
}

var namespace = participant.Namespace{Name: "test", Incarnation: 1}

// Open begins the next generation and says where it begins. A generation that is open is closed first.
func (s *Scope) Open(ctx context.Context) (participant.Restore, *Run, error) {
	if s.run != nil {
		if err := s.Close(ctx); err != nil {
			return participant.Restore{}, nil, err
		}
	}
	s.generation++
	for name, r := range s.sinks {
		err := r.Open(ctx, participant.Opening{
			Namespace: namespace, Scope: "test/0", Member: "main", Resource: name,
			Generation: s.generation, MaxPending: s.MaxPending, EpochInterval: time.Second,
		})
		if err != nil {
			return participant.Restore{}, nil, fmt.Errorf("open sink %q: %w", name, err)
		}
	}
	s.run = &Run{
		scope: s, generation: s.generation, next: 1, branches: map[string]participant.Branch{},
		votes: map[uint64]*vote{}, changed: make(chan struct{}), done: make(chan struct{}),
		retired: make(chan []string, 64),
	}
	r := participant.Restore{Generation: s.generation, Fresh: len(s.points) == 0, KeptParts: s.KeptParts()}
	if !r.Fresh {
		last := s.points[len(s.points)-1]
		r.RestoreGeneration, r.RestoreN = last.generation, last.n
		r.Positions, r.Parts = clonePositions(last.contribution.Positions), cloneParts(last.contribution.Parts)
	}
	return r, s.run, nil
}

// Begin opens a generation and takes a task through Restore and Start.
func (s *Scope) Begin(ctx context.Context, t participant.Task) (*Run, error) {
	r, run, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.Restore(ctx, r); err != nil {
		return nil, err
	}
	return run, t.Start(ctx, s.Start())
}

// Start is what a task is started with.
func (s *Scope) Start() participant.Start {
	return participant.Start{
		Generation: s.generation, EpochInterval: time.Second, MaxPending: s.MaxPending, InlineLimit: s.InlineLimit, Run: s.run,
	}
}

// KeptParts are the ids that the kept restore points name.
func (s *Scope) KeptParts() []string {
	var ids []string
	for _, p := range s.points {
		for _, part := range p.contribution.Parts {
			if !slices.Contains(ids, part.ID) {
				ids = append(ids, part.ID)
			}
		}
	}
	return ids
}

// Last is the last decided epoch and what it holds.
func (s *Scope) Last() (generation, n uint64, c participant.Contribution) {
	if len(s.points) == 0 {
		return 0, 0, c
	}
	p := s.points[len(s.points)-1]
	return p.generation, p.n, p.contribution
}

// Decide waits for the vote of the next epoch of the open generation and decides it: it is the
// restore point from then on. Its branches stay prepared until Finish, or the next Close.
func (s *Scope) Decide(ctx context.Context) error {
	n := s.run.decided() + 1
	v, err := s.run.await(ctx, n)
	if err != nil {
		return err
	}
	if v.refused != nil {
		return fmt.Errorf("epoch %d.%d: %w", s.generation, n, v.refused)
	}
	s.points = append(s.points, point{s.generation, n, v.contribution})
	var gone []string
	for len(s.points) > s.Keep {
		old := s.points[0]
		s.points = s.points[1:]
		kept := s.KeptParts()
		for _, p := range old.contribution.Parts {
			if !slices.Contains(kept, p.ID) {
				gone = append(gone, p.ID)
			}
		}
	}
	s.run.decide(n)
	if len(gone) > 0 {
		select {
		case s.run.retired <- gone:
		case <-ctx.Done():
			return fmt.Errorf("epoch %d.%d is decided, and nobody takes the parts that nothing needs any more: %w", s.generation, n, context.Cause(ctx))
		}
	}
	return nil
}

// Finish commits every decided epoch, in order.
func (s *Scope) Finish(ctx context.Context) error {
	for n := s.run.proven() + 1; n <= s.run.decided(); n++ {
		v, err := s.run.await(ctx, n)
		if err != nil {
			return err
		}
		for _, h := range v.handles {
			p, err := s.sinks[h.Alias].Commit(ctx, h)
			if err != nil {
				return err
			}
			if p.Verdict != participant.Committed {
				return fmt.Errorf("%s is rolled back although it was decided", h.Name)
			}
		}
		s.run.prove(n)
	}
	return nil
}

// Close ends the generation: what is decided is committed, the rest rolled back. The task must have
// been halted, or be as good as dead.
func (s *Scope) Close(ctx context.Context) error {
	run := s.run
	run.close()
	run.group.Wait()
	if err := s.Finish(ctx); err != nil {
		return err
	}
	s.run = nil
	for n, v := range run.votes {
		if n <= run.final {
			continue
		}
		for _, h := range v.handles {
			if _, err := s.sinks[h.Alias].Rollback(ctx, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// Run keeps the contract of participant.Run for one generation of a Scope.
type Run struct {
	scope      *Scope
	generation uint64
	group      sync.WaitGroup
	done       chan struct{}
	retired    chan []string

	mu       sync.Mutex // guards what follows; never held across a call of a resource
	next     uint64     // the epoch that is being written
	branches map[string]participant.Branch
	votes    map[uint64]*vote
	final    uint64 // decided through
	through  uint64 // proven through
	said     said
	changed  chan struct{}
	closed   bool
}

// said is what the task has told.
type said struct {
	work  bool // since the last vote
	lag   int64
	ended bool
	err   error
}

type vote struct {
	contribution participant.Contribution
	handles      []participant.Handle
	refused      error
	ready        bool
}

// Branch waits while MaxPending epochs are open or not proven.
func (r *Run) Branch(ctx context.Context, resource string) (participant.Branch, error) {
	for {
		r.mu.Lock()
		n, b, changed, closed := r.next, r.branches[resource], r.changed, r.closed
		held := n-1-r.through >= uint64(r.scope.MaxPending) // small
		r.mu.Unlock()
		switch {
		case closed:
			return nil, participant.ErrClosed
		case b != nil:
			return b, nil
		case !held:
			return r.begin(ctx, resource, n)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (r *Run) begin(ctx context.Context, resource string, n uint64) (participant.Branch, error) {
	s := r.scope.sinks[resource]
	if s == nil {
		return nil, fmt.Errorf("%w: no resource %q", participant.ErrBug, resource)
	}
	b, err := s.Begin(ctx, participant.BranchName{
		Namespace: namespace, Pipeline: "test", Member: "main", Resource: resource, Generation: r.generation, N: n,
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.branches[resource] = b
	r.mu.Unlock()
	return b, nil
}

// Vote prepares the epoch's branches in the background.
func (r *Run) Vote(ctx context.Context, b participant.Barrier, c participant.Contribution) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return participant.ErrClosed
	case b.Generation != r.generation || b.N > r.next:
		return fmt.Errorf("%w: barrier %d.%d while %d.%d is being written", participant.ErrBug, b.Generation, b.N, r.generation, r.next)
	case b.N < r.next:
		return nil
	}
	v := &vote{contribution: c}
	branches := r.branches
	r.votes[r.next], r.branches = v, map[string]participant.Branch{}
	r.next++
	r.said.work = false
	ctx = context.WithoutCancel(ctx) // a vote outlives the call
	r.group.Go(func() { r.prepare(ctx, v, branches) })
	return nil
}

func (r *Run) prepare(ctx context.Context, v *vote, branches map[string]participant.Branch) {
	var handles []participant.Handle
	var refused error
	for name, b := range branches {
		a, err := b.Prepare(ctx)
		switch {
		case err != nil:
			refused = errors.Join(refused, fmt.Errorf("prepare %q: %w", name, err))
		case a.Kind == participant.No:
			refused = errors.Join(refused, fmt.Errorf("%q votes no: %w", name, a.Reason))
		case a.Kind == participant.Yes:
			handles = append(handles, a.Handle)
		}
	}
	if ready := v.contribution.Ready; ready != nil {
		if err := ready(ctx); err != nil {
			refused = errors.Join(refused, fmt.Errorf("the state is not durable: %w", err))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v.handles, v.refused, v.ready = handles, refused, true
	r.wake()
}

// HasWork is kept until the next vote; see Await.
func (r *Run) HasWork() { r.change(func() { r.said.work = true }) }

// Progress is kept; see Await.
func (r *Run) Progress(lag int64, ended bool) {
	r.change(func() { r.said.lag, r.said.ended = lag, ended })
}

// Fail ends the generation; see Err.
func (r *Run) Fail(err error) {
	r.change(func() {
		if r.said.err == nil {
			r.said.err = err
		}
	})
	r.close()
}

// Done is closed when the generation is over.
func (r *Run) Done() <-chan struct{} { return r.done }

// Retired delivers ids of parts that may be deleted.
func (r *Run) Retired() <-chan []string { return r.retired }

// Err is what the task gave to Fail.
func (r *Run) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.err
}

// Await waits until f is true of what the task has said last: work for the epoch being written, the
// lag, and whether the source has ended. It returns the task's error if there is one.
func (r *Run) Await(ctx context.Context, f func(work, ended bool, lag int64) bool) error {
	for {
		r.mu.Lock()
		ok, err, changed := f(r.said.work, r.said.ended, r.said.lag), r.said.err, r.changed
		r.mu.Unlock()
		if err != nil {
			return err
		}
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// await waits for the vote of an epoch.
func (r *Run) await(ctx context.Context, n uint64) (*vote, error) {
	for {
		r.mu.Lock()
		v, err, changed := r.votes[n], r.said.err, r.changed
		ready := v != nil && v.ready
		r.mu.Unlock()
		if ready {
			return v, nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no vote for epoch %d.%d: %w", r.generation, n, context.Cause(ctx))
		}
	}
}

// Contribution is what was voted for an epoch, once it is prepared.
func (r *Run) Contribution(ctx context.Context, n uint64) (participant.Contribution, error) {
	v, err := r.await(ctx, n)
	if err != nil {
		return participant.Contribution{}, err
	}
	return v.contribution, nil
}

func (r *Run) decided() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.final
}

func (r *Run) proven() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.through
}

func (r *Run) decide(n uint64) { r.change(func() { r.final = n }) }

func (r *Run) prove(n uint64) { r.change(func() { r.through = n }) }

func (r *Run) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		close(r.done)
		r.wake()
	}
}

func (r *Run) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.wake()
}

func (r *Run) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func clonePositions(in []participant.Position) []participant.Position {
	out := slices.Clone(in)
	for i := range out {
		out[i].Opaque = slices.Clone(out[i].Opaque)
	}
	return out
}

func cloneParts(in []participant.StatePart) []participant.StatePart {
	out := slices.Clone(in)
	for i := range out {
		out[i].Body = slices.Clone(out[i].Body)
	}
	return out
}
