package aggregate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/unisink/unisink/processor/number"
)

// maxBins is how many bins a distribution may have. With a relative error of 1/128 all integers of 64 bits fit.
const maxBins = 1 << 14

// Distribution is the accumulator of [Quantiles]: how many values lie in each bin.
type Distribution struct {
	bins     []bin // ascending, without empty ones
	count    int64
	min, max float64
	bits     uint8 // see Quantiles
}

type bin struct {
	at    int32 // the first bits of a value's magnitude, with the value's sign
	count int64
}

// Quantiles keeps the distribution of a field; see [Distribution.Quantile]. A quantile that it tells is
// a number of the same sign, at most the exact one in magnitude, and less than it by a part of at most relative (0.0001 to
// 0.5). The least and the largest value are exact. So are small integers: with 0.01 up to 256.
// Magnitudes below 2^-1022 count as 0.
//
// A record whose field is NaN or infinite is ErrNotFinite. Values that are spread over more than 16,384 bins are
// ErrTooMany; with 0.01 that is more than 128 powers of two. A bin takes 16 bytes.
func Quantiles[T any](relative float64, field func(rec *T) float64) Of[T, Distribution] {
	q := quantiles[T]{relative: relative, field: field}
	// A value is kept by its exponent and the first bits behind its leading one. What is cut off is
	// less than 2^-bits of it. That needs no logarithm, which machines may round differently.
	for b := uint8(1); b <= 14 && q.bits == 0; b++ {
		if math.Ldexp(1, -int(b)) <= relative && relative <= 0.5 {
			q.bits = b
		}
	}
	return q
}

// Count is the number of values.
func (d Distribution) Count() int64 { return d.count }

// Min is the least value, 0 of no records.
func (d Distribution) Min() float64 { return d.min }

// Max is the largest value, 0 of no records.
func (d Distribution) Max() float64 { return d.max }

// Quantile is the least value that at least the part q of all values (0 to 1) does not exceed: 0.5 is the median. It is
// not ok of no records, and for another q.
func (d Distribution) Quantile(q float64) (v float64, ok bool) {
	if d.count == 0 || !(q >= 0 && q <= 1) {
		return 0, false
	}
	rank := min(max(int64(math.Ceil(q*float64(d.count))), 1), d.count)
	switch rank {
	case 1:
		return d.min, true
	case d.count:
		return d.max, true
	}
	for _, b := range d.bins {
		if rank -= b.count; rank <= 0 {
			return min(max(b.value(d.bits), d.min), d.max), true
		}
	}
	return d.max, true
}

// value is the least magnitude of a bin.
func (b bin) value(bits uint8) float64 {
	if b.at < 0 {
		return -bin{at: -b.at}.value(bits)
	}
	return math.Float64frombits(uint64(b.at) << (52 - bits))
}

// binOf is the bin of a finite value.
func binOf(v float64, bits uint8) int32 {
	at := int32(math.Float64bits(math.Abs(v)) >> (52 - bits)) // 11 bits of exponent and at most 14
	if at>>bits == 0 {
		at = 0 // no leading one
	}
	if v < 0 {
		return -at
	}
	return at
}

func (d *Distribution) find(at int32) (int, bool) {
	return slices.BinarySearchFunc(d.bins, at, func(b bin, at int32) int { return cmp.Compare(b.at, at) })
}

// room is the error of adding that many values and bins.
func (d *Distribution) room(values int64, bins int) error {
	n := d.count
	if err := addTo(&n, values); err != nil {
		return err
	}
	return room(len(d.bins)+bins-1, maxBins)
}

// put adds values to a bin, for which there is room.
func (d *Distribution) put(b bin) {
	i, there := d.find(b.at)
	if there {
		d.bins[i].count += b.count
		return
	}
	d.bins = slices.Insert(d.bins, i, b)
}

// saw notes that there are n more values, from least to most.
func (d *Distribution) saw(n int64, least, most float64) {
	if d.count == 0 {
		d.min, d.max = least, most
	}
	d.count += n
	d.min, d.max = min(d.min, least), max(d.max, most)
}

type quantiles[T any] struct {
	relative float64
	field    func(*T) float64
	bits     uint8
}

func (q quantiles[T]) Name() string { return fmt.Sprintf("quantiles bits=%d", q.bits) }

func (q quantiles[T]) Validate() error {
	if q.bits == 0 {
		return fmt.Errorf("the relative error of quantiles is %v; give 0.0001 to 0.5", q.relative)
	}
	return nil
}

func (q quantiles[T]) Init(acc *Distribution) { *acc = Distribution{bits: q.bits} }

func (q quantiles[T]) Add(acc *Distribution, rec *T) error {
	if err := q.Check(acc, rec); err != nil {
		return err
	}
	v := q.field(rec) + 0 // no negative zero
	acc.put(bin{binOf(v, q.bits), 1})
	acc.saw(1, v, v)
	return nil
}

func (q quantiles[T]) Check(acc *Distribution, rec *T) error {
	if err := q.Validate(); err != nil {
		return err
	}
	v := q.field(rec)
	if err := number.Finite(v); err != nil {
		return err
	}
	if len(acc.bins) < maxBins {
		return acc.room(1, 1)
	}
	bins := 1
	if _, there := acc.find(binOf(v, q.bits)); there {
		bins = 0
	}
	return acc.room(1, bins)
}

func (quantiles[T]) Merge(acc, other *Distribution) error {
	bins := 0
	for _, b := range other.bins {
		if _, there := acc.find(b.at); !there {
			bins++
		}
	}
	if err := acc.room(other.count, bins); err != nil {
		return err
	}
	for _, b := range other.bins {
		acc.put(b)
	}
	if other.count > 0 {
		acc.saw(other.count, other.min, other.max)
	}
	return nil
}

// Encode writes the number of bins, then, if there are any, the least and the largest value and for each bin how far it is
// from the one before it and its count.
func (quantiles[T]) Encode(dst []byte, acc *Distribution) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(acc.bins))) // not negative
	if len(acc.bins) == 0 {
		return dst
	}
	dst = appendFloat(appendFloat(dst, acc.min), acc.max)
	last := int64(0)
	for _, b := range acc.bins {
		dst = binary.AppendVarint(dst, int64(b.at)-last)
		dst = binary.AppendUvarint(dst, uint64(b.count)) // positive
		last = int64(b.at)
	}
	return dst
}

func (q quantiles[T]) Decode(src []byte, acc *Distribution) error {
	r := reader{rest: src}
	q.Init(acc)
	n := r.count(2)
	if n == 0 {
		return r.end()
	}
	acc.min, acc.max = r.float(), r.float()
	if n > maxBins || acc.min > acc.max || q.bits == 0 {
		r.fail()
	}
	last := int64(binOf(acc.min, q.bits))
	for i := 0; i < n && !r.bad; i++ {
		at := r.varint()
		if i > 0 {
			at += last
		}
		count := int64(r.uvarint()) // checked below
		ascends := at > last || i == 0 && at == last
		if !ascends || count < 1 || addTo(&acc.count, count) != nil {
			r.fail()
		}
		acc.bins = append(acc.bins, bin{int32(at), count}) // up to the bin of max, checked below
		last = at
	}
	if !r.bad && last != int64(binOf(acc.max, q.bits)) {
		r.fail()
	}
	return r.end()
}
