package aggregate

import "encoding/binary"

// Moment is the accumulator of [First] and [Last]. Some is false of no records.
type Moment struct {
	At    int64  // event time, Unix milliseconds
	Value []byte // good until encode returns
	Some  bool
}

// First keeps the value of the record with the least event time, of equally early ones the one that came
// first. At is the event time, Unix milliseconds; value appends the value to dst. One of more than [MaxValue] bytes is ErrTooLong.
func First[T any](at func(rec *T) int64, value func(dst []byte, rec *T) []byte) Of[T, Moment] {
	return &moment[T]{name: "first", at: at, value: value, replaces: func(came, have int64) bool { return came < have }}
}

// Last keeps the value of the record with the largest event time, of equally late ones the one that came
// last. The rest is as in [First].
func Last[T any](at func(rec *T) int64, value func(dst []byte, rec *T) []byte) Of[T, Moment] {
	return &moment[T]{name: "last", at: at, value: value, replaces: func(came, have int64) bool { return came >= have }}
}

type moment[T any] struct {
	name     string
	at       func(*T) int64
	value    func([]byte, *T) []byte
	replaces func(came, have int64) bool
	scratch  []byte
}

func (m *moment[T]) Name() string { return m.name }

func (*moment[T]) Init(acc *Moment) { *acc = Moment{} }

func (m *moment[T]) Add(acc *Moment, rec *T) error {
	if err := m.Check(acc, rec); err != nil {
		return err
	}
	return m.Merge(acc, &Moment{At: m.at(rec), Value: m.scratch, Some: true})
}

func (m *moment[T]) Check(_ *Moment, rec *T) error {
	m.scratch = m.value(m.scratch[:0], rec)
	return checkValue(m.scratch)
}

func (m *moment[T]) Merge(acc, other *Moment) error {
	if other.Some && (!acc.Some || m.replaces(other.At, acc.At)) {
		*acc = Moment{At: other.At, Value: append(acc.Value[:0], other.Value...), Some: true}
	}
	return nil
}

// Encode writes nothing for no records.
func (*moment[T]) Encode(dst []byte, acc *Moment) []byte {
	if !acc.Some {
		return dst
	}
	return appendValue(binary.AppendVarint(dst, acc.At), acc.Value)
}

func (*moment[T]) Decode(src []byte, acc *Moment) error {
	*acc = Moment{}
	if len(src) == 0 {
		return nil
	}
	r := reader{rest: src}
	acc.At = r.varint()
	v := r.value()
	if len(v) > MaxValue {
		r.fail()
	}
	acc.Value, acc.Some = append([]byte(nil), v...), true
	return r.end()
}
