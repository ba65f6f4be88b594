package aggregate

import "fmt"

// SumNumber adds up a field. Integers make an int64, and ErrOverflow past it. As soon as there is a float among them the
// sum is a float: the exact sum of all, rounded once. As soon as there is a decimal it is an exact
// decimal. A decimal and a float are ErrMixed.
func SumNumber[T any](field func(rec *T) Number) Of[T, NumberSum] { return sumNumber[T]{field} }

// AvgNumber keeps sum and count of a field; see [NumberMean.Avg]. Errors are those of [SumNumber].
func AvgNumber[T any](field func(rec *T) Number) Of[T, NumberMean] { return avgNumber[T]{field} }

// MinNumber keeps the least value of a field, as it came; of equal ones the first. Integers and floats are
// compared by their exact values. A decimal and a float are ErrMixed.
func MinNumber[T any](field func(rec *T) Number) Of[T, NumberExtreme] {
	return extremeNumber[T]{"min_number", -1, field}
}

// MaxNumber keeps the largest value of a field, as MinNumber keeps the least.
func MaxNumber[T any](field func(rec *T) Number) Of[T, NumberExtreme] {
	return extremeNumber[T]{"max_number", 1, field}
}

// NumberSum is the accumulator of SumNumber. Copies are independent of each other.
type NumberSum struct {
	exact Number   // the sum of integers and decimals, the kind of any sum
	float FloatSum // the sum of floats, and of the integers that were added to them
}

// Value is the sum: no number of no records.
func (s NumberSum) Value() Number {
	if s.exact.kind == KindFloat {
		return FloatNumber(s.float.Value())
	}
	return s.exact
}

// add adds a valid number. After an error s is as it was.
func (s *NumberSum) add(n Number) error {
	switch {
	case n.kind != KindFloat:
		return s.addExact(n)
	case s.exact.kind == KindFloat:
		return s.float.add(n.float())
	default:
		return s.addFloats(&FloatSum{hi: n.float()})
	}
}

func (s *NumberSum) addExact(n Number) error {
	switch {
	case n.kind == kindUnset:
		return nil
	case s.exact.kind == kindUnset:
		s.exact = n
		return nil
	case s.exact.kind == KindFloat && n.kind == KindInt:
		return s.float.addInt(n.int())
	case s.exact.kind == KindFloat:
		return mixed(s.exact.kind, n.kind)
	case s.exact.kind == KindInt && n.kind == KindInt:
		sum := s.exact.int()
		if err := addTo(&sum, n.int()); err != nil {
			return err
		}
		s.exact = IntNumber(sum)
		return nil
	default:
		sum, err := s.exact.decimal().Add(n.decimal())
		if err != nil {
			return err
		}
		s.exact = DecimalNumber(sum)
		return nil
	}
}

func (s *NumberSum) addFloats(f *FloatSum) error {
	sum := s.float
	switch s.exact.kind {
	case KindDecimal:
		return mixed(s.exact.kind, KindFloat)
	case KindInt:
		if err := sum.addInt(s.exact.int()); err != nil {
			return err
		}
	case KindFloat, kindUnset:
	}
	if err := sum.merge(f); err != nil {
		return err
	}
	*s = NumberSum{exact: FloatNumber(0), float: sum}
	return nil
}

func (s *NumberSum) merge(other *NumberSum) error {
	if other.exact.kind == KindFloat {
		return s.addFloats(&other.float)
	}
	return s.addExact(other.exact)
}

func mixed(have, came Kind) error {
	return fmt.Errorf("a %s came to %ss: %w", came, have, ErrMixed)
}

func (s *NumberSum) encode(dst []byte) []byte {
	if s.exact.kind == KindFloat {
		return s.float.encode(append(dst, byte(KindFloat)))
	}
	return s.exact.encode(dst)
}

