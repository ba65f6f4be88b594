package fold

import (
	"errors"
	"fmt"
	"math"

	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/number"
	"github.com/unisink/unisink/processor/spec/expr"
)

// numberOf is a value as a number; exact: it is to be read as a decimal.
func numberOf(v *expr.Value, exact bool) (number.Number, error) {
	switch v.Kind {
	case expr.Int:
		if exact {
			return number.OfDecimal(number.WholeDecimal(v.Int())), nil
		}
		return number.OfInt(v.Int()), nil
	case expr.Double:
		if exact {
			return number.Number{}, fmt.Errorf("%s is a double, which is not exact; a decimal is written as a string or an integer", v.Describe())
		}
		return number.OfFloat(v.Double()), nil
	case expr.Uint:
		if v.Uint() > math.MaxInt64 {
			return number.Number{}, fmt.Errorf("%s does not fit into an integer of 64 bits", v.Describe())
		}
		return number.OfInt(int64(v.Uint())), nil //nolint:gosec // bounded above
	case expr.String:
		if exact {
			d, err := number.ParseDecimal(v.Data)
			return number.OfDecimal(d), err
		}
	case expr.Missing, expr.Null, expr.Bool, expr.Bytes, expr.JSON, expr.Other, expr.Broken:
	}
	return number.Number{}, fmt.Errorf("%s is no number", v.Describe())
}

// setNumber is a number as a result; none is null.
func setNumber(out *expr.Value, n number.Number) {
	if i, ok := n.Int(); ok {
		out.SetInt(i)
	} else if f, ok := n.Float(); ok {
		out.SetDouble(f)
	} else if d, ok := n.Decimal(); ok {
		out.SetData(expr.String, d.Append(nil))
	} else {
		out.SetNull()
	}
}

// one hands a number to an aggregate, which asks for it by this.
type one struct{ n number.Number }

func ask(o *one) number.Number { return o.n }

// checked is an aggregate that can tell beforehand whether a record can be added.
type checked[T, A any] interface {
	aggregate.Of[T, A]
	aggregate.Checker[T, A]
}

// checkedOf is an aggregate of our own package as one that checks, which they all do.
func checkedOf[T, A any](a aggregate.Of[T, A]) checked[T, A] { return a.(checked[T, A]) }

// numeric is an aggregate of numbers, integers standing in the cell until another number comes.
type numeric[A any] struct {
	of    checked[one, A]
	exact bool
	// ints adds an integer to a cell that holds only such; not ok: it does not fit.
	ints func(c *cell, v int64) (sum int64, ok bool)
	// open makes the aggregate's own accumulator from a cell of integers.
	open func(n *numeric[A], c *cell) (*A, error)
	// plain is the result of a cell of integers, and full that of the aggregate.
	plain func(c *cell, out *expr.Value)
	full  func(a *A, out *expr.Value)
}

func (n *numeric[A]) name() string { return n.of.Name() }

func (n *numeric[A]) check(c *cell, _ *Row, v *expr.Value) error {
	if v.Kind == expr.Int && c.box == nil && !n.exact {
		if _, ok := n.ints(c, v.Int()); !ok {
			return fmt.Errorf("%d and %d more: %w", c.sum, v.Int(), aggregate.ErrOverflow)
		}
		return nil
	}
	o, err := n.one(v)
	if err != nil {
		return err
	}
	a, err := n.boxed(c)
	if err != nil {
		return err
	}
	return n.of.Check(a, &o)
}

func (n *numeric[A]) one(v *expr.Value) (one, error) {
	num, err := numberOf(v, n.exact)
	return one{num}, err
}

// boxed is the aggregate's accumulator, which the cell does not have yet if it holds integers.
func (n *numeric[A]) boxed(c *cell) (*A, error) {
	if a, ok := c.box.(*A); ok {
		return a, nil
	}
	return n.open(n, c)
}

func (n *numeric[A]) add(c *cell, _ *Row, v *expr.Value) error {
	if v.Kind == expr.Int && c.box == nil && !n.exact {
		c.sum, _ = n.ints(c, v.Int()) // it was checked
		c.count++
		return nil
	}
	o, err := n.one(v)
	if err != nil {
		return err
	}
	a, err := n.boxed(c)
	if err != nil {
		return err
	}
	if err := n.of.Add(a, &o); err != nil {
		return err
	}
	c.box = a
	return nil
}

