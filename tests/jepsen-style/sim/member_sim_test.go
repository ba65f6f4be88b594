package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// seat is a member's place in a pipeline, which processes take one after the other.
type seat struct {
	w        *world
	pipeline string
	name     string
	targets  map[string]target // by alias
	every    time.Duration     // between two records
	windows  *windows          // nil: it copies what it reads

	mu    sync.Mutex // guards the rest; held for memory only
	life  *life
	lives int
	hook  participanttest.Hook // of its resources
	over  bool                 // no other process comes
}

// life is one process in a seat.
type life struct {
	seat   *seat
	number int
	host   *host
	die    func() // ends its access to its resources and to the net, once
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
	task   worker
}

// worker is the task of a process.
type worker interface {
	participant.Task
	// idle reports a process that has never been in a generation.
	idle() bool
}

func (s *seat) scope() string { return s.pipeline + "/0" }
func (s *seat) id() string    { return s.pipeline + "." + s.name }

// run starts a process, which takes the seat once its predecessor has lost it.
func (s *seat) run() {
	s.mu.Lock()
	s.lives++
	l := &life{seat: s, number: s.lives, done: make(chan struct{})}
	s.mu.Unlock()
	l.host = s.w.nodes.host(s.id())
	resources := map[string]participant.Resource{}
	ends := []func(){l.host.die}
	for alias, to := range s.targets {
		r, kill, err := to.process(s.around)
		if err != nil {
			s.w.t.Fatal(err) // a mistake of the harness
		}
		ends, resources[alias] = append(ends, kill), r
	}
	l.task = &writer{clerk: clerk{life: l, w: s.w}}
	if s.windows != nil {
		t, kill, err := s.windows.process(l, resources)
		if err != nil {
			s.w.t.Fatal(err) // a mistake of the harness
		}
		ends, l.task = append(ends, kill), t
	}
	l.die = sync.OnceFunc(func() {
		for _, end := range ends {
			end()
		}
	})
	m, err := participant.NewMember(participant.MemberConfig{
		Coordinators: s.w.nodes.addresses(), Pipeline: s.pipeline, Member: s.name, Fingerprint: "f1", Resources: resources,
		Dial: l.host.dial, Patience: -1, Instance: fmt.Sprintf("%s-%d", s.id(), l.number), Logger: s.w.nodes.logger.With(slog.String("process", s.id())),
	}, l.task)
	if err != nil {
		s.w.t.Fatal(err) // a mistake of the harness
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	s.mu.Lock()
	s.life = l
	s.mu.Unlock()
	go func() {
		defer close(l.done)
		l.err = m.Run(ctx)
		l.die() // a process that has ended holds nothing
	}()
}

// supervise starts another process when one has ended by itself, until the seat is given up.
func (s *seat) supervise(ctx context.Context) {
	for {
		l := s.now()
		select {
		case <-ctx.Done():
			return
		case <-l.done:
		}
		s.mu.Lock()
		over, replaced := s.over, s.life != l
		s.mu.Unlock()
		switch {
		case replaced:
			continue
		case over && l.err == nil:
			return
		}
		s.w.say(s.id(), "process %d ended: %v", l.number, l.err)
		pause(ctx, 300*time.Millisecond)
		if ctx.Err() == nil && s.now() == l {
			s.run()
		}
	}
}

func (s *seat) now() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// kill ends the process as kill -9 does: nothing that it does from now on reaches anybody.
func (s *seat) kill() {
	l := s.now()
	l.die()
	s.w.rounds.halted(s.scope(), s.name)
	l.cancel()
	<-l.done
	s.run()
}

// setHook makes the seat's resources misbehave, in this process and the next ones.
func (s *seat) setHook(h participanttest.Hook) {
	s.mu.Lock()
	s.hook = h
	s.mu.Unlock()
}

// clerk keeps the history of one process, whatever its task is.
type clerk struct {
	life *life
	w    *world

	seen atomic.Uint64 // the generation that it is in; 0: it was in none yet
}

func (c *clerk) note(kind check.Kind, e check.Epoch, offset int64, text string) {
	c.keep(check.Event{Kind: kind, Offset: offset, Text: text}, e)
}

// keep puts an event of the process into the history.
func (c *clerk) keep(event check.Event, e check.Epoch) {
	s := c.life.seat
	event.Who, event.Branch = s.id(), check.Branch{Scope: s.scope(), Member: s.name, Epoch: e}
	c.w.hist.Add(event)
}

func (c *clerk) idle() bool { return c.seen.Load() == 0 }

// ordered notes a barrier that the process was told of.
func (c *clerk) ordered(b participant.Barrier) {
	text := ""
	if b.Final {
		text = "(final)"
	}
	e := check.Epoch{Generation: b.Generation, N: b.N}
	c.note(check.Barrier, e, 0, text)
	c.w.rounds.opened(c.life.seat.scope(), e)
	c.w.aimed("barrier", c.life.seat.id())
}

// halted notes that the process's generation is over.
func (c *clerk) halted(why string) {
	c.w.rounds.halted(c.life.seat.scope(), c.life.seat.name)
	c.w.say(c.life.seat.id(), "halts: %s", why)
}

// writer is a task that writes member-0, member-1, … into every resource of its member, and keeps how
// far it came as its position.
type writer struct {
	clerk

	mu       sync.Mutex // guards the rest
	next     int64
	barriers chan participant.Barrier
	stop     context.CancelFunc
	ended    chan struct{}
}

// Restore implements participant.Task.
func (t *writer) Restore(_ context.Context, r participant.Restore) error {
	t.seen.Store(r.Generation)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = 0
	if len(r.Positions) > 0 {
		t.next = r.Positions[0].Offset
	}
	return nil
}

// Start implements participant.Task.
func (t *writer) Start(_ context.Context, s participant.Start) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	t.stop, t.ended, t.barriers = cancel, make(chan struct{}), make(chan participant.Barrier, 64)
	t.note(check.Started, check.Epoch{Generation: s.Generation}, t.next, "")
	go t.work(ctx, s.Run, t.barriers, t.ended, t.next)
	return nil
}