func (s *NumberSum) decode(r *reader) {
	*s = NumberSum{}
	if len(r.rest) > 0 && Kind(r.rest[0]) == KindFloat {
		r.byte()
		s.exact = FloatNumber(0)
		s.float.decode(r)
		return
	}
	s.exact.decode(r)
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
func (m NumberMean) Avg() Number {
	sum := m.Sum.Value()
	switch sum.kind {
	case KindInt:
		return FloatNumber(Mean{sum.int(), m.Count}.Avg())
	case KindFloat:
		return FloatNumber(FloatMean{m.Sum.float, m.Count}.Avg())
	case KindDecimal:
		for scale := min(sum.dec.Scale()+meanDigits, maxDigits); scale >= sum.dec.Scale(); scale-- {
			if mean, err := sum.dec.Quo(m.Count, scale); err == nil {
				return DecimalNumber(mean)
			}
		}
	case kindUnset:
	}
	return Number{}
}

type sumNumber[T any] struct{ field func(*T) Number }

func (sumNumber[T]) Name() string { return "sum_number" }

func (sumNumber[T]) Init(acc *NumberSum) { *acc = NumberSum{} }

func (s sumNumber[T]) Add(acc *NumberSum, rec *T) error {
	v := s.field(rec)
	if err := v.valid(); err != nil {
		return err
	}
	return acc.add(v)
}

func (s sumNumber[T]) Check(acc *NumberSum, rec *T) error {
	next := *acc
	return s.Add(&next, rec)
}

func (sumNumber[T]) Merge(acc, other *NumberSum) error { return acc.merge(other) }

func (sumNumber[T]) Encode(dst []byte, acc *NumberSum) []byte { return acc.encode(dst) }

func (sumNumber[T]) Decode(src []byte, acc *NumberSum) error {
	r := reader{rest: src}
	acc.decode(&r)
	return r.end()
}

type avgNumber[T any] struct{ field func(*T) Number }

func (avgNumber[T]) Name() string { return "avg_number" }

func (avgNumber[T]) Init(acc *NumberMean) { *acc = NumberMean{} }

func (a avgNumber[T]) Add(acc *NumberMean, rec *T) error {
	v := a.field(rec)
	if err := v.valid(); err != nil {
		return err
	}
	n := acc.Count
	if err := addTo(&n, 1); err != nil {
		return err
	}
	if err := acc.Sum.add(v); err != nil {
		return err
	}
	acc.Count = n
	return nil
}

func (a avgNumber[T]) Check(acc *NumberMean, rec *T) error {
	next := *acc
	return a.Add(&next, rec)
}

func (avgNumber[T]) Merge(acc, other *NumberMean) error {
	n := acc.Count
	if err := addTo(&n, other.Count); err != nil {
		return err
	}
	if err := acc.Sum.merge(&other.Sum); err != nil {
		return err
	}
	acc.Count = n
	return nil
}

func (avgNumber[T]) Encode(dst []byte, acc *NumberMean) []byte {
	return acc.Sum.encode(appendInts(dst, acc.Count))
}

func (avgNumber[T]) Decode(src []byte, acc *NumberMean) error {
	r := reader{rest: src}
	acc.Count = r.varint()
	acc.Sum.decode(&r)
	if (acc.Count > 0) != (acc.Sum.exact.kind != kindUnset) || acc.Count < 0 {
		r.fail()
	}
	return r.end()
}

// NumberExtreme is the accumulator of MinNumber and MaxNumber. Value is no number of no records.
type NumberExtreme struct {
	Value Number
	// seen is KindFloat or KindDecimal once a number of that kind came; the other of the two is ErrMixed from then on.
	seen Kind
}

type extremeNumber[T any] struct {
	name  string
	sign  int // of the comparison of what is better with what is there
	field func(*T) Number
}

func (e extremeNumber[T]) Name() string { return e.name }

func (extremeNumber[T]) Init(acc *NumberExtreme) { *acc = NumberExtreme{} }

func (e extremeNumber[T]) Add(acc *NumberExtreme, rec *T) error {
	v := e.field(rec)
	if err := v.valid(); err != nil {
		return err
	}
	came := NumberExtreme{Value: v}
	if v.kind != KindInt {
		came.seen = v.kind
	}
	return e.Merge(acc, &came)
}

func (e extremeNumber[T]) Check(acc *NumberExtreme, rec *T) error {
	next := *acc
	return e.Add(&next, rec)
}

func (e extremeNumber[T]) Merge(acc, other *NumberExtreme) error {
	switch {
	case other.seen == kindUnset || other.seen == acc.seen:
	case acc.seen == kindUnset:
		acc.seen = other.seen
	default:
		return mixed(acc.seen, other.seen)
	}
	if other.Value.kind != kindUnset && (acc.Value.kind == kindUnset || compare(other.Value, acc.Value) == e.sign) {
		acc.Value = other.Value
	}
	return nil
}

func (extremeNumber[T]) Encode(dst []byte, acc *NumberExtreme) []byte {
	return acc.Value.encode(append(dst, byte(acc.seen)))
}

func (extremeNumber[T]) Decode(src []byte, acc *NumberExtreme) error {
	r := reader{rest: src}
	acc.seen = Kind(r.byte())
	acc.Value.decode(&r)
	ok := acc.seen == kindUnset || acc.seen == KindFloat || acc.seen == KindDecimal
	if k := acc.Value.kind; !ok || k != KindInt && k != acc.seen {
		r.fail()
	}
	return r.end()
}
