package aggregate

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/unisink/unisink/processor/number"
)

// FloatSum is an exact sum of floats, and the accumulator of [SumFloat]. Copies are independent of each other.
type FloatSum struct {
	// The sum is hi + lo + more: hi is the whole rounded to a float, lo what is left of it rounded
	// again, and so on until nothing is left. So one sum has one form. More is never changed, only replaced.
	hi, lo float64
	more   []float64
}

// Value is the sum, rounded once.
func (s FloatSum) Value() float64 { return s.hi }

// add adds a float: ErrNotFinite, ErrOverflow. After an error s is as it was.
func (s *FloatSum) add(x float64) error {
	if err := number.Finite(x); err != nil {
		return err
	}
	if len(s.more) == 0 {
		// Nearly always two floats hold the sum, and three additions do it.
		q, e := twoSum(x, s.lo)
		h, d := twoSum(q, s.hi)
		if finite(h) && (e == 0 || d == 0) {
			s.hi, s.lo = twoSum(h, d+e) // one of the two is 0
			return nil
		}
	}
	var buf [48]float64
	return s.set(grow(s.parts(buf[:0]), x), x)
}

// parts appends the floats that the sum consists of, the least first.
func (s *FloatSum) parts(to []float64) []float64 {
	for _, m := range slices.Backward(s.more) {
		to = append(to, m)
	}
	if s.lo != 0 {
		to = append(to, s.lo)
	}
	if s.hi != 0 {
		to = append(to, s.hi)
	}
	return to
}

// set takes the sum of floats that do not overlap, the least first; x is the one that came last.
func (s *FloatSum) set(parts []float64, x float64) error {
	var next FloatSum
	for i := 0; len(parts) > 0; i++ {
		v := round(parts)
		if !finite(v) {
			return fmt.Errorf("a sum of floats: %w", ErrOverflow)
		}
		switch i {
		case 0:
			next.hi = v
		case 1:
			next.lo = v
		default:
			next.more = append(next.more, v)
		}
		parts = grow(parts, -v)
	}
	*s = next
	return nil
}

func (s *FloatSum) merge(other *FloatSum) error {
	next := *s
	var buf [48]float64
	for _, x := range other.parts(buf[:0]) {
		if err := next.add(x); err != nil {
			return err
		}
	}
	*s = next
	return nil
}

// addInt adds an integer, exactly.
func (s *FloatSum) addInt(v int64) error {
	const low = 1<<32 - 1
	next := *s
	for _, x := range [...]float64{float64(v &^ low), float64(v & low)} { // 32 bits each
		if err := next.add(x); err != nil {
			return err
		}
	}
	*s = next
	return nil
}

func (s *FloatSum) encode(dst []byte) []byte {
	n := 2 + len(s.more)
	if s.lo == 0 {
		n = 1
	}
	if s.hi == 0 {
		n = 0
	}
	dst = binary.AppendUvarint(dst, uint64(n)) // not negative
	for i, f := range [...]float64{s.hi, s.lo} {
		if i < n {
			dst = appendFloat(dst, f)
		}
	}
	for _, f := range s.more {
		dst = appendFloat(dst, f)
	}
	return dst
}

// decode reads into an empty sum.
func (s *FloatSum) decode(r *reader) {
	var sum FloatSum
	for i := range r.count(8) {
		f := r.float()
		// The sum of what was read is to fall into the floats that were read.
		if f == 0 || sum.add(f) != nil {
			r.fail()
			return
		}
		switch i {
		case 0:
			s.hi = f
		case 1:
			s.lo = f
		default:
			s.more = append(s.more, f)
		}
	}
	if s.hi != sum.hi || s.lo != sum.lo || !slices.Equal(s.more, sum.more) {
		r.fail()
	}
}

// twoSum is the rounded sum of a and b, and what rounding took from it.
func twoSum(a, b float64) (sum, err float64) {
	sum = a + b
	bb := sum - a
	return sum, (a - (sum - bb)) + (b - bb)
}

// grow adds x to floats that do not overlap, the least first, in place if there is room. Floats that
// become 0 are left out.
func grow(parts []float64, x float64) []float64 {
	n := 0
	for _, p := range parts {
		var e float64
		x, e = twoSum(x, p)
		if e != 0 {
			parts[n] = e
			n++
		}
	}
	parts = parts[:n]
	if x != 0 {
		parts = append(parts, x)
	}
	return parts
}

// round is the sum of floats that do not overlap, the least first, rounded half to even.
func round(parts []float64) float64 {
	n := len(parts) - 1
	hi, lo := parts[n], 0.0
	for n > 0 && lo == 0 {
		n--
		hi, lo = twoSum(hi, parts[n])
	}
	// Half way between two floats it is what lies below that decides.
	if n > 0 && (lo < 0) == (parts[n-1] < 0) && lo != 0 {
		twice := lo * 2
		if up := hi + twice; up-hi == twice {
			return up
		}
	}
	return hi
}

func finite(f float64) bool { return f-f == 0 }