func (t *writer) work(ctx context.Context, run participant.Run, barriers <-chan participant.Barrier, ended chan<- struct{}, next int64) {
	defer close(ended)
	tick := time.NewTicker(t.life.seat.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-barriers:
			t.note(check.Voted, check.Epoch{Generation: b.Generation, N: b.N}, next, "")
			at := []participant.Position{{Resource: "in", Split: t.life.seat.name, Offset: next, LeaderEpoch: -1, Opaque: []byte(planted)}}
			if run.Vote(ctx, b, participant.Contribution{Positions: at}) != nil || b.Final {
				return // the generation is over, and Halted comes
			}
		case <-tick.C:
			if !t.write(ctx, run, next) {
				return
			}
			next++
			run.HasWork()
		}
	}
}

// write puts one record into every resource, and reports whether the generation goes on.
func (t *writer) write(ctx context.Context, run participant.Run, n int64) bool {
	for alias, to := range t.life.seat.targets {
		b, err := run.Branch(ctx, alias)
		if err != nil {
			return false
		}
		if err := to.write(ctx, b, fmt.Sprintf("%s-%d", t.life.seat.name, n)); err != nil {
			if ctx.Err() == nil {
				run.Fail(fmt.Errorf("write to %s: %w", alias, err)) // the generation, not the process
			}
			return false
		}
	}
	return true
}

// Barrier implements participant.Task.
func (t *writer) Barrier(_ context.Context, b participant.Barrier) error {
	t.ordered(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.barriers <- b
	return nil
}

// Halted implements participant.Task.
func (t *writer) Halted(_ context.Context, why string) error {
	t.mu.Lock()
	stop, ended := t.stop, t.ended
	t.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	t.halted(why)
	return nil
}

// rounds knows which scopes have a round open, as their members see it.
type rounds struct {
	mu     sync.Mutex // guards the rest
	newest map[string]check.Epoch
	done   map[string]check.Epoch
}

func newRounds() *rounds {
	return &rounds{newest: map[string]check.Epoch{}, done: map[string]check.Epoch{}}
}

func (r *rounds) opened(scope string, e check.Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Compare(r.newest[scope]) > 0 {
		r.newest[scope] = e
	}
}

func (r *rounds) decided(scope string, e check.Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Compare(r.done[scope]) > 0 {
		r.done[scope] = e
	}
}

func (r *rounds) halted(scope, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done[scope] = r.newest[scope]
}

// open reports whether some scope has a round between barrier and decision.
func (r *rounds) open() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for scope, e := range r.newest {
		if e.Compare(r.done[scope]) > 0 {
			return true
		}
	}
	return false
}

// faulty fails so many calls of a resource in a hundred, before or after their effect, some of them
// late. It waits without a lock, for a lock also holds virtual time.
func (w *world) faulty(odds int, hang bool) participanttest.Hook {
	return func(ctx context.Context, _ participanttest.Call, _ participanttest.When, _ string) error {
		fails, late := w.draw(100) < odds, hang && w.draw(10) == 0
		if !fails {
			return nil
		}
		if late {
			pause(ctx, time.Duration(500+w.draw(2500))*time.Millisecond)
		}
		return errors.New("injected")
	}
}

// begun notes a branch that was begun. The contract bounds how many may be open or prepared at once.
func (s *seat) begun(name string) {
	b, err := participant.ParseBranchName(name)
	if err != nil {
		s.w.complain("a branch was begun under the name %q: %v", name, err)
		return
	}
	s.w.hist.Add(check.Event{Who: s.id(), Kind: check.Begun, Store: s.pipeline + "-" + s.name + "-" + b.Resource, Branch: check.Branch{
		Scope: b.Scope(), Member: b.Member, Resource: b.Resource, Epoch: check.Epoch{Generation: b.Generation, N: b.N},
	}})
}

// around is what every call of a seat's resources passes: the time that it takes, faults that are
// aimed at it, and what else is wrong with the resource.
func (s *seat) around(ctx context.Context, call participanttest.Call, when participanttest.When, name string) error {
	moment := "after "
	if when == participanttest.Before {
		moment = "before "
		time.Sleep(time.Duration(100+s.w.draw(2900)) * time.Microsecond)
	}
	if call == participanttest.CallBegin && when == participanttest.After {
		s.begun(name)
	}
	if s.w.aimed(moment+string(call), s.id()) {
		time.Sleep(time.Millisecond) // it strikes now
	}
	s.mu.Lock()
	more := s.hook
	s.mu.Unlock()
	if more != nil {
		return more(ctx, call, when, name)
	}
	return nil
}
