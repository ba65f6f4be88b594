package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Count counts records.
func Count[T any]() Of[T, int64] { return count[T]{} }

// Sum adds up a field. A sum that does not fit is ErrOverflow, never a wrong number.
func Sum[T any](field func(rec *T) int64) Of[T, int64] { return sum[T]{field} }

// Min keeps the least value of a field; math.MaxInt64 of no records.
func Min[T any](field func(rec *T) int64) Of[T, int64] {
	return extreme[T]{"min", math.MaxInt64, field, func(a, b int64) bool { return b < a }}
}

// Max keeps the largest value of a field; math.MinInt64 of no records.
func Max[T any](field func(rec *T) int64) Of[T, int64] {
	return extreme[T]{"max", math.MinInt64, field, func(a, b int64) bool { return b > a }}
}

// Avg keeps sum and count of a field; see [Mean.Avg].
func Avg[T any](field func(rec *T) int64) Of[T, Mean] { return avg[T]{field} }

// Summarize keeps count, sum, least and largest value of a field at once.
func Summarize[T any](field func(rec *T) int64) Of[T, Summary] { return summarize[T]{field} }

// Mean is the accumulator of Avg.
type Mean struct{ Sum, Count int64 }

// Avg is the mean; 0 of no records.
func (m Mean) Avg() float64 {
	if m.Count == 0 {
		return 0
	}
	return float64(m.Sum) / float64(m.Count)
}

// Summary is the accumulator of Summarize. Min and Max mean nothing while Count is 0.
type Summary struct{ Count, Sum, Min, Max int64 }

// Avg is the mean; 0 of no records.
func (s Summary) Avg() float64 { return Mean{s.Sum, s.Count}.Avg() }

type count[T any] struct{ varint }

func (count[T]) Name() string { return "count" }

func (count[T]) Init(acc *int64) { *acc = 0 }

func (count[T]) Add(acc *int64, _ *T) error { return addTo(acc, 1) }

func (c count[T]) Check(acc *int64, rec *T) error {
	next := *acc
	return c.Add(&next, rec)
}

func (count[T]) Merge(acc, other *int64) error { return addTo(acc, *other) }

type sum[T any] struct{ field func(*T) int64 }

func (sum[T]) Name() string { return "sum" }

func (sum[T]) Init(acc *int64) { *acc = 0 }

func (s sum[T]) Add(acc *int64, rec *T) error { return addTo(acc, s.field(rec)) }

func (s sum[T]) Check(acc *int64, rec *T) error {
	next := *acc
	return s.Add(&next, rec)
}

func (sum[T]) Merge(acc, other *int64) error { return addTo(acc, *other) }

func (sum[T]) Encode(dst []byte, acc *int64) []byte { return varint{}.Encode(dst, acc) }

func (sum[T]) Decode(src []byte, acc *int64) error { return varint{}.Decode(src, acc) }

type extreme[T any] struct {
	name   string
	none   int64
	field  func(*T) int64
	better func(a, b int64) bool
}

func (e extreme[T]) Name() string { return e.name }

func (e extreme[T]) Init(acc *int64) { *acc = e.none }

func (e extreme[T]) Add(acc *int64, rec *T) error {
	if v := e.field(rec); e.better(*acc, v) {
		*acc = v
	}
	return nil
}

func (extreme[T]) Check(*int64, *T) error { return nil }

func (e extreme[T]) Merge(acc, other *int64) error {
	if e.better(*acc, *other) {
		*acc = *other
	}
	return nil
}

func (extreme[T]) Encode(dst []byte, acc *int64) []byte { return varint{}.Encode(dst, acc) }

func (extreme[T]) Decode(src []byte, acc *int64) error { return varint{}.Decode(src, acc) }

type avg[T any] struct{ field func(*T) int64 }

func (avg[T]) Name() string { return "avg" }

func (avg[T]) Init(acc *Mean) { *acc = Mean{} }

func (a avg[T]) Add(acc *Mean, rec *T) error { return a.Merge(acc, &Mean{a.field(rec), 1}) }

func (a avg[T]) Check(acc *Mean, rec *T) error {
	next := *acc
	return a.Add(&next, rec)
}

func (avg[T]) Merge(acc, other *Mean) error {
	m := *acc
	if err := errors.Join(addTo(&m.Sum, other.Sum), addTo(&m.Count, other.Count)); err != nil {
		return err
	}
	*acc = m
	return nil
}

func (avg[T]) Encode(dst []byte, acc *Mean) []byte { return appendInts(dst, acc.Sum, acc.Count) }

func (avg[T]) Decode(src []byte, acc *Mean) error { return readInts(src, &acc.Sum, &acc.Count) }

type summarize[T any] struct{ field func(*T) int64 }

func (summarize[T]) Name() string { return "summary" }

func (summarize[T]) Init(acc *Summary) { *acc = Summary{Min: math.MaxInt64, Max: math.MinInt64} }

func (s summarize[T]) Add(acc *Summary, rec *T) error {
	v := s.field(rec)
	next := *acc
	if err := errors.Join(addTo(&next.Sum, v), addTo(&next.Count, 1)); err != nil {
		return err
	}
	next.Min, next.Max = min(next.Min, v), max(next.Max, v)
	*acc = next
	return nil
}

func (s summarize[T]) Check(acc *Summary, rec *T) error {
	next := *acc
	return s.Add(&next, rec)
}

func (summarize[T]) Merge(acc, other *Summary) error {
	next := *acc
	if err := errors.Join(addTo(&next.Sum, other.Sum), addTo(&next.Count, other.Count)); err != nil {
		return err
	}
	next.Min, next.Max = min(next.Min, other.Min), max(next.Max, other.Max)
	*acc = next
	return nil
}

func (summarize[T]) Encode(dst []byte, acc *Summary) []byte {
	return appendInts(dst, acc.Count, acc.Sum, acc.Min, acc.Max)
}

func (summarize[T]) Decode(src []byte, acc *Summary) error {
	return readInts(src, &acc.Count, &acc.Sum, &acc.Min, &acc.Max)
}

// varint encodes accumulators that are one integer.
type varint struct{}

func (varint) Encode(dst []byte, acc *int64) []byte { return binary.AppendVarint(dst, *acc) }

func (varint) Decode(src []byte, acc *int64) error { return readInts(src, acc) }

func addTo(acc *int64, v int64) error {
	s := *acc + v
	if (s > *acc) != (v > 0) && v != 0 {
		return fmt.Errorf("a sum of integers: %w", ErrOverflow)
	}
	*acc = s
	return nil
}
