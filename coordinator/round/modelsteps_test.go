package round

import (
	"fmt"
	"slices"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// run lets the world go wrong for some steps, then right; its err is the first broken promise.
func run(choose chooser, off guards, steps int) *world {
	w := newWorld(choose, shape{
		solo: choose.pick(4, "solo") == 0, limited: choose.pick(3, "limited") == 0,
		wantFinish: choose.pick(2, "finish") == 0, wantLost: choose.pick(6, "lost") == 0,
		pending: 1 + choose.pick(3, "pending"), leaders: 1 + choose.pick(5, "leaders"),
	}, off)
	for range steps {
		if w.err == nil {
			w.step()
		}
	}
	w.faults = false
	w.note("no more faults")
	w.recover()
	return w
}

// step does one thing.
func (w *world) step() {
	l := w.leaders[len(w.leaders)-1-w.choose.pick(min(2, len(w.leaders)), "leader")]
	p := w.members[w.choose.pick(len(w.members), "member")]
	switch w.choose.pick(16, "step") {
	case 0:
		w.now = w.now.Add(time.Duration(w.choose.pick(8, "time")) * 100 * time.Millisecond)
		w.obey(l, l.m.Tick(l.clock(w.now)))
	case 1:
		w.attach(p)
	case 2, 3, 4:
		w.deliverCall(l)
	case 5, 6, 7:
		w.deliverOrder(p)
	case 8, 9:
		if len(l.proposals) > 0 {
			w.resolve(l, w.choose.pick(len(l.proposals), "proposal"), w.choose.pick(3, "applies") > 0)
		}
	case 10:
		w.hear(l)
	case 11, 12:
		w.act(p)
	case 13:
		w.prove(p)
	case 14:
		if n := p.voted; n > p.outcome {
			w.sendVote(p, n-uint64(w.choose.pick(int(n-p.outcome), "repeat")))
		}
	case 15:
		w.mishap(p)
	}
}

func (w *world) mishap(p *simMember) {
	l := w.leader()
	switch w.choose.pick(4, "mishap") {
	case 0:
		if len(w.leaders) < w.shape.leaders {
			w.elect()
		}
	case 1:
		if p.leader == l {
			w.note("stream of %s ends", p.name)
			p.leader, p.stream = nil, nil
			w.obey(l, l.m.Detached(p.name, l.clock(w.now)))
		}
	case 2:
		if w.shape.wantFinish && !w.finishAt {
			w.note("finish")
			w.finishAt = true
			w.obey(l, l.m.Finish(false, l.clock(w.now)))
		}
	case 3:
		if w.shape.wantLost && !w.doomed && p.newest > p.outcome {
			w.doomed = true
			w.send(p, "lost "+p.name, func(m *Machine, now Time) []Order {
				return m.Vote(p.name, p.name, Vote{N: p.newest, Kind: Lost, Reason: "gone"}, now)
			})
		}
	}
}

// hear tells a leader the next applied entry.
func (w *world) hear(l *simLeader) {
	if len(l.applied) == 0 {
		return
	}
	next := l.applied[0]
	l.applied = l.applied[1:]
	w.obey(l, next(l.clock(w.now)))
}

func (w *world) deliverCall(l *simLeader) {
	if len(l.calls) == 0 {
		return
	}
	k := w.choose.pick(len(l.calls), "call")
	c := l.calls[k]
	fate := w.choose.pick(6, "fate")
	if !w.faults || fate != 0 { // else it is delivered again later
		l.calls = slices.Delete(l.calls, k, k+1)
	}
	if w.faults && fate == 1 {
		w.note("lost: %s", c.name)
		return
	}
	w.note("%s at %d", c.name, l.term)
	w.obey(l, c.do(l.m, l.clock(w.now)))
}

func (w *world) deliverOrder(p *simMember) {
	if len(p.stream) == 0 {
		return
	}
	s := p.stream[0]
	p.stream = p.stream[1:]
	p.stamp = s.stamp
	switch o := s.order.(type) {
	case SendBarrier:
		w.barrier(p, o)
	case SendCommitted:
		p.outcome = max(p.outcome, o.N)
	case VoteAgain:
		for n := p.outcome + 1; n <= p.voted; n++ {
			w.sendVote(p, n)
		}
	case ProposeDecide, ProposeClose, AllProven:
	}
}

// barrier reaches a source.
func (w *world) barrier(p *simMember, o SendBarrier) {
	switch {
	case w.shape.solo:
		p.wantLast = p.finalAt == 0
	case o.N <= p.newest:
	case o.N > p.newest+1:
		w.fail("%s is ordered barrier %d, it has seen %d", p.name, o.N, p.newest)
	default:
		w.inject(p, o.N, o.Final)
	}
}

func (w *world) inject(p *simMember, n uint64, final bool) {
	if known, ok := w.barriers[n]; ok && known != final {
		w.fail("barrier %d is ordered final and not final", n)
	}
	if p.finalAt != 0 {
		w.fail("%s gets barrier %d after the final one", p.name, n)
	}
	w.barriers[n] = final
	for _, other := range w.members {
		if n > other.proven+uint64(w.shape.pending) {
			w.fail("barrier %d is ordered, but %s has proven %d", n, other.name, other.proven)
		}
	}
	p.newest = n
	if final {
		p.finalAt = n
	}
	w.note("%s has barrier %d final %v", p.name, n, final)
}

// act lets a member do what is next for it.
func (w *world) act(p *simMember) {
	switch {
	case p.voted < p.newest:
		w.vote(p)
	case p.source && w.choose.pick(2, "moves") == 0:
		p.moved++
		w.send(p, "work "+p.name, func(m *Machine, now Time) []Order { return m.Work(p.name, true, false, now) })
	case w.shape.solo:
		if p.finalAt == 0 && p.newest < p.proven+uint64(w.shape.pending) && (p.moved > 0 || p.wantLast) {
			w.inject(p, p.newest+1, p.wantLast)
		}
	case !p.source:
		n := p.newest + 1
		for _, s := range w.members {
			if s.source && s.newest < n {
				return
			}
		}
		w.inject(p, n, w.barriers[n])
	}
}

func (w *world) vote(p *simMember) {
	n := p.voted + 1
	v := Vote{N: n, Kind: Yes, Final: w.barriers[n], Ledger: ledger.Vote{Member: p.name, Instance: p.name}}
	promised := promise{vote: v}
	if p.source {
		promised.vote.Kind = ReadOnly
		promised.vote.Ledger.Positions = []ledger.Position{{Resource: "in", Offset: p.moved}}
	} else {
		promised.vote.Ledger.Branches = []ledger.Prepared{{Resource: "out", Handle: ledger.Handle{Name: fmt.Sprintf("%s.%d", p.name, n)}}}
	}
	if w.shape.limited && w.choose.pick(3, "has a deadline") > 0 {
		promised.end = w.now.Add(modelBudget + time.Duration(1+w.choose.pick(60, "deadline"))*100*time.Millisecond)
	}
	p.promises[n], p.voted = promised, n
	w.sendVote(p, n)
}

// prove commits what is decided, and says so once.
func (w *world) prove(p *simMember) {
	if p.proven >= p.outcome {
		return
	}
	p.proven = p.outcome
	through := p.proven
	w.send(p, fmt.Sprintf("proven %s %d", p.name, through), func(m *Machine, now Time) []Order { return m.Proven(p.name, through, now) })
}

// recover lets everything go well and demands progress: an epoch, or the end when one is wanted.
func (w *world) recover() {
	if w.shape.wantFinish && w.choose.pick(2, "new leader") == 0 {
		w.elect()
	}
	for _, p := range w.members {
		w.attach(p)
	}
	goal := w.final + 2
	for range 200 {
		if w.err != nil || w.over || w.closed && w.leader().told || !w.finishAt && w.final >= goal {
			return
		}
		w.fair()
	}
	w.fail("no progress: final %d, goal %d, finishing %v, closed %v, doomed %v: %s", w.final, goal, w.finishAt, w.closed, w.doomed, show(w.leader().m))
}

// fair gives everyone a turn.
func (w *world) fair() {
	l := w.leader()
	for len(l.calls) > 0 {
		w.deliverCall(l)
	}
	for len(l.proposals) > 0 {
		w.resolve(l, 0, true)
	}
	for len(l.applied) > 0 {
		w.hear(l)
	}
	for _, p := range w.members {
		for len(p.stream) > 0 {
			w.deliverOrder(p)
		}
		w.act(p)
		w.prove(p)
		if p.source && !w.finishAt {
			w.send(p, "work "+p.name, func(m *Machine, now Time) []Order { return m.Work(p.name, true, false, now) })
		}
		p.moved++
	}
	w.now = w.now.Add(100 * time.Millisecond)
	if at, ok := l.m.NextWake(); ok && at <= l.clock(w.now) {
		w.obey(l, l.m.Tick(l.clock(w.now)))
	}
}
