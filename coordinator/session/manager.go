package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Log is the replicated log as this package needs it.
type Log interface {
	// Propose returns when the command was applied or refused here; every error says either that
	// it was not proposed, or that its outcome is unknown (Config.Unknown tells which).
	Propose(ctx context.Context, c ledger.Command) (ledger.Result, error)
	// Barrier returns when everything committed before the call is applied here.
	Barrier(ctx context.Context) error
	// View reads the state of this node; read must not keep the machine.
	View(read func(*ledger.Machine))
}

// Config of a manager.
type Config struct {
	Log    Log
	Logger *slog.Logger // default: nothing is logged
	// Events hears what is not in the log: attachments and losses, starts, barriers, votes, sweeps.
	// It must not block. May be nil.
	Events func(eventlog.Event)
	// NotLeader makes the status error that a node answers while it does not lead, with the hint
	// to who does. Default: no hint.
	NotLeader func() error
	// Unknown reports whether a proposal's error leaves its outcome unknown. Default: always.
	Unknown func(error) bool
	// TooLarge reports a command that does not fit into the log, nor ever will. Default: never.
	TooLarge func(error) bool
}

// Manager serves unisink.v1.Session. It is made once and leads when it is told to.
type Manager struct {
	unisinkv1.UnimplementedSessionServer
	c Config

	mu    sync.Mutex // guards reign; held for memory only
	reign *reign     // nil while this node does not lead
}

// New makes a manager that does not lead.
func New(c Config) *Manager {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Events == nil {
		c.Events = func(eventlog.Event) {}
	}
	if c.NotLeader == nil {
		c.NotLeader = func() error {
			return notLeader("this node does not lead; ask another one")
		}
	}
	if c.Unknown == nil {
		c.Unknown = func(error) bool { return true }
	}
	if c.TooLarge == nil {
		c.TooLarge = func(error) bool { return false }
	}
	return &Manager{c: c}
}

// Lead serves members while this node leads the term. It returns when ctx ends and everything it
// started has ended; streams that are still there end with NOT_LEADER.
func (m *Manager) Lead(ctx context.Context, term uint64) error {
	if err := m.catchUp(ctx); err != nil {
		return nil //nolint:nilerr // the leadership ended before it began to serve
	}
	r := &reign{
		m: m, term: term, began: time.Now(), over: ctx.Done(),
		spawn: make(chan *scope), rescan: make(chan struct{}, 1), scopes: map[ledger.ScopeID]*scope{},
		texts: map[ledger.ScopeID]map[string]map[string]string{},
	}
	m.set(r)
	m.c.Logger.InfoContext(ctx, "serving members", obs.Term(term))
	r.rescan <- struct{}{}
	r.run(ctx)
	m.set(nil)
	r.work.Wait()
	return nil
}

// catchUp returns when this node knows everything that earlier leaders wrote; an error means that
// ctx ended first.
func (m *Manager) catchUp(ctx context.Context) error {
	for {
		err := m.c.Log.Barrier(ctx)
		if err == nil {
			return nil
		}
		m.c.Logger.WarnContext(ctx, "log not caught up; trying again", obs.Err(err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryDelay):
		}
	}
}

func (m *Manager) set(r *reign) {
	m.mu.Lock()
	m.reign = r
	m.mu.Unlock()
}

// current is the reign of this node; the error is what a node that does not lead answers.
func (m *Manager) current() (*reign, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reign == nil {
		return nil, m.c.NotLeader()
	}
	return m.reign, nil
}

// Effects hears what applied entries changed. It never blocks, and effects may be lost.
func (m *Manager) Effects(effects []ledger.Effect) {
	m.mu.Lock()
	r := m.reign
	m.mu.Unlock()
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range effects {
		if e.Kind == ledger.EffectPipeline {
			for id, s := range r.scopes {
				if id.Pipeline == e.Pipeline {
					s.poke()
				}
			}
			select {
			case r.rescan <- struct{}{}:
			default: // one is due already
			}
		} else if s := r.scopes[e.Scope]; s != nil {
			s.poke()
		}
	}
}