func (n *numeric[A]) merge(c, other *cell) error {
	if other.box == nil && other.count == 0 {
		return nil
	}
	a, err := n.boxed(c)
	if err != nil {
		return err
	}
	b, err := n.boxed(other)
	if err != nil {
		return err
	}
	if err := n.of.Merge(a, b); err != nil {
		return err
	}
	c.box = a
	return nil
}

func (n *numeric[A]) encode(dst []byte, c *cell) []byte {
	a, err := n.boxed(c)
	if err != nil { // integers that are in an accumulator were added to it one by one
		panic(fmt.Sprintf("fold: %d integers with the sum %d cannot be encoded: %s", c.count, c.sum, err))
	}
	return n.of.Encode(dst, a)
}

func (n *numeric[A]) decode(src []byte, c *cell) error {
	a := new(A)
	if err := n.of.Decode(src, a); err != nil {
		return err
	}
	*c = cell{box: a}
	return nil
}

func (n *numeric[A]) value(c *cell, out *expr.Value) error {
	switch a, ok := c.box.(*A); {
	case ok:
		n.full(a, out)
	case c.count == 0:
		out.SetNull()
	default:
		n.plain(c, out)
	}
	return nil
}

// once opens an accumulator with the one integer that stands for all.
func once[A any](n *numeric[A], c *cell) (*A, error) {
	a := new(A)
	n.of.Init(a)
	if c.count == 0 {
		return a, nil
	}
	return a, n.of.Add(a, &one{number.OfInt(c.sum)})
}

func addInts(c *cell, v int64) (int64, bool) {
	s := c.sum + v
	return s, (s > c.sum) == (v > 0) || v == 0
}

func plainSum(c *cell, out *expr.Value) { out.SetInt(c.sum) }

func sum(exact bool) column {
	return &numeric[aggregate.NumberSum]{
		of: checkedOf(aggregate.SumNumber(ask)), exact: exact, ints: addInts, open: once[aggregate.NumberSum], plain: plainSum,
		full: func(a *aggregate.NumberSum, out *expr.Value) { setNumber(out, a.Value()) },
	}
}

func extreme(exact bool, of aggregate.Of[one, aggregate.NumberExtreme], better func(a, b int64) int64) column {
	return &numeric[aggregate.NumberExtreme]{
		of: checkedOf(of), exact: exact, open: once[aggregate.NumberExtreme], plain: plainSum,
		ints: func(c *cell, v int64) (int64, bool) {
			if c.count == 0 {
				return v, true
			}
			return better(c.sum, v), true
		},
		full: func(a *aggregate.NumberExtreme, out *expr.Value) { setNumber(out, a.Value) },
	}
}

func least(exact bool) column {
	return extreme(exact, aggregate.MinNumber(ask), func(a, b int64) int64 { return min(a, b) })
}

func largest(exact bool) column {
	return extreme(exact, aggregate.MaxNumber(ask), func(a, b int64) int64 { return max(a, b) })
}

func average(exact bool) column {
	adder := aggregate.SumNumber(ask)
	return &numeric[aggregate.NumberMean]{
		of: checkedOf(aggregate.AvgNumber(ask)), exact: exact, ints: addInts,
		open: func(_ *numeric[aggregate.NumberMean], c *cell) (*aggregate.NumberMean, error) {
			a := &aggregate.NumberMean{Count: c.count}
			adder.Init(&a.Sum)
			if c.count == 0 {
				return a, nil
			}
			return a, adder.Add(&a.Sum, &one{number.OfInt(c.sum)})
		},
		plain: func(c *cell, out *expr.Value) { out.SetDouble(aggregate.Mean{Sum: c.sum, Count: c.count}.Avg()) },
		full:  func(a *aggregate.NumberMean, out *expr.Value) { setNumber(out, a.Avg()) },
	}
}

// counter counts records.
type counter struct{}

var errCount = errors.New("a count does not fit into 64 bits")

func (counter) name() string { return "count" }

func (counter) check(c *cell, _ *Row, _ *expr.Value) error {
	if c.count == math.MaxInt64 {
		return errCount
	}
	return nil
}

func (counter) add(c *cell, _ *Row, _ *expr.Value) error {
	c.count++
	return nil
}

func (counter) merge(c, other *cell) error {
	if c.count > math.MaxInt64-other.count {
		return errCount
	}
	c.count += other.count
	return nil
}

var counting = aggregate.Count[one]()

func (counter) encode(dst []byte, c *cell) []byte { return counting.Encode(dst, &c.count) }

func (counter) decode(src []byte, c *cell) error { return counting.Decode(src, &c.count) }

func (counter) value(c *cell, out *expr.Value) error {
	out.SetInt(c.count)
	return nil
}
