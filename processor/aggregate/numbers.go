package aggregate

import (
	"fmt"

	"github.com/unisink/unisink/processor/number"
)

// SumNumber adds up a field. Integers make an int64, and ErrOverflow past it. As soon as there is a float among them the
// sum is a float: the exact sum of all, rounded once. As soon as there is a decimal it is an exact
// decimal. A decimal and a float are ErrMixed.
func SumNumber[T any](field func(rec *T) number.Number) Of[T, NumberSum] {
	return &plain[T, number.Number, NumberSum]{
		name: "sum_number", field: field,
		add: (*NumberSum).add, merge: (*NumberSum).merge, encode: (*NumberSum).encode, decode: (*NumberSum).decode,
	}
}

// AvgNumber keeps sum and count of a field; see [NumberMean.Avg]. Errors are those of [SumNumber].
func AvgNumber[T any](field func(rec *T) number.Number) Of[T, NumberMean] {
	return &plain[T, number.Number, NumberMean]{
		name: "avg_number", field: field,
		add: (*NumberMean).add, merge: (*NumberMean).merge, encode: (*NumberMean).encode, decode: (*NumberMean).decode,
	}
}

// MinNumber keeps the least value of a field, as it came; of equal ones the first. Integers and floats are
// compared by their exact values. A decimal and a float are ErrMixed.
func MinNumber[T any](field func(rec *T) number.Number) Of[T, NumberExtreme] {
	return extremeNumber("min_number", -1, field)
}

// MaxNumber keeps the largest value of a field, as MinNumber keeps the least.
func MaxNumber[T any](field func(rec *T) number.Number) Of[T, NumberExtreme] {
	return extremeNumber("max_number", 1, field)
}

// extremeNumber keeps what compares with what is there by sign.
func extremeNumber[T any](name string, sign int, field func(*T) number.Number) Of[T, NumberExtreme] {
	return &plain[T, number.Number, NumberExtreme]{
		name: name, field: field,
		add: func(acc *NumberExtreme, v number.Number) error {
			if err := v.Valid(); err != nil {
				return err
			}
			seen := v.Kind()
			if seen == number.KindInt {
				seen = number.KindNone
			}
			return acc.keep(v, seen, sign)
		},
		merge:  func(acc, other *NumberExtreme) error { return acc.keep(other.Value, other.seen, sign) },
		encode: (*NumberExtreme).encode, decode: (*NumberExtreme).decode,
	}
}

// NumberSum is the accumulator of SumNumber. Copies are independent of each other.
type NumberSum struct {
	exact number.Number // the sum of integers and decimals, the kind of any sum
	float FloatSum      // the sum of floats, and of the integers that were added to them
}

// Value is the sum: no number of no records.
func (s NumberSum) Value() number.Number {
	if s.exact.Kind() == number.KindFloat {
		return number.OfFloat(s.float.Value())
	}
	return s.exact
}

// add adds a number. After an error s is as it was.
func (s *NumberSum) add(n number.Number) error {
	if err := n.Valid(); err != nil {
		return err
	}
	f, isFloat := n.Float()
	switch {
	case !isFloat:
		return s.addExact(n)
	case s.exact.Kind() == number.KindFloat:
		return s.float.add(f)
	default:
		return s.addFloats(&FloatSum{hi: f})
	}
}

// addExact adds an integer, a decimal or nothing.
func (s *NumberSum) addExact(n number.Number) error {
	have := s.exact.Kind()
	i, isInt := n.Int()
	switch {
	case n.Kind() == number.KindNone:
		return nil
	case have == number.KindNone:
		s.exact = n
		return nil
	case have == number.KindFloat && !isInt:
		return mixed(have, n.Kind())
	case have == number.KindFloat:
		return s.float.addInt(i)
	}
	if sum, ok := s.exact.Int(); ok && isInt {
		if err := addTo(&sum, i); err != nil {
			return err
		}
		s.exact = number.OfInt(sum)
		return nil
	}
	sum, _ := s.exact.Exact()
	more, _ := n.Exact()
	sum, err := sum.Add(more)
	if err == nil {
		s.exact = number.OfDecimal(sum)
	}
	return err
}