// Retired tells members which of their state parts they may delete. It never blocks: who is not
// there now, or is not told, learns it at the next restore.
func (m *Manager) Retired(parts []ledger.Retired) {
	m.mu.Lock()
	r := m.reign
	m.mu.Unlock()
	if r == nil {
		return
	}
	byScope := map[ledger.ScopeID][]ledger.Retired{}
	for _, p := range parts {
		byScope[p.Scope] = append(byScope[p.Scope], p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, parts := range byScope {
		if s := r.scopes[id]; s != nil {
			s.retire(parts)
		}
	}
}

// reign is one term of leadership.
type reign struct {
	m     *Manager
	term  uint64
	began time.Time       // zero of the leader's clock
	over  <-chan struct{} // closed when the leadership ends
	// spawn hands new scopes to run, which starts their goroutines.
	spawn chan *scope
	// rescan asks for a look at which scopes need an actor though nobody is attached.
	rescan chan struct{}
	work   sync.WaitGroup // every actor and every proposal on its way

	mu     sync.Mutex // guards scopes, each scope's users, and texts; held for memory only
	scopes map[ledger.ScopeID]*scope
	// texts say what the resources of members are whose actor has ended: a name stays readable when its process is gone.
	texts map[ledger.ScopeID]map[string]map[string]string
}

// run starts actors until the leadership ends.
func (r *reign) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-r.spawn:
			r.work.Go(func() { s.run(ctx) })
		case <-r.rescan:
			for _, id := range r.needed() {
				s, isNew := r.enter(id)
				if isNew {
					r.work.Go(func() { s.run(ctx) })
				}
				r.exit(s)
			}
		}
	}
}

// needed lists the scopes that have something to do though no member may be there.
func (r *reign) needed() []ledger.ScopeID {
	var out []ledger.ScopeID
	known := map[ledger.ScopeID]bool{}
	r.m.c.Log.View(func(l *ledger.Machine) {
		for _, id := range l.Scopes() {
			known[id] = true
			g, _ := l.Newest(id)
			p, found := l.Pipeline(id.Pipeline)
			if g.Open || found && ending(p.Desired) {
				out = append(out, id)
			}
		}
	})
	r.mu.Lock()
	maps.DeleteFunc(r.texts, func(id ledger.ScopeID, _ map[string]map[string]string) bool { return !known[id] })
	r.mu.Unlock()
	return out
}

// enter finds or makes a scope and keeps its actor from ending until exit.
func (r *reign) enter(id ledger.ScopeID) (s *scope, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s = r.scopes[id]
	if s == nil {
		s = newScope(r, id, r.texts[id]) // which is the actor's from here on
		delete(r.texts, id)
		r.scopes[id] = s
		isNew = true
	}
	s.users++
	return s, isNew
}

func (r *reign) exit(s *scope) {
	r.mu.Lock()
	s.users--
	r.mu.Unlock()
	s.poke()
}

// forget removes a scope that nobody uses; the actor ends if it answers true.
func (r *reign) forget(s *scope) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.users > 0 {
		return false
	}
	delete(r.scopes, s.id)
	if s.seen.found && len(s.texts) > 0 {
		maps.DeleteFunc(s.texts, func(member string, _ map[string]string) bool {
			return !slices.ContainsFunc(s.seen.pipeline.Members, func(d ledger.MemberSpec) bool { return d.Name == member })
		})
		r.texts[s.id] = s.texts
	}
	return true
}

// visit is enter for callers from outside: the actor is running when it returns.
func (r *reign) visit(id ledger.ScopeID) (*scope, error) {
	s, isNew := r.enter(id)
	if !isNew {
		return s, nil
	}
	select {
	case r.spawn <- s:
		return s, nil
	case <-r.over:
		return nil, r.m.c.NotLeader()
	}
}

// errOver says that the leadership ended while a call was under way.
var errOver = errors.New("leadership ended")

// ask runs f in the actor of a scope and waits for it. The error is a status.
func (m *Manager) ask(ctx context.Context, id ledger.ScopeID, f func(context.Context, *scope) error) error {
	r, err := m.current()
	if err != nil {
		return err
	}
	if err := ledger.CheckName("pipeline", id.Pipeline, ledger.MaxPipeline); err != nil {
		return invalid("%v", err)
	}
	s, err := r.visit(id)
	if err != nil {
		return err
	}
	defer r.exit(s)
	var answer error
	err = s.do(ctx, func(ctx context.Context) { answer = f(ctx, s) })
	switch {
	case errors.Is(err, errOver):
		return m.c.NotLeader()
	case err != nil:
		return ctxStatus(err)
	}
	return answer
}

func (r *reign) event(e eventlog.Event) {
	e.At, e.Term = time.Now(), r.term
	r.m.c.Events(e)
}

// stamp is now on this leader's clock.
func (r *reign) stamp() *unisinkv1.Stamp {
	return &unisinkv1.Stamp{Term: r.term, ClockNs: uint64(time.Since(r.began))}
}

func notLeader(format string, args ...any) error {
	return refuse(grpcerr.NotLeader, map[string]string{grpcerr.MetaLeader: ""}, "%s", fmt.Sprintf(format, args...))
}
