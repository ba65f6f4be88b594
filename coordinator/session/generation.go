package session

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/round"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// generation is the open generation of a scope.
type generation struct {
	number  ledger.Generation
	members []ledger.MemberInstance
	// opened is what Restore says; nil once something was decided.
	opened *ledger.Opened
	ready  map[string]bool
	// machine runs the rounds; nil until every member is ready.
	machine *round.Machine
	final   uint64 // last decided n
	ending  ledger.Desired
	ended   bool // the last epoch is decided, and proven by every member's word
	// lost says why the generation cannot go on; it is closed in the next step.
	lost    string
	halt    string // the close is to halt the scope
	closing bool
	// again is when a failed proposal of the close, or of the last proofs, is made anew.
	again   time.Time
	waiting map[uint64][]chan<- decision
	// turnedAway counts failed proposals of the next decision.
	turnedAway int
}

// instance of the generation's member of a name; empty if it has none.
func (g *generation) instance(name string) string {
	for _, gm := range g.members {
		if gm.Member == name {
			return gm.Instance
		}
	}
	return ""
}

// has reports whether the holder of the name is the generation's.
func (g *generation) has(m *member) bool { return m.instance != "" && g.instance(m.name) == m.instance }

func (g *generation) allReady() bool {
	return !slices.ContainsFunc(g.members, func(gm ledger.MemberInstance) bool { return !g.ready[gm.Member] })
}

// lose notes the first reason why the generation cannot go on.
func (g *generation) lose(format string, args ...any) {
	if g.lost == "" {
		g.lost = fmt.Sprintf(format, args...)
	}
}

// adopt begins to drive an open generation: one that this leader opened, or, when it begins to
// lead, one of its predecessor.
func (s *scope) adopt(ctx context.Context, rec ledger.GenerationRecord, opened *ledger.Opened) {
	g := &generation{
		number: rec.Generation, members: rec.Members, opened: opened, final: rec.Final,
		ready: map[string]bool{}, waiting: map[uint64][]chan<- decision{},
	}
	s.gen = g
	for _, gm := range g.members {
		m := s.member(gm.Member)
		if m.instance == "" && s.lookedAt.IsZero() {
			// The process may live: all streams were gone with the old leader. It has a lease from now.
			m.instance, m.lease = gm.Instance, time.Now().Add(s.leaseTime())
		}
		switch {
		case !g.has(m):
			g.lose("member %s (instance %s) was gone before generation %d was open", gm.Member, gm.Instance, g.number)
		case m.stream != nil:
			s.place(ctx, m, nil)
		}
	}
}

// place brings a holder that has just attached, or whose generation has just opened, to where
// the scope is. st is what it said when it attached, or nil.
func (s *scope) place(ctx context.Context, m *member, st *unisinkv1.Standing) {
	g := s.gen
	if g == nil || !g.has(m) {
		s.rest(m)
		return
	}
	inside := m.generation == g.number
	switch {
	case inside && m.phase == unisinkv1.Phase_PHASE_RESTORING: // it will say Ready
	case inside && m.phase == unisinkv1.Phase_PHASE_READY:
		g.ready[m.name] = true
		if g.machine != nil {
			s.begin(ctx, g, m)
		}
	case inside && m.phase == unisinkv1.Phase_PHASE_RUNNING:
		g.ready[m.name] = true
		s.start(ctx, g)
		told := standing(g, m, st)
		for _, v := range st.GetVotes() {
			if wire.Epoch(v.GetEpoch()).Generation == g.number && s.foreign(ctx, g, m.name, m.instance, v) != "" {
				return
			}
		}
		for _, v := range told.Votes {
			s.event(eventlog.Vote, ledger.Epoch{Generation: g.number, N: v.N}, m.name, v.Kind.String()+", repeated")
		}
		s.obey(ctx, g, g.machine.Attached(m.name, told, s.now()))
	case !inside && g.opened != nil && g.machine == nil:
		s.push(m.stream, orderRestore(g.opened, m.name))
		m.generation, m.phase = g.number, unisinkv1.Phase_PHASE_RESTORING
	default:
		g.lose("member %s (instance %s) attached in generation %d, %s, and can no longer be part of generation %d",
			m.name, m.instance, m.generation, phaseName(m.phase), g.number)
	}
}

