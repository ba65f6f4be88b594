package fold

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
)

// Aggregate is what a field of a result holds.
type Aggregate string

// The aggregates that can be recomputed.
const (
	Count          Aggregate = "count"
	Sum            Aggregate = "sum"
	Min            Aggregate = "min"
	Max            Aggregate = "max"
	Avg            Aggregate = "avg"
	Distinct       Aggregate = "distinct"
	ApproxDistinct Aggregate = "approx_distinct"
	Quantile       Aggregate = "quantile"
	First          Aggregate = "first"
	Last           Aggregate = "last"
	TopK           Aggregate = "top_k"
)

// Fold is an aggregate with its settings.
type Fold struct {
	Kind Aggregate
	K    int     // of TopK
	Q    float64 // of Quantile, from 0 to 1
	// Error is what the aggregate states of itself: of ApproxDistinct the relative standard error, six of
	// which are let pass, of Quantile the relative error of the value.
	Error float64
	// Limit of different values that Distinct and TopK take for one key and window; 0: there is none.
	Limit int
	// Partial: it takes the records only that have a value, see [Absent].
	Partial bool
}

// Absent is a value that a fold leaves out.
type Absent struct{}

// Refused is a value that a fold cannot take, and why.
type Refused struct{ Why string }

// Piece is what one record adds to its window.
type Piece struct {
	Split  int
	At     int64 // event time, Unix milliseconds
	Seq    int64 // grows within a split
	Origin string
	Values []any // by the index of the folds
}

// acc accumulates one fold. It knows nothing of order but what a Piece says.
type acc interface {
	add(p *Piece, v any)
	// merge takes over another of the same kind.
	merge(o acc)
	// differs says how a result is not what it must be, or "". Is may come from JSON: then its numbers
	// are json.Number.
	differs(is any) string
	// value is what must be there, where that is one value; ok false: it is not known exactly.
	value() (v any, ok bool)
}

// Accepts says why a fold cannot take a value, which makes its record bad. Null is no value; NaN and the
// infinities are no numbers.
func (f Fold) Accepts(v any) error {
	switch x := v.(type) {
	case Absent:
		return nil
	case Refused:
		return errors.New(x.Why)
	}
	switch f.Kind {
	case Count:
		return nil
	case Sum, Avg, Quantile, Min, Max:
		return isNumber(v)
	case Distinct, ApproxDistinct, First, Last, TopK:
		if f, is := v.(float64); is {
			return isNumber(f)
		}
		if v == nil {
			return fmt.Errorf("there is no value")
		}
		return nil
	}
	return fmt.Errorf("the aggregate %q can't be recomputed", f.Kind)
}

func isNumber(v any) error {
	switch x := v.(type) {
	case int64, *big.Rat:
		return nil
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%v is no number", x)
		}
		return nil
	case nil:
		return fmt.Errorf("there is no value")
	}
	return fmt.Errorf("%v is no number", v)
}

// Check refuses settings that make no sense.
func (f Fold) Check() error {
	switch f.Kind {
	case Count, Sum, Min, Max, Avg, Distinct, First, Last:
		return nil
	case ApproxDistinct:
		if f.Error <= 0 {
			return fmt.Errorf("aggregate %q without its error", f.Kind)
		}
		return nil
	case Quantile:
		if f.Q < 0 || f.Q > 1 || f.Error <= 0 {
			return fmt.Errorf("aggregate %q at %v with error %v", f.Kind, f.Q, f.Error)
		}
		return nil
	case TopK:
		if f.K < 1 {
			return fmt.Errorf("aggregate %q of %d", f.Kind, f.K)
		}
		return nil
	}
	return fmt.Errorf("the aggregate %q can't be recomputed", f.Kind)
}

func (f Fold) empty() acc {
	switch f.Kind {
	case Count:
		return &counted{}
	case Sum:
		return &summed{}
	case Avg:
		return &averaged{}
	case Min:
		return &extreme{sign: -1}
	case Max:
		return &extreme{sign: 1}
	case Distinct, ApproxDistinct:
		return &set{stated: f.Error, limit: f.Limit, seen: map[string]struct{}{}}
	case Quantile:
		return &ranked{q: f.Q, stated: f.Error}
	case First:
		return &edge{sign: -1}
	case Last:
		return &edge{sign: 1}
	case TopK:
		return &top{k: f.K, limit: f.Limit, counts: map[string]*tally{}}
	}
	panic("verify: an aggregate that was not checked: " + string(f.Kind))
}

// Total is the folds of a window and how many records went into them.
type Total struct {
	N    int
	accs []acc
}

// New is a total of no records, of folds that were checked.
func New(folds []Fold) Total {
	t := Total{accs: make([]acc, len(folds))}
	for i, f := range folds {
		t.accs[i] = f.empty()
	}
	return t
}

// Add takes a record in, whose values were accepted.
func (t *Total) Add(p *Piece) {
	t.N++
	for i, a := range t.accs {
		var v any
		if i < len(p.Values) {
			v = p.Values[i]
		}
		if _, left := v.(Absent); !left {
			a.add(p, v)
		}
	}
}

// Merge takes another total of the same folds in.
func (t *Total) Merge(o *Total) {
	t.N += o.N
	for i, a := range t.accs {
		a.merge(o.accs[i])
	}
}

// With is a total of t and more; t stays as it is.
func (t *Total) With(folds []Fold, more ...*Piece) *Total {
	out := New(folds)
	out.Merge(t)
	for _, p := range more {
		out.Add(p)
	}
	return &out
}

