package aggregate

import (
	"math"

	"github.com/unisink/unisink/processor/number"
)

// SumFloat adds up a field, exactly: [FloatSum.Value] rounds once. A record whose field is NaN or infinite
// is ErrNotFinite, a sum beyond the largest float is ErrOverflow.
func SumFloat[T any](field func(rec *T) float64) Of[T, FloatSum] {
	return &plain[T, float64, FloatSum]{
		name: "sum_float", field: field,
		add: (*FloatSum).add, merge: (*FloatSum).merge, encode: (*FloatSum).encode, decode: (*FloatSum).decode,
	}
}

// MinFloat keeps the least value of a field; +Inf of no records. NaN and infinities are ErrNotFinite.
func MinFloat[T any](field func(rec *T) float64) Of[T, float64] {
	return extremeFloat("min_float", math.Inf(1), field, func(a, b float64) bool { return b < a })
}

// MaxFloat keeps the largest value of a field; -Inf of no records. NaN and infinities are ErrNotFinite.
func MaxFloat[T any](field func(rec *T) float64) Of[T, float64] {
	return extremeFloat("max_float", math.Inf(-1), field, func(a, b float64) bool { return b > a })
}

func extremeFloat[T any](name string, none float64, field func(*T) float64, better func(a, b float64) bool) Of[T, float64] {
	keep := func(acc, v *float64) error {
		if better(*acc, *v) {
			*acc = *v
		}
		return nil
	}
	return &plain[T, float64, float64]{
		name: name, field: field, none: none,
		add: func(acc *float64, v float64) error {
			if err := number.Finite(v); err != nil {
				return err
			}
			return keep(acc, &v)
		},
		merge:  keep,
		encode: func(acc *float64, dst []byte) []byte { return appendFloat(dst, *acc) },
		decode: func(acc *float64, r *reader) {
			if *acc = math.Float64frombits(r.word()); !finite(*acc) && *acc != none {
				r.fail()
			}
		},
	}
}

// AvgFloat keeps the exact sum and the count of a field; see [FloatMean.Avg]. Errors are those of [SumFloat].
func AvgFloat[T any](field func(rec *T) float64) Of[T, FloatMean] {
	return &plain[T, float64, FloatMean]{
		name: "avg_float", field: field,
		add: (*FloatMean).add, merge: (*FloatMean).merge, encode: (*FloatMean).encode, decode: (*FloatMean).decode,
	}
}

// FloatMean is the accumulator of AvgFloat. Copies are independent of each other.
type FloatMean struct {
	Sum   FloatSum
	Count int64
}

// Avg is the mean: the sum, rounded, divided by the count; 0 of no records.
func (m FloatMean) Avg() float64 {
	if m.Count == 0 {
		return 0
	}
	return m.Sum.Value() / float64(m.Count)
}

func (m *FloatMean) add(v float64) error {
	return counted(&m.Count, 1, func() error { return m.Sum.add(v) })
}

func (m *FloatMean) merge(other *FloatMean) error {
	return counted(&m.Count, other.Count, func() error { return m.Sum.merge(&other.Sum) })
}

func (m *FloatMean) encode(dst []byte) []byte { return m.Sum.encode(appendInts(dst, m.Count)) }

func (m *FloatMean) decode(r *reader) {
	m.Count = r.varint()
	m.Sum.decode(r)
}

// counted adds n to a count if that, and then add, goes well.
func counted(count *int64, n int64, add func() error) error {
	next := *count
	if err := addTo(&next, n); err != nil {
		return err
	}
	if err := add(); err != nil {
		return err
	}
	*count = next
	return nil
}