// rest lets a holder wait for the next generation, after telling it how its last one ended.
func (s *scope) rest(m *member) {
	newest := s.seen.newest
	past := inGeneration(m.phase)
	switch {
	case past && (m.generation > newest.Generation || m.generation == newest.Generation && newest.Open):
		why := fmt.Sprintf("member %s (instance %s) says it is in generation %d of scope %s, of which it is no member", m.name, m.instance, m.generation, s.id)
		s.push(m.stream, orderFenced(why))
		m.stream.end(fenced("%s; end this process", why))
		s.lose(m, why)
		return
	case past:
		final, cause := s.lookUp(m.generation)
		s.push(m.stream, orderClose(m.generation, final, cause))
	}
	m.phase = unisinkv1.Phase_PHASE_IDLE
	if m.generation != 0 && s.seen.pipeline.Desired == ledger.Stopped {
		s.stop(m)
	}
}

// stepGeneration does what is due in the open generation.
func (s *scope) stepGeneration(ctx context.Context, now time.Time) {
	g := s.gen
	if g == nil {
		return
	}
	for _, gm := range g.members {
		if m := s.members[gm.Member]; m == nil || m.instance != gm.Instance {
			g.lose("member %s (instance %s) is gone", gm.Member, gm.Instance)
		}
	}
	if g.lost != "" && !g.closing {
		s.close(ctx, g, g.lost)
	}
	if g.machine == nil {
		if g.closing && !g.again.IsZero() && !now.Before(g.again) {
			s.proposeClose(ctx, g, g.lost, g.halt)
		}
		if g.closing || !g.allReady() {
			return
		}
		s.start(ctx, g)
	}
	if d := s.seen.pipeline.Desired; ending(d) && g.ending != d {
		g.ending = d
		s.obey(ctx, g, g.machine.Finish(d == ledger.Draining, s.now()))
	}
	s.obey(ctx, g, g.machine.Tick(s.now()))
	if g.ended && !g.closing {
		s.settle(ctx, g, now)
	}
}

// start makes the machine, once every member is known to be ready, and lets those begin that wait.
func (s *scope) start(ctx context.Context, g *generation) {
	if g.machine != nil {
		return
	}
	set := s.seen.pipeline.Settings
	c := round.Config{
		Scope: s.id, Generation: g.number, Final: g.final, FinalDecided: s.wasFinal(g.number, g.final), Term: s.r.term,
		Interval: ms(set.EpochInterval), PrepareTimeout: ms(set.PrepareTimeout), CommitBudget: ms(set.CommitBudget),
		MaxPending: int(set.MaxPending), Solo: len(g.members) == 1,
	}
	for _, gm := range g.members {
		source := slices.ContainsFunc(s.seen.pipeline.Members, func(d ledger.MemberSpec) bool { return d.Name == gm.Member && d.Source })
		c.Members = append(c.Members, round.Member{Name: gm.Member, Instance: gm.Instance, Source: source})
	}
	g.machine = round.New(c, s.now())
	s.event(eventlog.GenerationStarted, ledger.Epoch{Generation: g.number, N: g.final}, "", "every member is ready")
	if d := s.seen.pipeline.Desired; ending(d) {
		g.ending = d
		s.obey(ctx, g, g.machine.Finish(d == ledger.Draining, s.now()))
	}
	for _, gm := range g.members {
		g.ready[gm.Member] = true
		if m := s.members[gm.Member]; m != nil && g.has(m) && m.generation == g.number && m.phase == unisinkv1.Phase_PHASE_READY {
			s.begin(ctx, g, m)
		}
	}
}

