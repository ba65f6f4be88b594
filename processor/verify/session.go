package verify

import (
	"slices"
	"sort"

	"github.com/unisink/unisink/processor/verify/fold"
)

// sessions of one key. In closed ones nothing can come any more; there are some only where the order is known.
type sessions struct {
	open, closed []*cluster // open ones are in order and do not touch
}

// cluster is a run of records of which none is further than the gap from the next.
type cluster struct {
	first, last int64
	total       fold.Total
	times       []int64
	// back are records that were older than what their split had come to.
	back   []setback
	unsure string
}

type setback struct{ at, mark int64 }

// inSession takes a record that goes into a session, unless it came too late.
func (e *evaluator) inSession(a *arrival) {
	end := a.seen.At + e.gap
	over := e.overFor(end, a.mark)
	if e.ordered() {
		over = over && !e.touchesOpen(a)
	}
	if over && e.lateAndBad(a) {
		return
	}
	switch {
	case e.late == nil && over && e.ordered():
		e.count(a, &e.report.Late)
	case e.late == nil:
		if c := e.join(a); c != nil && over && !e.loose() {
			c.unsure = mayBeLate
		}
	case over && e.late.has(a.r, a.origin) != nil:
		e.fromLate(a)
	case e.late.byOrigin[a.origin] != nil:
		e.late.take(a.r, a.origin)
		e.onTimeAndLate(a, end)
	case over && e.ordered():
		e.lostLate(a)
	default:
		e.unwanted(a, "was on time for certain", e.late)
		e.join(a)
	}
}

const mayBeLate = "a record of it may have been late"

func (e *evaluator) touchesOpen(a *arrival) bool {
	s := e.sessionsOf(a)
	return slices.ContainsFunc(s.open, func(c *cluster) bool { return e.touches(c, a.seen.At) })
}

func (e *evaluator) touches(c *cluster, at int64) bool {
	return c.first <= at+e.gap && at <= c.last+e.gap
}

// sessionsOf are the sessions of a record's key. Where the order is known, those that have fired when the
// record comes are closed.
func (e *evaluator) sessionsOf(a *arrival) *sessions {
	s := e.sessions[a.seen.Key]
	if s == nil {
		s = &sessions{}
		e.sessions[a.seen.Key] = s
	}
	if e.ordered() {
		n := 0
		for n < len(s.open) && e.fires(s.open[n].last+e.gap) <= a.mark {
			n++
		}
		s.closed = append(s.closed, s.open[:n]...)
		s.open = s.open[n:]
	}
	return s
}

// join adds a record to its session, which may join others. Those behind the cut are left out: sessions
// are judged at the cut alone. It returns nil then.
func (e *evaluator) join(a *arrival) *cluster {
	if !a.inCut {
		return nil
	}
	s := e.sessionsOf(a)
	p := a.piece()
	c := &cluster{first: p.At, last: p.At, total: fold.New(e.p.Folds), times: []int64{p.At}}
	c.total.Add(p)
	if p.At < a.mark && !e.ordered() {
		c.back = append(c.back, setback{p.At, a.mark})
	}
	from := sort.Search(len(s.open), func(i int) bool { return s.open[i].last+e.gap >= p.At })
	to := from
	for ; to < len(s.open) && s.open[to].first <= p.At+e.gap; to++ {
		c = unite(s.open[to], c)
	}
	s.open = slices.Replace(s.open, from, to, c)
	return c
}

// unite makes one cluster of two, in the larger one.
func unite(c, o *cluster) *cluster {
	if len(o.times) > len(c.times) {
		c, o = o, c
	}
	c.first, c.last = min(c.first, o.first), max(c.last, o.last)
	c.total.Merge(&o.total)
	c.times = append(c.times, o.times...)
	c.back = append(c.back, o.back...)
	if c.unsure == "" {
		c.unsure = o.unsure
	}
	return c
}

// closeSessions makes windows of the sessions, and says which of them may have been cut in two by firing
// early: when a record came that joined what was there to a part that may have fired before.
func (e *evaluator) closeSessions() {
	for key, s := range e.sessions {
		for _, c := range append(s.closed, s.open...) {
			if c.unsure == "" && e.mayBeCut(c) {
				c.unsure = "a part of it may have fired before a record came that belongs to it"
			}
			e.windows[windowID{c.first, c.last + e.gap, key}] = &want{end: c.last + e.gap, total: c.total, before: c.total.N, unsure: c.unsure}
			c.times, c.back = nil, nil
		}
	}
}

// mayBeCut: a part that a record touches ends at the record or later, and has fired only if the watermark
// had come to that end, which is the time of one of its records and the gap.
func (e *evaluator) mayBeCut(c *cluster) bool {
	slices.Sort(c.times)
	for _, b := range c.back {
		i := sort.Search(len(c.times), func(i int) bool { return c.times[i] >= b.at-e.gap })
		if i < len(c.times) && e.fires(c.times[i]+e.gap) <= b.mark {
			return true
		}
	}
	return false
}

// around finds the session of a key that a window lies in.
func (e *evaluator) around(id windowID) (windowID, *want) {
	s := e.sessions[id.key]
	if s == nil {
		return windowID{}, nil
	}
	for _, c := range s.open {
		if c.first <= id.start && id.start <= c.last {
			at := windowID{c.first, c.last + e.gap, id.key}
			return at, e.windows[at]
		}
	}
	return windowID{}, nil
}

// complete finds the start or the end that a result does not tell, by the sessions that are expected.
func (e *evaluator) complete(f *Found) {
	s := e.sessions[f.Key]
	if s == nil {
		return
	}
	for _, list := range [2][]*cluster{s.closed, s.open} {
		for _, c := range list {
			switch {
			case f.NoStart && c.last+e.gap == f.End:
				f.Start = c.first
			case f.NoEnd && c.first == f.Start:
				f.End = c.last + e.gap
			}
		}
	}
}
