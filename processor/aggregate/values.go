package aggregate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
)

// MaxValue is how long a value may be, in bytes, that an accumulator keeps.
const MaxValue = 4 << 10

// MaxLimit is the largest limit of different values in one accumulator.
const MaxLimit = 1_000_000

// checkLimit is the error of a limit that cannot be.
func checkLimit(what string, limit, most int) error {
	if limit < 1 || limit > most {
		return fmt.Errorf("%s is %d; give 1 to %d", what, limit, most)
	}
	return nil
}

func checkValue(v []byte) error {
	if len(v) > MaxValue {
		return fmt.Errorf("%d bytes, more than %d: %w", len(v), MaxValue, ErrTooLong)
	}
	return nil
}

// values is a set of byte strings, in the order in which they came.
type values struct {
	bytes []byte   // all of them, one after the other
	ends  []uint32 // in bytes; MaxLimit values of MaxValue bytes fit
	slots []uint32 // open addressing: number of a value plus 1, 0 is free; none while there are few
}

// few values are compared one by one.
const few = 8

// seed differs between processes, so nobody can choose values that collide. What is written does not depend on it.
var seed = maphash.MakeSeed()

func (s *values) len() int { return len(s.ends) }

func (s *values) at(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = s.ends[i-1]
	}
	return s.bytes[from:s.ends[i]:s.ends[i]]
}

// find returns the number of a value, or -1.
func (s *values) find(v []byte) int {
	if s.slots == nil {
		for i := range s.ends {
			if bytes.Equal(s.at(i), v) {
				return i
			}
		}
		return -1
	}
	mask := uint64(len(s.slots) - 1)
	for at := maphash.Bytes(seed, v) & mask; s.slots[at] != 0; at = (at + 1) & mask {
		if i := int(s.slots[at] - 1); bytes.Equal(s.at(i), v) {
			return i
		}
	}
	return -1
}

// push adds a value that is not there, and copies it.
func (s *values) push(v []byte) {
	s.bytes = append(s.bytes, v...)
	s.ends = append(s.ends, uint32(len(s.bytes))) // see ends
	switch n := len(s.ends); {
	case n <= few:
	case n*4 > len(s.slots)*3:
		s.slots = make([]uint32, max(4*few, 2*len(s.slots)))
		for i := range n {
			s.occupy(i)
		}
	default:
		s.occupy(n - 1)
	}
}

func (s *values) occupy(i int) {
	mask := uint64(len(s.slots) - 1)
	at := maphash.Bytes(seed, s.at(i)) & mask
	for s.slots[at] != 0 {
		at = (at + 1) & mask
	}
	s.slots[at] = uint32(i + 1) // at most MaxLimit
}

// room is the error of one value more than n.
func room(n, limit int) error {
	if n >= limit {
		return fmt.Errorf("more than %d: %w", limit, ErrTooMany)
	}
	return nil
}

// decodeValues reads n values, each followed by what more reads. Damage is a value that is there
// already, too long, or one too many.
func (s *values) decode(r *reader, n int, more func()) {
	*s = values{}
	if n > MaxLimit {
		r.fail()
	}
	for ; n > 0 && !r.bad; n-- {
		v := r.value()
		if r.bad || len(v) > MaxValue || s.find(v) >= 0 {
			r.fail()
			return
		}
		s.push(v)
		more()
	}
}

// Set is the accumulator of [Distinct]: the different values, in the order in which they came.
type Set struct{ values values }

// Len is the number of different values.
func (s Set) Len() int { return s.values.len() }

// At is a value, by the order in which they came, from 0. It is good until encode returns.
func (s Set) At(i int) []byte { return s.values.at(i) }

// Distinct counts the different values of a field, exactly, by keeping them: a value of more than [MaxValue] bytes is
// ErrTooLong, one more than limit (1 to [MaxLimit]) values in one window of one key is ErrTooMany. The limit may
// be raised later. Value appends the value to dst.
//
// See [ApproxDistinct] for what does not fit.
func Distinct[T any](limit int, value func(dst []byte, rec *T) []byte) Of[T, Set] {
	return &distinct[T]{limit: limit, value: value}
}

type distinct[T any] struct {
	limit   int
	value   func([]byte, *T) []byte
	scratch []byte
}

func (*distinct[T]) Name() string { return "distinct" }

func (d *distinct[T]) Validate() error { return checkLimit("the limit of distinct", d.limit, MaxLimit) }

func (*distinct[T]) Init(acc *Set) { *acc = Set{} }

func (d *distinct[T]) Add(acc *Set, rec *T) error {
	fresh, err := d.look(acc, rec)
	if fresh {
		acc.values.push(d.scratch)
	}
	return err
}

func (d *distinct[T]) Check(acc *Set, rec *T) error {
	_, err := d.look(acc, rec)
	return err
}

// look puts the record's value into scratch and tells whether it is new and may be added.
func (d *distinct[T]) look(acc *Set, rec *T) (fresh bool, err error) {
	if err := d.Validate(); err != nil {
		return false, err
	}
	d.scratch = d.value(d.scratch[:0], rec)
	if err := checkValue(d.scratch); err != nil {
		return false, err
	}
	if acc.values.find(d.scratch) >= 0 {
		return false, nil
	}
	err = room(acc.Len(), d.limit)
	return err == nil, err
}

func (d *distinct[T]) Merge(acc, other *Set) error {
	n := acc.Len()
	for i := range other.Len() {
		if acc.values.find(other.At(i)) < 0 {
			n++
		}
	}
	if err := room(n-1, d.limit); err != nil && n > acc.Len() {
		return err
	}
	for i := range other.Len() {
		if v := other.At(i); acc.values.find(v) < 0 {
			acc.values.push(v)
		}
	}
	return nil
}

func (*distinct[T]) Encode(dst []byte, acc *Set) []byte {
	dst = binary.AppendUvarint(dst, uint64(acc.Len())) // not negative
	for i := range acc.Len() {
		dst = appendValue(dst, acc.At(i))
	}
	return dst
}

func (*distinct[T]) Decode(src []byte, acc *Set) error {
	r := reader{rest: src}
	acc.values.decode(&r, r.count(1), func() {})
	return r.end()
}
