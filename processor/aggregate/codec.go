package aggregate

import (
	"encoding/binary"
	"math"

	"github.com/unisink/unisink/processor/number"
)

// reader takes an encoding apart. The first thing that is wrong stays in bad, and whatever is read
// after it is zero.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) fail() { r.rest, r.bad = nil, true }

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count reads how many things of at least size bytes follow; more than can be there is damage, so
// nobody reserves memory for what a damaged number says.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.rest)/size) { // never negative
		r.fail()
		return 0
	}
	return int(n) // at most the length of the input
}

// take returns the next n bytes, a part of the input.
func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// value reads what appendValue wrote.
func (r *reader) value() []byte { return r.take(r.count(1)) }

func (r *reader) word() uint64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// float reads a finite float.
func (r *reader) float() float64 {
	f := math.Float64frombits(r.word())
	if !finite(f) {
		r.fail()
		return 0
	}
	return f
}

func (r *reader) decimal() number.Decimal {
	d, rest, ok := number.DecodeDecimal(r.rest)
	if r.rest = rest; !ok {
		r.fail()
	}
	return d
}

func (r *reader) number() number.Number {
	n, rest, ok := number.Decode(r.rest)
	if r.rest = rest; !ok {
		r.fail()
	}
	return n
}

// end is the error of the whole; what is left over is damage too.
func (r *reader) end() error {
	if r.bad || len(r.rest) != 0 {
		return errAccumulator
	}
	return nil
}

func appendValue(dst, v []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(v))), v...)
}

func appendFloat(dst []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(f))
}

func appendInts(dst []byte, values ...int64) []byte {
	for _, v := range values {
		dst = binary.AppendVarint(dst, v)
	}
	return dst
}

func readInts(src []byte, values ...*int64) error {
	r := reader{rest: src}
	for _, v := range values {
		*v = r.varint()
	}
	return r.end()
}
