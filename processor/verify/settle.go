package verify

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/processor/verify/fold"
)

func moment(at int64) string {
	if at == math.MinInt64 {
		return "nothing"
	}
	return time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05.000Z")
}

// settleCopies says, once the whole source was read, which records of the sides are explained by none.
func (e *evaluator) settleCopies() {
	if e.late != nil {
		for _, x := range e.late.byForm {
			e.choose(x)
		}
	}
	e.closeSessions()
	for _, d := range e.deadIn {
		e.settleDead(d)
	}
	for _, s := range append(slices.Clone(e.passed), e.late, e.dead) {
		if s == nil {
			continue
		}
		for origin, x := range s.byOrigin {
			e.leftOver(s, origin, x)
		}
		for _, x := range s.byForm {
			e.leftOver(s, x.place, x)
		}
	}
}

// leftOver judges what a sink holds more often than records account for.
func (e *evaluator) leftOver(s *side, key string, x *held) {
	switch {
	case x.taken >= x.n:
	case x.taken > 0:
		e.report.Doubled = append(e.report.Doubled, Case{Sink: s.c.Name, Key: key, Why: fmt.Sprintf("it is there %s, and must be %s, first at %s", plural.Of(x.n, "time"), plural.Of(x.taken, "time"), x.place)})
	case x.why != "":
		e.report.Different = append(e.report.Different, Case{Sink: s.c.Name, Key: key, Why: x.why + ", and is there, at " + x.place})
	default:
		e.report.Different = append(e.report.Different, Case{Sink: s.c.Name, Key: key, Why: "no record explains it, at " + x.place})
	}
}

// choose decides which records are the ones that a late output holds without saying where they stood.
func (e *evaluator) choose(x *held) {
	n := min(x.n-x.taken, len(x.cands))
	x.taken += n
	same := !slices.ContainsFunc(x.cands, func(a *arrival) bool { return !alike(a, x.cands[0]) })
	for i, a := range x.cands {
		switch {
		case n == len(x.cands) || same && i < n:
			e.isLate(a)
		case same:
			e.unlate(a)
		default:
			if i < n {
				e.count(a, &e.report.Late)
			}
			e.doubt(a, fmt.Sprintf("%d of %d records that look the same in the late output were late, which of them is not known", n, len(x.cands)))
		}
	}
}

// alike: it makes no difference which of the two was late.
func alike(a, b *arrival) bool {
	return a.seen.Key == b.seen.Key && a.seen.At == b.seen.At && a.inCut == b.inCut &&
		slices.EqualFunc(a.seen.Values, b.seen.Values, func(x, y any) bool { return fold.Canonical(x) == fold.Canonical(y) })
}

// unlate places a record that is not in the late output after all.
func (e *evaluator) unlate(a *arrival) {
	if e.p.Window.Kind == Session {
		e.join(a)
		return
	}
	e.place(a, true)
}

// doubt makes what a record may be in unknown.
func (e *evaluator) doubt(a *arrival, why string) {
	if e.p.Window.Kind == Session {
		e.join(a).unsure = why
		return
	}
	p := a.piece()
	for start := floor(a.seen.At, e.every); start+e.size > a.seen.At; start -= e.every {
		e.may(e.at(windowID{start: start, key: a.seen.Key}), p)
	}
}

// settleDead judges a dead letter that was fine by itself: its window must have been full.
func (e *evaluator) settleDead(d *deadPiece) {
	p := d.a.piece()
	for _, w := range e.windowsOf(d.a) {
		if w.total.With(e.p.Folds, p).Refuses() {
			return
		}
	}
	e.report.Different = append(e.report.Different, Case{
		Sink: e.dead.c.Name, Key: d.a.origin, Why: "it is a dead letter, and nothing is wrong with it, at " + d.x.place,
	})
}

// windowsOf are the windows that a record would be in.
func (e *evaluator) windowsOf(a *arrival) (out []*want) {
	if e.p.Window.Kind == Session {
		for id, w := range e.windows {
			if id.key == a.seen.Key && id.start <= a.seen.At+e.gap && a.seen.At <= w.end {
				out = append(out, w)
			}
		}
		return out
	}
	for start := floor(a.seen.At, e.every); start+e.size > a.seen.At; start -= e.every {
		if w := e.windows[windowID{start: start, key: a.seen.Key}]; w != nil {
			out = append(out, w)
		}
	}
	return out
}