// begin tells a ready member to start. One without a stream is told when it attaches.
func (s *scope) begin(ctx context.Context, g *generation, m *member) {
	if m.stream == nil {
		return
	}
	s.push(m.stream, orderStart(g.number, s.seen.pipeline, len(g.members)))
	m.phase = unisinkv1.Phase_PHASE_RUNNING
	s.obey(ctx, g, g.machine.Attached(m.name, round.Standing{}, s.now()))
}

// wasFinal reports whether an epoch is its generation's last.
func (s *scope) wasFinal(g ledger.Generation, n uint64) (final bool) {
	if n == 0 {
		return false
	}
	s.r.m.c.Log.View(func(l *ledger.Machine) {
		e, _ := l.Epoch(s.id, ledger.Epoch{Generation: g, N: n})
		final = e.Final
	})
	return final
}

// close demands the end of the generation. No member hears of it before the entry is applied.
func (s *scope) close(ctx context.Context, g *generation, cause string) {
	s.closeHalting(ctx, g, cause, "")
}

// closeHalting also halts the scope, with that reason if it is not empty.
func (s *scope) closeHalting(ctx context.Context, g *generation, cause, halt string) {
	if g.machine != nil {
		s.obey(ctx, g, g.machine.Close(cause, halt, s.now()))
		return
	}
	s.proposeClose(ctx, g, cause, halt)
}

func (s *scope) proposeClose(ctx context.Context, g *generation, cause, halt string) {
	g.closing, g.halt, g.again = true, halt, time.Time{}
	g.lose("%s", cause)
	if mutant.On("session/close-applied-first") {
		s.tellClosed(g, g.final, cause)
	}
	b := ledger.CloseGeneration{Scope: s.id, Generation: g.number, Cause: cause, Halt: halt}
	s.propose(ctx, b, func(ctx context.Context, res ledger.Result, err error) {
		s.refresh(ctx) // an applied close ends g there
		if s.gen != g {
			return
		}
		if err == nil {
			s.r.m.c.Logger.ErrorContext(ctx, "close refused; trying again",
				obs.Scope(s.id.String()), obs.Gen(uint64(g.number)), obs.Cause(res.Text))
		}
		if g.machine != nil {
			s.obey(ctx, g, g.machine.CloseFailed(s.now()))
		} else {
			g.again = time.Now().Add(retryDelay)
		}
	})
}

// closed is called when the close is applied, whoever proposed it: only now members may roll back.
// The order carries final, so that a survivor that has not heard of the last decision commits
// through it (P17).
func (s *scope) closed(final uint64, cause string) {
	g := s.gen
	s.gen = nil
	s.next.notBefore, s.next.why = time.Time{}, ""
	if g.machine != nil {
		g.machine.Closed(s.now())
	}
	g.answer(final, decision{outcome: ledger.Committed})
	g.answer(math.MaxUint64, decision{outcome: ledger.Aborted, final: final, cause: cause})
	s.tellClosed(g, final, cause)
}

// tellClosed tells the members how their generation has ended.
func (s *scope) tellClosed(g *generation, final uint64, cause string) {
	for _, gm := range g.members {
		m := s.members[gm.Member]
		if m == nil || !g.has(m) || m.stream == nil {
			continue // told when it attaches
		}
		s.push(m.stream, orderClose(g.number, final, cause))
		m.phase = unisinkv1.Phase_PHASE_IDLE
	}
}

func phaseName(p unisinkv1.Phase) string {
	switch p {
	case unisinkv1.Phase_PHASE_RESTORING:
		return "restoring"
	case unisinkv1.Phase_PHASE_READY:
		return "ready"
	case unisinkv1.Phase_PHASE_RUNNING:
		return "running"
	case unisinkv1.Phase_PHASE_UNSPECIFIED, unisinkv1.Phase_PHASE_IDLE:
	}
	return "idle"
}