func (s *NumberSum) addFloats(f *FloatSum) error {
	if s.exact.Kind() == number.KindDecimal {
		return mixed(number.KindDecimal, number.KindFloat)
	}
	sum := s.float
	if i, ok := s.exact.Int(); ok {
		if err := sum.addInt(i); err != nil {
			return err
		}
	}
	if err := sum.merge(f); err != nil {
		return err
	}
	*s = NumberSum{exact: number.OfFloat(0), float: sum}
	return nil
}

func (s *NumberSum) merge(other *NumberSum) error {
	if other.exact.Kind() == number.KindFloat {
		return s.addFloats(&other.float)
	}
	return s.addExact(other.exact)
}

func mixed(have, came number.Kind) error {
	return fmt.Errorf("a %s came to %ss: %w", came, have, ErrMixed)
}

func (s *NumberSum) encode(dst []byte) []byte {
	if s.exact.Kind() == number.KindFloat {
		return s.float.encode(append(dst, byte(number.KindFloat)))
	}
	return s.exact.AppendBinary(dst)
}

// decode reads into an empty sum.
func (s *NumberSum) decode(r *reader) {
	if len(r.rest) > 0 && number.Kind(r.rest[0]) == number.KindFloat {
		r.byte()
		s.exact = number.OfFloat(0)
		s.float.decode(r)
		return
	}
	s.exact = r.number()
}

// NumberMean is the accumulator of AvgNumber. Copies are independent of each other.
type NumberMean struct {
	Sum   NumberSum
	Count int64
}

// meanDigits is how many digits behind the point the mean of decimals has more than their sum.
const meanDigits = 6

// Avg is the mean: no number of no records. Of integers and floats it is a float: the sum, rounded,
// divided by the count. Of decimals it is a decimal with six digits behind the point more than the sum has, the last one
// rounded half to even, or as many more as fit into 38 digits.
func (m NumberMean) Avg() number.Number {
	sum := m.Sum.Value()
	if i, ok := sum.Int(); ok {
		return number.OfFloat(Mean{i, m.Count}.Avg())
	}
	if _, ok := sum.Float(); ok {
		return number.OfFloat(FloatMean{m.Sum.float, m.Count}.Avg())
	}
	if d, ok := sum.Decimal(); ok {
		for scale := min(d.Scale()+meanDigits, number.MaxDigits); scale >= d.Scale(); scale-- {
			if mean, err := d.Quo(m.Count, scale); err == nil {
				return number.OfDecimal(mean)
			}
		}
	}
	return number.Number{}
}

func (m *NumberMean) add(v number.Number) error {
	return counted(&m.Count, 1, func() error { return m.Sum.add(v) })
}

func (m *NumberMean) merge(other *NumberMean) error {
	return counted(&m.Count, other.Count, func() error { return m.Sum.merge(&other.Sum) })
}

func (m *NumberMean) encode(dst []byte) []byte { return m.Sum.encode(appendInts(dst, m.Count)) }

func (m *NumberMean) decode(r *reader) {
	m.Count = r.varint()
	m.Sum.decode(r)
	if (m.Count > 0) != (m.Sum.exact.Kind() != number.KindNone) || m.Count < 0 {
		r.fail()
	}
}

// NumberExtreme is the accumulator of MinNumber and MaxNumber. Value is no number of no records.
type NumberExtreme struct {
	Value number.Number
	// seen is float or decimal once a number of that kind came; the other of the two is ErrMixed from then on.
	seen number.Kind
}

// keep takes v if there is one and it is better, and the kind that was seen.
func (e *NumberExtreme) keep(v number.Number, seen number.Kind, sign int) error {
	switch {
	case seen == number.KindNone || seen == e.seen:
	case e.seen == number.KindNone:
		e.seen = seen
	default:
		return mixed(e.seen, seen)
	}
	if v.Kind() != number.KindNone && (e.Value.Kind() == number.KindNone || v.Compare(e.Value) == sign) {
		e.Value = v
	}
	return nil
}

func (e *NumberExtreme) encode(dst []byte) []byte {
	return e.Value.AppendBinary(append(dst, byte(e.seen)))
}

func (e *NumberExtreme) decode(r *reader) {
	e.seen = number.Kind(r.byte())
	e.Value = r.number()
	ok := e.seen == number.KindNone || e.seen == number.KindFloat || e.seen == number.KindDecimal
	if k := e.Value.Kind(); !ok || k != number.KindInt && k != e.seen {
		r.fail()
	}
}
