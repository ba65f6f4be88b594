package fold

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// set counts different values: exactly, or, with a stated error, within six times that. An estimate is exact
// where there are few.
type set struct {
	stated float64
	limit  int
	seen   map[string]struct{}
}

// refuses: of too many values some were refused, and which is not known.
func (s *set) refuses() bool { return s.limit > 0 && len(s.seen) > s.limit }

const (
	sigmas  = 6
	exactly = 256
)

func (s *set) add(_ *Piece, v any) { s.seen[Canonical(v)] = struct{}{} }

func (s *set) merge(o acc) {
	for k := range o.(*set).seen {
		s.seen[k] = struct{}{}
	}
}

func (s *set) value() (any, bool) { return int64(len(s.seen)), s.stated == 0 }

func (s *set) differs(is any) string {
	n := float64(len(s.seen))
	if s.stated == 0 || len(s.seen) <= exactly {
		return unlike(is, int64(len(s.seen)))
	}
	if why := far(is, n, n*s.stated*sigmas+0.5); why != "" { // half is for rounding
		return fmt.Sprintf("%s within %.2g %%", why, 100*s.stated*sigmas)
	}
	return ""
}

// ranked is a quantile: a value with about q of all below it.
type ranked struct {
	q, stated float64
	values    []float64
	sorted    bool
}

func (r *ranked) add(_ *Piece, v any) {
	x, ok := Rational(v)
	if !ok {
		return // Accepts has refused it
	}
	f, _ := x.Float64()
	r.values, r.sorted = append(r.values, f), false
}

func (r *ranked) merge(o acc) { r.values, r.sorted = append(r.values, o.(*ranked).values...), false }

func (r *ranked) value() (any, bool) { return nil, false }

// differs lets pass what the aggregate promises: a number of the exact one's sign, at most as large in magnitude,
// and less than it by a part of at most the stated error. Exact is the least value that at least the part q
// of all does not exceed.
func (r *ranked) differs(is any) string {
	if len(r.values) == 0 {
		return empty(is)
	}
	if !r.sorted {
		slices.Sort(r.values)
		r.sorted = true
	}
	rank := min(max(int(math.Ceil(r.q*float64(len(r.values)))), 1), len(r.values))
	exact := r.values[rank-1]
	x, ok := Rational(is)
	if !ok {
		return mustBe(is, exact)
	}
	f, _ := x.Float64()
	const rounding = 1e-12
	size, most := math.Abs(f), math.Abs(exact)
	wrongSign := f != 0 && math.Signbit(f) != math.Signbit(exact)
	if wrongSign || size > most*(1+rounding) || size < most*(1-r.stated)*(1-rounding)-0x1p-1022 {
		return fmt.Sprintf("is %v, and must be %v or up to %.3g %% nearer to 0", f, exact, 100*r.stated)
	}
	return ""
}

// edge is the first (sign -1) or last (sign 1) value by event time. Of records of one time that of
// a split's first or last; which of several splits came first is not known, and any may stand there.
type edge struct {
	sign  int
	at    int64
	cands []cand
}

type cand struct {
	split int
	seq   int64
	v     any
}

func (e *edge) add(p *Piece, v any) { e.take(p.At, cand{p.Split, p.Seq, v}) }

func (e *edge) take(at int64, c cand) {
	ahead := (at > e.at && e.sign > 0) || (at < e.at && e.sign < 0)
	switch {
	case len(e.cands) == 0 || ahead:
		e.at, e.cands = at, append(e.cands[:0], c)
	case at == e.at:
		i := slices.IndexFunc(e.cands, func(x cand) bool { return x.split == c.split })
		switch {
		case i < 0:
			e.cands = append(e.cands, c)
		case (c.seq > e.cands[i].seq) == (e.sign > 0):
			e.cands[i] = c
		}
	}
}

func (e *edge) merge(other acc) {
	o := other.(*edge)
	for _, c := range o.cands {
		e.take(o.at, c)
	}
}

func (e *edge) value() (any, bool) {
	switch len(e.cands) {
	case 0:
		return nil, true
	case 1:
		return e.cands[0].v, true
	}
	return nil, false
}

func (e *edge) differs(is any) string {
	if len(e.cands) == 0 {
		return empty(is)
	}
	why := ""
	for _, c := range e.cands {
		if why = unlike(is, c.v); why == "" {
			return ""
		}
	}
	return why
}

// top holds the most frequent values.
type top struct {
	k, limit int
	counts   map[string]*tally
}

func (t *top) refuses() bool { return t.limit > 0 && len(t.counts) > t.limit }

type tally struct {
	v any
	n int64
}

func (t *top) add(_ *Piece, v any) { t.take(v, 1) }

func (t *top) take(v any, n int64) {
	k := Canonical(v)
	if t.counts[k] == nil {
		t.counts[k] = &tally{v: v}
	}
	t.counts[k].n += n
}

func (t *top) merge(o acc) {
	for _, x := range o.(*top).counts {
		t.take(x.v, x.n)
	}
}

func (t *top) value() (any, bool) { return nil, false }

// differs takes a list of values, or of objects with a value and a count, the most frequent first. Of those
// equally frequent any may stand there.
func (t *top) differs(is any) string {
	list, ok := is.([]any)
	if !ok {
		return "is " + shown(is) + ", and must be a list"
	}
	all := make([]*tally, 0, len(t.counts))
	for _, x := range t.counts {
		all = append(all, x)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].n > all[j].n })
	if want := min(t.k, len(all)); len(list) != want {
		return fmt.Sprintf("has %d values, and must have %d", len(list), want)
	}
	seen := map[string]bool{}
	for i, x := range list {
		v, count := x, any(nil)
		if o, is := x.(map[string]any); is {
			v, count = o["value"], o["count"]
		}
		have := t.find(v)
		switch {
		case have == nil || seen[Canonical(have.v)]:
			return fmt.Sprintf("has %s at place %d, which is not there", shown(v), i+1)
		case have.n != all[i].n:
			return fmt.Sprintf("has %s at place %d, which came %d times, and must have one that came %d times", shown(v), i+1, have.n, all[i].n)
		case count != nil && unlike(count, have.n) != "":
			return fmt.Sprintf("counts %s %s times, and must %d times", shown(v), shown(count), have.n)
		}
		seen[Canonical(have.v)] = true
	}
	return ""
}

func (t *top) find(v any) *tally {
	if have := t.counts[Canonical(v)]; have != nil {
		return have
	}
	// A decimal is written as text.
	if text, ok := v.(string); ok {
		if r, ok := ratOf(text); ok {
			return t.counts[Canonical(r)]
		}
	}
	return nil
}
