package fold

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/spec/expr"
)

const (
	// DefaultLimit is how many different values distinct and top_k keep for one key and window.
	DefaultLimit = 100_000
	// DefaultError is the relative standard error of approx_distinct, and the relative error of quantile.
	DefaultError = 0.01
)

// asked is how a value reaches an aggregate of package aggregate.
type asked struct {
	at    int64
	bytes []byte
	float float64
}

func appendAsked(dst []byte, a *asked) []byte { return append(dst, a.bytes...) }

// kept is an aggregate whose accumulator is always in the box.
type kept[A any] struct {
	of  checked[asked, A]
	set func(a *asked, r *Row, v *expr.Value) error
	out func(a *A, out *expr.Value) error
	// last is the value that was checked last, which is the one that is added next.
	last asked
}

// Validate names a setting that cannot be.
func (k *kept[A]) Validate() error {
	if v, ok := k.of.(aggregate.Validator); ok {
		return v.Validate()
	}
	return nil
}

func (k *kept[A]) name() string { return k.of.Name() }

func (k *kept[A]) box(c *cell) *A {
	a, ok := c.box.(*A)
	if !ok {
		a = new(A)
		k.of.Init(a)
	}
	return a
}

func (k *kept[A]) check(c *cell, r *Row, v *expr.Value) error {
	if err := k.set(&k.last, r, v); err != nil {
		return err
	}
	return k.of.Check(k.box(c), &k.last)
}

func (k *kept[A]) add(c *cell, _ *Row, _ *expr.Value) error {
	a := k.box(c)
	if err := k.of.Add(a, &k.last); err != nil {
		return err
	}
	c.box = a
	return nil
}

func (k *kept[A]) merge(c, other *cell) error {
	a := k.box(c)
	if err := k.of.Merge(a, k.box(other)); err != nil {
		return err
	}
	c.box = a
	return nil
}

func (k *kept[A]) encode(dst []byte, c *cell) []byte { return k.of.Encode(dst, k.box(c)) }

func (k *kept[A]) decode(src []byte, c *cell) error {
	a := new(A)
	if err := k.of.Decode(src, a); err != nil {
		return err
	}
	c.box = a
	return nil
}

func (k *kept[A]) value(c *cell, out *expr.Value) error { return k.out(k.box(c), out) }

var errBytes = errors.New("bytes are no value of JSON; use string(...) or base64.encode(...)")

// asItIs keeps a value as JSON.
func asItIs(a *asked, r *Row, v *expr.Value) (err error) {
	a.at = r.At
	switch v.Kind {
	case expr.Bytes:
		return errBytes
	case expr.Null:
		return errors.New("null is no value to keep")
	case expr.Double:
		if f := v.Double(); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s: %w", v.Describe(), aggregate.ErrNotFinite)
		}
	case expr.Missing, expr.Bool, expr.Int, expr.Uint, expr.String, expr.JSON, expr.Other, expr.Broken:
	}
	a.bytes, err = v.AppendJSON(a.bytes[:0])
	return err
}

// byWorth keeps a value as JSON, a whole double as the integer that it equals.
func byWorth(a *asked, r *Row, v *expr.Value) error {
	if v.Kind == expr.Double {
		if f := v.Double(); f == math.Trunc(f) && f >= math.MinInt64 && f < math.MaxInt64 {
			a.at, a.bytes = r.At, strconv.AppendInt(a.bytes[:0], int64(f), 10)
			return nil
		}
	}
	return asItIs(a, r, v)
}

func distinct(limit int) column {
	return &kept[aggregate.Set]{
		of: checkedOf(aggregate.Distinct(limit, appendAsked)), set: byWorth,
		out: func(a *aggregate.Set, out *expr.Value) error {
			out.SetInt(int64(a.Len()))
			return nil
		},
	}
}

func approxDistinct(relative float64) column {
	return &kept[aggregate.Approx]{
		of: checkedOf(aggregate.ApproxDistinct(relative, appendAsked)), set: byWorth,
		out: func(a *aggregate.Approx, out *expr.Value) error {
			out.SetInt(a.Count())
			return nil
		},
	}
}

func topK(k, limit int) column {
	var top []aggregate.Counted
	return &kept[aggregate.Tally]{
		of: checkedOf(aggregate.TopK(limit, appendAsked)), set: byWorth,
		out: func(a *aggregate.Tally, out *expr.Value) error {
			top = a.AppendTop(top[:0], k)
			text := []byte{'['}
			for i, t := range top {
				if i > 0 {
					text = append(text, ',')
				}
				text = append(append(text, `{"value":`...), t.Value...)
				text = append(strconv.AppendInt(append(text, `,"count":`...), t.Count, 10), '}')
			}
			out.SetData(expr.JSON, append(text, ']'))
			return nil
		},
	}
}

func moment(of aggregate.Of[asked, aggregate.Moment]) column {
	return &kept[aggregate.Moment]{
		of: checkedOf(of), set: asItIs,
		out: func(a *aggregate.Moment, out *expr.Value) error {
			if !a.Some {
				out.SetNull()
				return nil
			}
			return out.SetJSON(a.Value)
		},
	}
}

func first() column {
	return moment(aggregate.First(func(a *asked) int64 { return a.at }, appendAsked))
}

func last() column {
	return moment(aggregate.Last(func(a *asked) int64 { return a.at }, appendAsked))
}

func quantile(q, relative float64) column {
	return &kept[aggregate.Distribution]{
		of: checkedOf(aggregate.Quantiles(relative, func(a *asked) float64 { return a.float })),
		set: func(a *asked, _ *Row, v *expr.Value) error {
			n, err := numberOf(v, false)
			if err != nil {
				return err
			}
			if i, ok := n.Int(); ok {
				a.float = float64(i)
			} else {
				a.float, _ = n.Float()
			}
			return nil
		},
		out: func(a *aggregate.Distribution, out *expr.Value) error {
			if f, ok := a.Quantile(q); ok {
				out.SetDouble(f)
			} else {
				out.SetNull()
			}
			return nil
		},
	}
}
