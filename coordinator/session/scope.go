package session

import (
	"cmp"
	"context"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/round"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

const (
	// actor signs what the leader does of its own accord.
	actor = "coordinator"
	// retryDelay is how long a proposal that failed is left alone.
	retryDelay = 100 * time.Millisecond
	// lookAgain is how long a scope that waits goes without reading the ledger, should an effect be lost.
	lookAgain = time.Second
)

// scope is one scope as its leader sees it. All of it belongs to the goroutine in run, except
// what is said to be shared.
type scope struct {
	r  *reign
	id ledger.ScopeID

	users int           // shared, guarded by reign.mu: callers that keep the actor from ending
	in    chan event    // shared: what callers want done
	wake  chan struct{} // shared, holds one: the ledger may have moved

	mu      sync.Mutex // guards retired; held for memory only
	retired []ledger.Retired

	seen    seen
	members map[string]*member
	// texts say for people what the resources of each member are, as its last process told this leader. The maps
	// within are never changed.
	texts   map[string]map[string]string
	gen     *generation // the open generation, nil when none is
	flying  int         // proposals on their way
	next    turn
	claim   *claim // a decision that a member was told and the ledger does not have
	waiting string // what the scope waits for, empty while it runs
	// When the ledger was read last, and when an epoch was decided last.
	lookedAt, decidedAt time.Time
}

// turn is the next change of the scope itself: an opening, a change of the desired state.
type turn struct {
	flying    bool // it is proposed; only one is at a time
	notBefore time.Time
	why       string // of the delay
}

// event is a step that a caller asks of the actor.
type event func(context.Context)

// seen is what was last read from the ledger.
type seen struct {
	pipeline  ledger.Pipeline
	found     bool // the pipeline exists
	newest    ledger.GenerationRecord
	namespace string
	incarnate uint64
	// Read only while no generation is open:
	halted   string
	broken   bool // a branch ended against its decision
	unproven int  // of a pipeline that is to end
	drained  bool // the restore point is the end of a drain
}

func newScope(r *reign, id ledger.ScopeID, texts map[string]map[string]string) *scope {
	if texts == nil {
		texts = map[string]map[string]string{}
	}
	return &scope{r: r, id: id, in: make(chan event), wake: make(chan struct{}, 1), members: map[string]*member{}, texts: texts}
}

// poke says that the ledger may have moved. It may be called from anywhere and never blocks.
func (s *scope) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// do runs f in the actor. The caller must have entered the scope.
func (s *scope) do(ctx context.Context, f event) error {
	done := make(chan struct{})
	select {
	case s.in <- func(ctx context.Context) { f(ctx); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.r.over:
		return errOver
	}
	<-done // the actor never waits for anything inside a step
	return nil
}

// run is the actor: one step per event, and one whenever time asks for it.
func (s *scope) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	s.refresh(ctx)
	for {
		s.step(ctx)
		if s.idle() && s.r.forget(s) {
			return
		}
		due := s.nextWake()
		timer.Reset(time.Until(due))
		var f event
		select {
		case <-ctx.Done():
			s.abandon()
			return
		case f = <-s.in:
		case <-s.wake:
			f = func(ctx context.Context) {
				s.refresh(ctx)
				s.handRetired()
			}
		case <-timer.C:
			f = func(ctx context.Context) {
				if time.Since(s.lookedAt) >= lookAgain {
					s.refresh(ctx)
				}
			}
		}
		if now := time.Now(); now.After(due) {
			s.overslept(now.Sub(due), now)
		}
		f(ctx)
	}
}

// step does whatever is due, whatever led to it.
func (s *scope) step(ctx context.Context) {
	now := time.Now()
	s.expire(ctx, now)
	s.revalidate(ctx)
	s.stepGeneration(ctx, now)
	s.stepClaim(ctx, now)
	if s.gen == nil {
		s.stepClosed(ctx, now)
	}
	s.tellWaiting()
}

// idle reports that nothing would be lost with the actor.
func (s *scope) idle() bool {
	if s.gen != nil || s.flying > 0 || s.claim != nil || s.seen.found && ending(s.seen.pipeline.Desired) {
		return false
	}
	for _, m := range s.members {
		if m.instance != "" || len(m.waiters) > 0 {
			return false
		}
	}
	return true
}

// nextWake is when step must run next if nothing happens.
func (s *scope) nextWake() time.Time {
	next := time.Now().Add(lookAgain)
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, m := range s.members {
		if m.instance != "" {
			earlier(m.lease)
		}
	}
	if c := s.claim; c != nil && c.again.After(time.Now()) {
		earlier(c.again)
	}
	if g := s.gen; g != nil {
		if g.machine != nil {
			if at, ok := g.machine.NextWake(); ok {
				earlier(s.r.began.Add(time.Duration(at)))
			}
		}
		if !g.again.IsZero() {
			earlier(g.again)
		}
	} else if s.next.notBefore.After(time.Now()) {
		earlier(s.next.notBefore)
	}
	return next
}

// now is the leader's clock as package round wants it.
func (s *scope) now() round.Time { return round.Time(time.Since(s.r.began)) }

// refresh reads the ledger and brings what is kept here in line with it.
func (s *scope) refresh(ctx context.Context) {
	var v seen
	var reopened *ledger.Opened
	s.r.m.c.Log.View(func(l *ledger.Machine) {
		v.pipeline, v.found = l.Pipeline(s.id.Pipeline)
		v.newest, _ = l.Newest(s.id)
		v.namespace, v.incarnate = l.Namespace()
		if v.newest.Open {
			if s.gen == nil || s.gen.number != v.newest.Generation {
				if o, ok := l.Reopened(s.id); ok {
					reopened = &o
				}
			}
			return
		}
		v.halted, v.broken = l.Halted(s.id), l.Broken(s.id)
		if ending(v.pipeline.Desired) {
			sc, _ := l.ScopeHead(s.id)
			e, _ := l.Epoch(s.id, sc.RestorePoint)
			v.drained = e.Final
			unfinished, _ := l.ScopeOutstanding(s.id)
			v.unproven = len(unfinished)
		}
	})
	stopped := !s.lookedAt.IsZero() && v.found && v.pipeline.Desired == ledger.Stopped && s.seen.pipeline.Desired != ledger.Stopped
	s.seen = v
	s.follow(ctx, reopened)
	s.lookedAt = time.Now()
	if stopped {
		s.stopAll()
	}
}

// follow brings the generation kept here in line with the newest of the ledger.
func (s *scope) follow(ctx context.Context, reopened *ledger.Opened) {
	newest := s.seen.newest
	if g := s.gen; g != nil {
		switch {
		case g.number == newest.Generation && newest.Open:
			s.catchUp(ctx, newest.Final)
			return
		case g.number == newest.Generation:
			s.closed(newest.Final, newest.Cause)
		default: // closed, and another opened, since the last look
			final, cause := s.lookUp(g.number)
			s.closed(final, cause)
		}
	}
	if newest.Open {
		s.adopt(ctx, newest, reopened)
	}
}

// lookUp finds where a generation ended: one that decided nothing may not be kept.
func (s *scope) lookUp(g ledger.Generation) (final uint64, cause string) {
	if n := s.seen.newest; n.Generation == g {
		return n.Final, n.Cause
	}
	rec, ok := s.record(g)
	if !ok {
		return 0, "it is over and decided nothing"
	}
	return rec.Final, rec.Cause
}

// record finds what the ledger keeps of a generation.
func (s *scope) record(g ledger.Generation) (rec ledger.GenerationRecord, ok bool) {
	s.r.m.c.Log.View(func(l *ledger.Machine) { rec, ok = l.Generation(s.id, g) })
	return rec, ok
}

// propose sends a command and runs then in the actor when the answer is there. Neither waits.
func (s *scope) propose(ctx context.Context, b ledger.Body, then func(ctx context.Context, res ledger.Result, err error)) {
	s.flying++
	c := ledger.Command{Request: uuid.NewString(), Actor: actor, At: time.Now().UnixMilli(), Body: b}
	s.r.work.Go(func() {
		res, err := s.r.m.c.Log.Propose(ctx, c)
		if err != nil && ctx.Err() == nil {
			s.r.m.c.Logger.WarnContext(ctx, "proposal failed", obs.Scope(s.id.String()), obs.Err(err))
		}
		select {
		case s.in <- func(ctx context.Context) { s.flying--; then(ctx, res, err) }:
		case <-s.r.over:
		}
	})
}

// command is what a member asked for.
func (m *Manager) command(meta *unisinkv1.Meta, b ledger.Body) ledger.Command {
	return ledger.Command{Request: uuid.NewString(), Actor: cmp.Or(meta.GetActor(), actor), At: time.Now().UnixMilli(), Body: b}
}

// abandon ends every stream because the leadership has ended.
func (s *scope) abandon() {
	for _, m := range s.members {
		m.drop(s.r.m.c.NotLeader())
	}
	if s.gen != nil {
		s.gen.answer(math.MaxUint64, decision{over: true})
	}
}

// retire keeps the parts that members may delete until the actor hands them over. Called from
// anywhere.
func (s *scope) retire(parts []ledger.Retired) {
	s.mu.Lock()
	s.retired = append(s.retired, parts...)
	s.mu.Unlock()
	s.poke()
}

// handRetired passes on what may be deleted, to members of the open generation alone: any other
// learns at its restore what is kept.
func (s *scope) handRetired() {
	s.mu.Lock()
	parts := s.retired
	s.retired = nil
	s.mu.Unlock()
	if s.gen == nil {
		return
	}
	byMember := map[string][]string{}
	for _, p := range parts {
		byMember[p.Member] = append(byMember[p.Member], p.Part)
	}
	for _, gm := range s.gen.members {
		if names := byMember[gm.Member]; len(names) > 0 {
			s.order(gm.Member, orderRetired(s.gen.number, names))
		}
	}
}

// order puts an order into the stream of a member of the open generation, if it has one.
func (s *scope) order(name string, o order) {
	if m := s.members[name]; m != nil && m.stream != nil {
		s.push(m.stream, o)
	}
}

func (s *scope) push(a *stream, o order) {
	o.Term = s.r.term
	a.push(o)
}

func (s *scope) event(k eventlog.Kind, e ledger.Epoch, member, text string) {
	s.r.event(eventlog.Event{Kind: k, Scope: s.id, Epoch: e, Member: member, Text: text})
}

// ending reports a desired state that wants a last epoch.
func ending(d ledger.Desired) bool { return d == ledger.Stopping || d == ledger.Draining }
