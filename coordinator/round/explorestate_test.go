package round

import (
	"maps"
	"slices"
)

// matters: what an older leader does concerns nobody who is not attached to it.
func (w *world) matters(l *simLeader) bool {
	return l == w.leader() || slices.ContainsFunc(w.members, func(p *simMember) bool { return p.leader == l })
}

// unheard is an epoch for which the newest leader has no vote of p, and none is on its way to it; 0: there is none.
// A member repeats its votes until they are answered.
func (w *world) unheard(p *simMember) uint64 {
	l := w.leader()
	if p.leader != l || l.told {
		return 0
	}
	for n := max(p.outcome, l.m.decided) + 1; n <= p.voted; n++ {
		e := l.m.epoch(n)
		sending := slices.ContainsFunc(l.calls, func(c call) bool { return c.member == p.name && c.kind == callVote && c.vote.N == n })
		if !sending && (e == nil || !e.ballots[p.i].given) && l.m.closing.cause == "" {
			return n
		}
	}
	return 0
}

// untold: p has work since its last barrier that the newest leader does not know of; each renewal tells it.
func (w *world) untold(p *simMember) bool {
	l := w.leader()
	if w.shape.solo || p.leader != l || l.told || p.finalAt != 0 || p.moved <= p.covered || l.m.newest != p.newest || l.m.members[p.i].work {
		return false
	}
	return !slices.ContainsFunc(l.calls, func(c call) bool { return c.member == p.name && c.kind == callWork })
}

func (w *world) clone() *world {
	c := *w
	c.barriers, c.log = maps.Clone(w.barriers), nil
	c.leaders, c.members = make([]*simLeader, len(w.leaders)), make([]*simMember, len(w.members))
	for i, l := range w.leaders {
		n := *l
		n.m = l.m.clone()
		n.calls, n.proposals, n.applied = slices.Clone(l.calls), slices.Clone(l.proposals), slices.Clone(l.applied)
		c.leaders[i] = &n
	}
	for i, p := range w.members {
		n := *p
		n.stream, n.promises = slices.Clone(p.stream), maps.Clone(p.promises)
		if p.leader != nil {
			n.leader = c.leaders[p.leader.term-1]
		}
		c.members[i] = &n
	}
	return &c
}

func (m *Machine) clone() *Machine {
	c := *m
	c.members = slices.Clone(m.members)
	c.open, c.spare, c.out = make([]*epoch, len(m.open)), nil, nil
	for i, e := range m.open {
		n := *e
		n.ballots = slices.Clone(e.ballots)
		c.open[i] = &n
	}
	return &c
}

// writer collects a state's key.
type writer []byte

func (b *writer) n(numbers ...uint64) {
	for _, n := range numbers {
		*b = append(*b, byte(n), byte(n>>8)) // small cases: no number comes near this
	}
}

func (b *writer) is(flags ...bool) {
	bits := byte(0)
	for i, f := range flags {
		if f {
			bits |= 1 << i
		}
	}
	*b = append(*b, bits)
}

// key writes down what tells a state from others: all but clocks, handles and what is for people.
func key(w *world, left budget) string {
	b := make(writer, 0, 256)
	for _, n := range left {
		b = append(b, n)
	}
	b.n(w.final)
	b.is(w.last, w.closed, w.finishAt, w.doomed, w.over)
	for _, l := range w.leaders {
		b.is(w.matters(l), l.told)
		if w.matters(l) {
			l.m.key(&b, l.clock(w.now))
			l.key(&b, w)
		}
	}
	for _, p := range w.members {
		p.key(&b)
	}
	return string(b)
}

func (l *simLeader) key(b *writer, w *world) {
	ways := make([]uint64, 0, 16) // unordered
	for _, c := range l.calls {
		i := slices.IndexFunc(w.members, func(p *simMember) bool { return p.name == c.member })
		ways = append(ways, uint64(i)<<12|uint64(c.kind)<<8|uint64(c.vote.Kind)<<4|c.n+c.vote.N)
	}
	for _, p := range l.proposals {
		ways = append(ways, 1<<15|p.n)
	}
	slices.Sort(ways)
	b.n(uint64(len(ways)))
	b.n(ways...)
	b.n(uint64(len(l.applied)))
	for _, e := range l.applied {
		b.n(e.n)
		b.is(e.final)
	}
}

func (p *simMember) key(b *writer) {
	term := uint64(0)
	if p.leader != nil {
		term = p.leader.term
	}
	b.n(term, p.newest, p.finalAt, p.voted, p.outcome, p.proven, uint64(len(p.stream)))
	b.is(p.moved > p.covered, p.wantLast)
	for _, s := range p.stream {
		switch o := s.order.(type) {
		case SendBarrier:
			b.n(o.N)
			b.is(true, o.Final)
		case SendCommitted:
			b.n(o.N)
			b.is(false)
		case ProposeDecide, ProposeClose, VoteAgain, AllProven:
			b.is(true, true, true)
		}
	}
}

func (m *Machine) key(b *writer, now Time) {
	b.n(m.decided, m.newest, m.finalAt)
	b.is(m.lastDecided, m.finish.wanted, m.finish.told, m.closing.cause != "", m.closing.retryAt > now, m.closing.done)
	for i := range m.members {
		who := &m.members[i]
		b.n(who.barrier, who.proven)
		b.is(who.attached, who.work)
	}
	for _, e := range m.open {
		b.is(e.final, e.ours, e.told, e.proposed, e.retryAt > now)
		for i := range e.ballots {
			b.is(e.ballots[i].given, e.ballots[i].counted)
		}
	}
}
