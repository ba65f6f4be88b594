package aggregate

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// exactly is up to how many different values ApproxDistinct counts exactly.
const exactly = 256

// Registers of ApproxDistinct are 2^minPrecision to 2^maxPrecision.
const minPrecision, maxPrecision = 7, 16

// Approx is the accumulator of [ApproxDistinct]: a HyperLogLog.
type Approx struct {
	// hashes are those of the values, ascending, until they are more than exactly; after that they
	// are nil, and registers has an entry for each of the possible first bits of a hash: the
	// largest number of zeros that came behind them, plus 1.
	hashes    []uint64
	registers []uint8
}

// ApproxDistinct estimates the number of different values of a field in bounded memory: up to 256 it is exact, above
// it has a standard error of at most relative (0.0041 to 0.1), so that one estimate of 20 is wrong by more than
// twice that. An accumulator takes at most 1.09/relative² bytes, rounded up to a power of two: 4 KiB for 0.02.
// Value appends the value to dst.
//
// The estimate depends on the set of values alone. Who chooses them can make it wrong on purpose, since the hash
// (xxHash, 64 bits) is the same everywhere: let nobody's money depend on it.
func ApproxDistinct[T any](relative float64, value func(dst []byte, rec *T) []byte) Of[T, Approx] {
	return &approx[T]{precision: precision(relative), relative: relative, value: value}
}

// precision is the least that has a standard error of at most relative, 0 if none has.
func precision(relative float64) int {
	if !(relative <= 0.1) {
		return 0
	}
	for p := minPrecision; p <= maxPrecision; p++ {
		if 1.04/math.Sqrt(float64(int(1)<<p)) <= relative {
			return p
		}
	}
	return 0
}

// Count is the estimate.
func (a Approx) Count() int64 {
	if a.registers == nil {
		return int64(len(a.hashes))
	}
	return int64(math.Round(estimate(a.registers)))
}

// estimate is the one of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), section 4:
// without bias in the whole range, and without tables. Conversions keep the compiler from
// fusing operations, which would round differently on some machines.
func estimate(registers []uint8) float64 {
	m := float64(len(registers))
	q := 64 - bits.TrailingZeros(uint(len(registers)))
	var histogram [66]float64
	for _, r := range registers {
		histogram[r]++
	}
	z := m * tau(1-histogram[q+1]/m)
	for k := q; k >= 1; k-- {
		z = 0.5 * (z + histogram[k])
	}
	z += float64(m * sigma(histogram[0]/m))
	return m / z * m / (2 * math.Ln2)
}

func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for last := math.NaN(); z != last; y += y {
		x *= x
		last = z
		z += float64(x * y)
	}
	return z
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for last := math.NaN(); z != last; {
		x = math.Sqrt(x)
		last = z
		y *= 0.5
		z -= float64(float64((1-x)*(1-x)) * y)
	}
	return z / 3
}

func (a *Approx) add(hash uint64, precision int) {
	if a.registers != nil {
		a.register(hash, precision)
		return
	}
	at, there := slices.BinarySearch(a.hashes, hash)
	if there {
		return
	}
	if len(a.hashes) < exactly {
		a.hashes = slices.Insert(a.hashes, at, hash)
		return
	}
	a.registers = make([]uint8, 1<<precision)
	for _, h := range a.hashes {
		a.register(h, precision)
	}
	a.hashes = nil
	a.register(hash, precision)
}

func (a *Approx) register(hash uint64, precision int) {
	// The set bit ends the zeros where the hash ends.
	zeros := bits.LeadingZeros64(hash<<precision | 1<<(precision-1))
	r := &a.registers[hash>>(64-precision)]
	*r = max(*r, uint8(zeros+1)) // at most 65 - precision
}

type approx[T any] struct {
	precision int
	relative  float64
	value     func([]byte, *T) []byte
	scratch   []byte
}

func (a *approx[T]) Name() string { return fmt.Sprintf("approx_distinct precision=%d", a.precision) }

func (a *approx[T]) Validate() error {
	if a.precision == 0 {
		return fmt.Errorf("the standard error of approx distinct is %v; give 0.0041 to 0.1", a.relative)
	}
	return nil
}

func (*approx[T]) Init(acc *Approx) { *acc = Approx{} }

func (a *approx[T]) Add(acc *Approx, rec *T) error {
	if err := a.Check(acc, rec); err != nil {
		return err
	}
	a.scratch = a.value(a.scratch[:0], rec)
	acc.add(xxhash.Sum64(a.scratch), a.precision)
	return nil
}

func (a *approx[T]) Check(*Approx, *T) error { return a.Validate() }

func (a *approx[T]) Merge(acc, other *Approx) error {
	for _, h := range other.hashes {
		acc.add(h, a.precision)
	}
	if other.registers == nil {
		return nil
	}
	if acc.registers == nil {
		acc.registers = make([]uint8, len(other.registers))
		for _, h := range acc.hashes {
			acc.register(h, a.precision)
		}
		acc.hashes = nil
	}
	for i, r := range other.registers {
		acc.registers[i] = max(acc.registers[i], r)
	}
	return nil
}

// Encode begins with the number of hashes, or with exactly+1 and then has the registers.
func (*approx[T]) Encode(dst []byte, acc *Approx) []byte {
	if acc.registers != nil {
		return append(binary.AppendUvarint(dst, exactly+1), acc.registers...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(acc.hashes))) // not negative
	for _, h := range acc.hashes {
		dst = binary.BigEndian.AppendUint64(dst, h)
	}
	return dst
}

func (a *approx[T]) Decode(src []byte, acc *Approx) error {
	r := reader{rest: src}
	*acc = Approx{}
	if a.precision == 0 {
		r.fail()
	}
	n := r.uvarint()
	if n > exactly {
		acc.registers = slices.Clone(r.take(1 << a.precision))
		for _, v := range acc.registers {
			if int(v) > 65-a.precision {
				r.fail()
			}
		}
		if n != exactly+1 {
			r.fail()
		}
		return r.end()
	}
	for ; n > 0 && !r.bad; n-- {
		h := r.word()
		if k := len(acc.hashes); k > 0 && acc.hashes[k-1] >= h {
			r.fail()
		}
		acc.hashes = append(acc.hashes, h)
	}
	return r.end()
}