// Differs says how a result of one fold is not what it must be, or "". Numbers of is may be json.Number.
func (t *Total) Differs(fold int, is any) string { return t.accs[fold].differs(is) }

// Value is what one fold must come to; false: there is no one right value.
func (t *Total) Value(fold int) (any, bool) { return t.accs[fold].value() }

// Refuses reports whether records may have been refused by an aggregate, depending on their order.
func (t *Total) Refuses() bool {
	return slices.ContainsFunc(t.accs, func(a acc) bool {
		r, may := a.(interface{ refuses() bool })
		return may && r.refuses()
	})
}

// counted counts records.
type counted struct{ n int64 }

func (c *counted) add(*Piece, any)    { c.n++ }
func (c *counted) merge(o acc)        { c.n += o.(*counted).n }
func (c *counted) value() (any, bool) { return c.n, true }
func (c *counted) differs(is any) string {
	return unlike(is, c.n)
}

// summed adds up: integers exactly and within 64 bits, decimals exactly, floats within what rounding in
// any order can make of them.
type summed struct {
	n      int64
	whole  big.Int
	exact  *big.Rat // of decimals; nil: none came
	float  float64
	abs    float64 // sum of the magnitudes
	floats bool
}

func (s *summed) add(_ *Piece, v any) {
	s.n++
	switch x := v.(type) {
	case int64:
		s.whole.Add(&s.whole, big.NewInt(x))
		s.abs += math.Abs(float64(x))
	case float64:
		s.floats = true
		s.float += x
		s.abs += math.Abs(x)
	case *big.Rat:
		if s.exact == nil {
			s.exact = new(big.Rat)
		}
		s.exact.Add(s.exact, x)
		f, _ := x.Float64()
		s.abs += math.Abs(f)
	}
}

func (s *summed) merge(other acc) {
	o := other.(*summed)
	s.n += o.n
	s.whole.Add(&s.whole, &o.whole)
	if o.exact != nil {
		if s.exact == nil {
			s.exact = new(big.Rat)
		}
		s.exact.Add(s.exact, o.exact)
	}
	s.float += o.float
	s.abs += o.abs
	s.floats = s.floats || o.floats
}

// refuses: it depends on the order of the records, which is not known, whether some of them were refused: a
// sum may have passed 64 bits on the way, and decimals and floats cannot be added up.
func (s *summed) refuses() bool {
	switch {
	case s.exact == nil:
		return !s.floats && s.abs >= math.MaxInt64
	case s.floats:
		return true
	}
	// Decimals have 38 digits; with these it cannot come to more.
	return s.abs >= 1e17 || s.exact.Denom().BitLen() > 66
}

func (s *summed) value() (any, bool) {
	switch {
	case s.n == 0:
		return nil, true
	case s.floats:
		return s.real(), true
	case s.exact != nil:
		return s.rational(), false // of its digits some may be zeros
	case s.whole.IsInt64():
		return s.whole.Int64(), true
	}
	return nil, false
}

func (s *summed) rational() *big.Rat {
	r := new(big.Rat).SetInt(&s.whole)
	if s.exact != nil {
		r.Add(r, s.exact)
	}
	return r
}

func (s *summed) real() float64 {
	f, _ := s.rational().Float64()
	return f + s.float
}

// slack is how far sums of floats may be apart that were added up in different orders.
func (s *summed) slack() float64 { return float64(s.n+1) * 0x1p-51 * s.abs }

func (s *summed) differs(is any) string {
	if s.n == 0 {
		return empty(is)
	}
	if s.floats {
		return far(is, s.real(), s.slack())
	}
	if s.exact == nil && !s.whole.IsInt64() {
		return fmt.Sprintf("is %v, and must be %v, which is more than 64 bits hold", is, &s.whole)
	}
	return unlike(is, s.rational())
}

// averaged is a mean.
type averaged struct{ summed }

func (a *averaged) merge(o acc) { a.summed.merge(&o.(*averaged).summed) }

func (a *averaged) mean() float64 { return a.real() / float64(a.n) }

func (a *averaged) value() (any, bool) {
	if a.n == 0 {
		return nil, true
	}
	return a.mean(), a.exact == nil
}

func (a *averaged) differs(is any) string {
	if a.n == 0 {
		return empty(is)
	}
	if text, decimal := is.(string); decimal && !a.floats {
		return roundedMean(text, new(big.Rat).Quo(a.rational(), new(big.Rat).SetInt64(a.n)))
	}
	return far(is, a.mean(), a.slack()/float64(a.n)+math.Abs(a.mean())*0x1p-50)
}

// extreme is the least (sign -1) or largest (sign 1) value.
type extreme struct {
	sign           int
	best           any
	exact, inexact bool // decimals came, and floats
}

// refuses: decimals and floats are not compared, and which come first is not known.
func (e *extreme) refuses() bool { return e.exact && e.inexact }

func (e *extreme) add(_ *Piece, v any) {
	switch v.(type) {
	case *big.Rat:
		e.exact = true
	case float64:
		e.inexact = true
	}
	if e.best == nil || order(v, e.best)*e.sign > 0 {
		e.best = v
	}
}

func (e *extreme) merge(o acc) {
	x := o.(*extreme)
	if x.best != nil {
		e.add(nil, x.best)
	}
	e.exact, e.inexact = e.exact || x.exact, e.inexact || x.inexact
}

func (e *extreme) value() (any, bool) { return e.best, !e.exact }

func (e *extreme) differs(is any) string {
	if e.best == nil {
		return empty(is)
	}
	return unlike(is, e.best)
}
