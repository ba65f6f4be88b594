package number

import "math/bits"

// wide is an unsigned integer of 128 bits.
type wide struct{ hi, lo uint64 }

// MaxDigits is how many digits a decimal may have.
const MaxDigits = 38

var (
	// most is the largest number of MaxDigits digits.
	most  = wide{0x4B3B4CA85A86C47A, 0x098A223FFFFFFFFF}
	tenTo = [20]uint64{
		1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
	}
)

func (a wide) zero() bool { return a.hi|a.lo == 0 }

func (a wide) cmp(b wide) int {
	switch {
	case a == b:
		return 0
	case a.hi < b.hi || a.hi == b.hi && a.lo < b.lo:
		return -1
	default:
		return 1
	}
}

func (a wide) add(b wide) (sum wide, ok bool) {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, carry := bits.Add64(a.hi, b.hi, carry)
	return wide{hi, lo}, carry == 0
}

// sub is a - b, which must not be negative.
func (a wide) sub(b wide) wide {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return wide{hi, lo}
}

func (a wide) mul(m uint64) (product wide, ok bool) {
	over, hi := bits.Mul64(a.hi, m)
	carry, lo := bits.Mul64(a.lo, m)
	hi, c := bits.Add64(hi, carry, 0)
	return wide{hi, lo}, over == 0 && c == 0
}

func (a wide) div(d uint64) (quotient wide, rest uint64) {
	hi, rest := a.hi/d, a.hi%d
	lo, rest := bits.Div64(rest, a.lo, d)
	return wide{hi, lo}, rest
}

// shift is a * 10^n, not ok past 128 bits.
func (a wide) shift(n int) (product wide, ok bool) {
	if a.zero() {
		return a, true
	}
	for ok = true; n > 0 && ok; n -= 19 {
		a, ok = a.mul(tenTo[min(n, 19)])
	}
	return a, ok
}
