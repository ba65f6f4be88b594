package round

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// chooser makes the choices of a run; the property test and the test of the guards choose differently.
type chooser interface {
	pick(n int, what string) int // 0 <= result < n
}

// world is one generation: a ledger that enforces its rules, members that follow theirs, a network
// that loses, doubles and reorders, and one machine per leader, the older ones still alive.
type world struct {
	choose chooser
	off    guards
	shape  shape
	now    Time // of the world; every leader's clock has its own offset

	final    uint64 // the ledger
	last     bool
	closed   bool
	finishAt bool // desired state: stopping

	leaders  []*simLeader
	members  []*simMember
	barriers map[uint64]bool // n -> final, as first injected
	faults   bool            // the network and the leaders may fail
	doomed   bool            // a member has said no or lost
	over     bool            // AllProven was given
	err      error           // the first broken promise
	log      []string
	reached  map[string]int // what happened how often
}

// shape is what is fixed for a run.
type shape struct {
	solo, limited, wantFinish, wantLost bool
	pending, leaders                    int
}

// simLeader is a leader, its machine and what is under way to and from it.
type simLeader struct {
	term      uint64
	offset    Time
	m         *Machine
	calls     []call
	proposals []proposal
	applied   []func(now Time) []Order // applied entries that the leader has not heard of yet
	told      bool                     // Closed was given
}

// call is a unary call under way to a leader.
type call struct {
	name string
	do   func(m *Machine, now Time) []Order
}

type proposal struct {
	decide *ledger.Decide // nil: close
	n      uint64
}

// simMember follows the rules of a member.
type simMember struct {
	i        int
	name     string
	source   bool
	leader   *simLeader // attached to
	stream   []streamed
	stamp    Stamp
	newest   uint64
	finalAt  uint64
	voted    uint64
	outcome  uint64
	proven   uint64
	moved    int64
	wantLast bool // solo: the next epoch it begins is the last
	promises map[uint64]promise
}

type promise struct {
	vote Vote // without time left
	end  Time // of the world, when the branch is dropped; 0: never
}

type streamed struct {
	order Order
	stamp Stamp
}

const (
	modelBudget  = 10 * time.Second
	modelTimeout = time.Hour
)

func newWorld(choose chooser, s shape, off guards) *world {
	w := &world{choose: choose, off: off, shape: s, faults: true, barriers: map[uint64]bool{}, reached: map[string]int{}}
	names := []string{"a*", "b*", "win", "sink"}
	if s.solo {
		names = []string{"all*"}
	}
	for i, name := range names {
		name, source := strings.CutSuffix(name, "*")
		w.members = append(w.members, &simMember{i: i, name: name, source: source, promises: map[uint64]promise{}})
	}
	w.elect()
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.log, "\n"))
	}
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%8s ", time.Duration(w.now))+fmt.Sprintf(format, args...))
}

func (w *world) leader() *simLeader { return w.leaders[len(w.leaders)-1] }

func (l *simLeader) clock(now Time) Time { return now + l.offset }

// elect makes a new leader. What the older one had proposed is in the log by then, or never will be.
func (w *world) elect() {
	if len(w.leaders) > 0 {
		for old := w.leader(); len(old.proposals) > 0; {
			w.resolve(old, 0, w.choose.pick(2, "old proposal applies") == 0)
		}
	}
	l := &simLeader{term: uint64(len(w.leaders) + 1), offset: Time(w.choose.pick(1000, "clock")) * Time(time.Second)}
	c := Config{
		Scope: ledger.ScopeID{Pipeline: "orders"}, Generation: 7, Final: w.final, FinalDecided: w.last,
		Interval: 100 * time.Millisecond, PrepareTimeout: modelTimeout, CommitBudget: modelBudget,
		MaxPending: w.shape.pending, Solo: w.shape.solo, Term: l.term,
	}
	for _, p := range w.members {
		c.Members = append(c.Members, Member{Name: p.name, Instance: p.name, Source: p.source})
	}
	l.m = New(c, l.clock(w.now))
	l.m.off = w.off
	w.leaders = append(w.leaders, l)
	w.note("leader %d", l.term)
	w.reached["leader"]++
	if w.closed {
		w.obey(l, l.m.Closed(l.clock(w.now)))
		l.told = true
	}
	if w.finishAt {
		w.obey(l, l.m.Finish(false, l.clock(w.now)))
	}
}

// attach attaches a member to the newest leader.
func (w *world) attach(p *simMember) {
	l := w.leader()
	if p.leader == l {
		w.obey(l, l.m.Detached(p.name, l.clock(w.now)))
	}
	s := Standing{NewestBarrier: p.newest, NewestFinal: p.finalAt != 0 && p.finalAt == p.newest, NewestOutcome: p.outcome, ProvenThrough: p.proven}
	for n := p.outcome + 1; n <= p.voted; n++ {
		s.Votes = append(s.Votes, w.measured(p, n))
	}
	p.leader, p.stream = l, nil
	w.note("attach %s to %d: barrier %d outcome %d proven %d, %d votes", p.name, l.term, p.newest, p.outcome, p.proven, len(s.Votes))
	orders := slices.Clone(l.m.Attached(p.name, s, l.clock(w.now)))
	p.stamp = Stamp{Term: l.term, Clock: l.clock(w.now)}
	w.obey(l, orders)
}

