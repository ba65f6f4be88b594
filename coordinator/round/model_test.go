package round

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// world is one generation: a ledger that enforces its rules, members that follow theirs, a network
// that loses, doubles and reorders, and one machine per leader, the older ones still alive.
type world struct {
	off   guards
	shape shape
	now   Time // of the world; every leader's clock has its own offset

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
	quiet    bool            // keep no log
	log      []string
	reached  map[string]int // what happened how often
}

// shape is what is fixed for a run.
type shape struct {
	solo, limited, wantFinish, wantLost bool
	pending, leaders                    int
	interval                            time.Duration
}

// simLeader is a leader, its machine and what is under way to and from it.
type simLeader struct {
	term      uint64
	offset    Time
	m         *Machine
	calls     []call
	proposals []proposal
	applied   []entry // that the leader has not heard of yet
	told      bool    // Closed was given
}

// call is a unary call under way to a leader.
type call struct {
	member string
	kind   callKind
	vote   Vote
	n      uint64
}

type callKind uint8

const (
	callVote callKind = iota
	callWork
	callProven
)

func (c call) String() string {
	switch c.kind {
	case callVote:
		return fmt.Sprintf("%s votes %s for %d", c.member, c.vote.Kind, c.vote.N)
	case callWork:
		return c.member + " has work"
	case callProven:
		return fmt.Sprintf("%s has proven %d", c.member, c.n)
	}
	return "?"
}

// entry is an applied entry of the log; n 0 is the close.
type entry struct {
	n     uint64
	final bool
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
	covered  int64 // of it, by barriers
	wantLast bool  // solo: the next epoch it begins is the last
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

func newWorld(names []string, s shape, off guards) *world {
	w := &world{off: off, shape: s, faults: true, barriers: map[uint64]bool{}, reached: map[string]int{}}
	for i, name := range names {
		name, source := strings.CutSuffix(name, "*")
		w.members = append(w.members, &simMember{i: i, name: name, source: source, promises: map[uint64]promise{}})
	}
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.log, "\n"))
	}
}

func (w *world) note(format string, args ...any) {
	if !w.quiet {
		w.log = append(w.log, fmt.Sprintf("%8s ", time.Duration(w.now))+fmt.Sprintf(format, args...))
	}
}

func (w *world) leader() *simLeader { return w.leaders[len(w.leaders)-1] }

func (l *simLeader) clock(now Time) Time { return now + l.offset }

// elect makes a new leader, whose clock is off by offset. What the older one had proposed is in the
// log by then, or never will be.
func (w *world) elect(offset Time, applies func() bool) {
	if len(w.leaders) > 0 {
		for old := w.leader(); len(old.proposals) > 0 && w.err == nil; {
			w.resolve(old, 0, applies(), false)
		}
		w.leader().proposals = nil // whatever it proposes again goes nowhere
	}
	l := &simLeader{term: uint64(len(w.leaders) + 1), offset: offset}
	c := Config{
		Scope: ledger.ScopeID{Pipeline: "orders"}, Generation: 7, Final: w.final, FinalDecided: w.last,
		Interval: w.shape.interval, PrepareTimeout: modelTimeout, CommitBudget: modelBudget,
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
	w.send(p, call{member: p.name, kind: callVote, vote: w.measured(p, n)})
}

func (w *world) send(p *simMember, c call) {
	if p.leader != nil {
		p.leader.calls = append(p.leader.calls, c)
	}
}

// deliver hands a call over; keep leaves it on its way to arrive once more.
func (w *world) deliver(l *simLeader, k int, keep bool) {
	c := l.calls[k]
	if !keep {
		l.calls = slices.Delete(l.calls, k, k+1)
	}
	w.note("%s, to %d", c, l.term)
	now := l.clock(w.now)
	switch c.kind {
	case callVote:
		w.obey(l, l.m.Vote(c.member, c.member, c.vote, now))
	case callWork:
		w.obey(l, l.m.Work(c.member, true, false, now))
	case callProven:
		w.obey(l, l.m.Proven(c.member, c.n, now))
	}
}

// detach ends a member's stream.
func (w *world) detach(p *simMember) {
	w.note("stream of %s ends", p.name)
	l := p.leader
	p.leader, p.stream = nil, nil
	w.obey(l, l.m.Detached(p.name, l.clock(w.now)))
}

func (w *world) finish() {
	w.note("finish")
	w.finishAt = true
	l := w.leader()
	w.obey(l, l.m.Finish(false, l.clock(w.now)))
}

// lose lets a member say that its undecided work is gone.
func (w *world) lose(p *simMember) {
	w.doomed = true
	w.send(p, call{member: p.name, kind: callVote, vote: Vote{N: p.newest, Kind: Lost, Reason: "gone"}})
}

// hear tells a leader the next applied entry.
func (w *world) hear(l *simLeader) {
	e := l.applied[0]
	l.applied = l.applied[1:]
	if e.n == 0 {
		l.told = true
		w.obey(l, l.m.Closed(l.clock(w.now)))
		return
	}
	w.obey(l, l.m.Decided(e.n, e.final, l.clock(w.now)))
}

// obey carries out a leader's orders and checks each of them.
func (w *world) obey(l *simLeader, orders []Order) {
	for _, o := range slices.Clone(orders) {
		if !w.quiet {
			w.note("  %d orders %s", l.term, strings.TrimSpace(strings.ReplaceAll(text([]Order{o}), "\n", ";")))
			w.reached[fmt.Sprintf("%T", o)]++
		}
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
			due := w.doomed || w.shape.limited && strings.Contains(o.Cause, "would expire")
			if l == w.leader() && !due {
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

// resolve is the log's answer to a proposal; the answer may be lost on its way back.
func (w *world) resolve(l *simLeader, k int, applies, answerLost bool) {
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
		l.applied = append(l.applied, entry{})
	case w.closed || w.last || p.n != w.final+1:
		w.note("refused: decide %d", p.n)
		w.reached["refused"]++
		w.unanswered(l, p)
	default:
		w.decide(l, p)
		if answerLost {
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
	l.applied = append(l.applied, entry{p.n, d.Final})
}