// measured is a promise as it is sent now.
func (w *world) measured(p *simMember, n uint64) Vote {
	v := p.promises[n].vote
	v.Ledger.ProvenThrough = p.proven
	if end := p.promises[n].end; end != 0 {
		v.TimeLeft = []TimeLeft{{Resource: "out", Left: end.Sub(w.now)}}
	}
	v.Stamp = p.stamp
	return v
}

func (w *world) sendVote(p *simMember, n uint64) {
	v := w.measured(p, n)
	w.send(p, fmt.Sprintf("vote %s %d", p.name, n), func(m *Machine, now Time) []Order { return m.Vote(p.name, p.name, v, now) })
}

func (w *world) send(p *simMember, name string, do func(m *Machine, now Time) []Order) {
	if p.leader != nil {
		p.leader.calls = append(p.leader.calls, call{name, do})
	}
}

// obey carries out a leader's orders and checks each of them.
func (w *world) obey(l *simLeader, orders []Order) {
	for _, o := range slices.Clone(orders) {
		w.note("  %d orders %s", l.term, strings.TrimSpace(strings.ReplaceAll(text([]Order{o}), "\n", ";")))
		w.reached[fmt.Sprintf("%T", o)]++
		if l.told {
			w.fail("leader %d gives an order after the close", l.term)
		}
		switch o := o.(type) {
		case SendBarrier:
			w.stream(l, o, o.To)
		case SendCommitted:
			if o.N > w.final {
				w.fail("epoch %d is told committed, the ledger has %d", o.N, w.final)
			}
			w.stream(l, o, o.To)
		case VoteAgain:
			w.stream(l, o, []string{o.Member})
		case ProposeDecide:
			w.checkProposal(o.Decide)
			l.proposals = append(l.proposals, proposal{decide: &o.Decide, n: o.Decide.Epoch.N})
		case ProposeClose:
			// An older leader may be startled by what a newer one has done; its proposals are void.
			if l == w.leader() && !w.doomed && !(w.shape.limited && strings.Contains(o.Cause, "would expire")) {
				w.fail("closed for no good reason: %s", o.Cause)
			}
			l.proposals = append(l.proposals, proposal{})
		case AllProven:
			w.checkAllProven()
		}
	}
}

func (w *world) stream(l *simLeader, o Order, to []string) {
	for _, p := range w.members {
		if slices.Contains(to, p.name) && p.leader == l {
			p.stream = append(p.stream, streamed{o, Stamp{Term: l.term, Clock: l.clock(w.now)}})
		}
	}
}

func (w *world) checkProposal(d ledger.Decide) {
	for _, v := range d.Votes {
		for _, p := range w.members {
			if end := p.promises[d.Epoch.N].end; p.name == v.Member && end != 0 && end.Sub(w.now) <= modelBudget {
				w.fail("epoch %d is proposed when %s keeps its branch for %s only", d.Epoch.N, p.name, end.Sub(w.now))
			}
		}
	}
}

func (w *world) checkAllProven() {
	w.over = true
	for _, p := range w.members {
		if !w.last || p.proven != w.final {
			w.fail("all is called proven, but %s is at %d of %d", p.name, p.proven, w.final)
		}
	}
}

// resolve is the log's answer to a proposal.
func (w *world) resolve(l *simLeader, k int, applies bool) {
	p := l.proposals[k]
	l.proposals = slices.Delete(l.proposals, k, k+1)
	isClose := p.decide == nil
	if !applies || l != w.leader() {
		w.note("dropped of %d: close %v %d", l.term, isClose, p.n)
		w.unanswered(l, p)
		return
	}
	switch {
	case isClose:
		w.note("applied: close at %d", w.final)
		w.closed = true
		w.reached["closed"]++
		l.applied = append(l.applied, func(now Time) []Order {
			l.told = true
			return l.m.Closed(now)
		})
	case w.closed || w.last || p.n != w.final+1:
		w.note("refused: decide %d", p.n)
		w.reached["refused"]++
		w.unanswered(l, p)
	default:
		w.decide(l, p)
		if w.faults && w.choose.pick(4, "answer lost") == 0 {
			w.unanswered(l, p)
		}
	}
}

func (w *world) unanswered(l *simLeader, p proposal) {
	if p.decide == nil {
		w.obey(l, l.m.CloseFailed(l.clock(w.now)))
		return
	}
	w.obey(l, l.m.ProposalFailed(p.n, true, l.clock(w.now)))
}

func (w *world) decide(l *simLeader, p proposal) {
	w.note("applied: decide %d", p.n)
	d := *p.decide
	if len(d.Votes) != len(w.members) {
		w.fail("epoch %d is decided with %d of %d votes", p.n, len(d.Votes), len(w.members))
		return
	}
	for i, member := range w.members {
		promised, ok := member.promises[p.n]
		if !ok || d.Votes[i].Member != member.name || !sameVote(d.Votes[i], promised.vote.Ledger) {
			w.fail("epoch %d is decided with a vote that %s has not given", p.n, member.name)
		}
	}
	if d.Final != w.barriers[p.n] {
		w.fail("epoch %d is decided with final=%v, the barrier said %v", p.n, d.Final, w.barriers[p.n])
	}
	w.final, w.last = p.n, d.Final
	w.reached["decided"]++
	if d.Final {
		w.reached["last"]++
	}
	if open := l.m.epoch(p.n); open != nil && !open.ours {
		w.reached["taken over and decided"]++
	}
	l.applied = append(l.applied, func(now Time) []Order { return l.m.Decided(p.n, d.Final, now) })
}
