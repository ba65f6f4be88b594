package number

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Decimal is an exact decimal number of up to 38 digits, up to 38 of them behind the point. The zero
// value is 0. It keeps how many digits stand behind the point, so 3.30 stays 3.30: == tells it
// from 3.3, [Decimal.Cmp] does not.
type Decimal struct {
	coef  wide // at most most
	scale uint8
	neg   bool // never with a coef of 0
}

var (
	errDecimal = errors.New(`not a decimal number; write digits as in "12", "-12.50" or "1.25e-3"`)
	errDigits  = fmt.Errorf("more than %d digits, or more than that behind the point: %w", MaxDigits, ErrOverflow)
)

// WholeDecimal is the integer v.
func WholeDecimal(v int64) Decimal {
	if v < 0 {
		return Decimal{coef: wide{lo: -uint64(v)}, neg: true} // the magnitude, also of the least integer
	}
	return Decimal{coef: wide{lo: uint64(v)}}
}

// ParseDecimal reads "-12.50", "3", "1.5e-3": digits, and digits on both sides of a point. More than 38
// digits, leading zeros aside, are ErrOverflow; nothing is rounded. It keeps nothing of text.
func ParseDecimal[S ~string | ~[]byte](text S) (Decimal, error) {
	d, err := parseDecimal(string(text)) // not copied if short, as it does not escape
	if err == nil {
		return d, nil
	}
	return Decimal{}, err
}

func parseDecimal(text string) (d Decimal, err error) {
	text, d.neg = strings.CutPrefix(text, "-")
	before := len(text)
	text, fits := d.digits(text)
	ok := len(text) < before
	scale := 0
	if behind, point := strings.CutPrefix(text, "."); point {
		var more bool
		text, more = d.digits(behind)
		fits = fits && more
		scale = len(behind) - len(text)
		ok = ok && scale > 0
	}
	exp, good := exponent(text)
	if !ok || !good {
		return Decimal{}, errDecimal
	}
	if scale -= exp; scale < 0 {
		d.coef, ok = d.coef.shift(min(-scale, 2*MaxDigits))
		fits = fits && ok && d.coef.cmp(most) <= 0
		scale = 0
	}
	if !fits || scale > MaxDigits {
		return Decimal{}, errDigits
	}
	d.scale = uint8(scale) // 0 to 38
	d.neg = d.neg && !d.coef.zero()
	return d, nil
}

// digits appends the digits that text begins with to the number, and returns what follows them. If they
// do not fit, the number means nothing.
func (d *Decimal) digits(text string) (rest string, fit bool) {
	fit = true
	for len(text) > 0 && text[0]-'0' <= 9 {
		if d.coef.hi == 0 && d.coef.lo < tenTo[18] {
			d.coef.lo = d.coef.lo*10 + uint64(text[0]-'0')
		} else if fit {
			next, ok := d.coef.mul(10)
			next, ok2 := next.add(wide{lo: uint64(text[0] - '0')})
			d.coef, fit = next, ok && ok2 && next.cmp(most) <= 0
		}
		text = text[1:]
	}
	return text, fit
}

// exponent reads what may stand behind the digits: "", "e5", "E-12".
func exponent(text string) (exp int, ok bool) {
	if text == "" {
		return 0, true
	}
	if text[0] != 'e' && text[0] != 'E' || len(text) > 8 {
		return 0, false
	}
	exp, err := strconv.Atoi(text[1:])
	return exp, err == nil
}

// Scale is the number of digits behind the point.
func (d Decimal) Scale() int { return int(d.scale) }

// Sign is -1, 0 or 1.
func (d Decimal) Sign() int {
	switch {
	case d.coef.zero():
		return 0
	case d.neg:
		return -1
	default:
		return 1
	}
}

// Add is d + e, with as many digits behind the point as the longer of the two has; ErrOverflow if that takes more
// than 38 digits.
func (d Decimal) Add(e Decimal) (Decimal, error) {
	if d.scale == e.scale && d.neg == e.neg && d.coef.hi|e.coef.hi == 0 {
		if lo, carry := bits.Add64(d.coef.lo, e.coef.lo, 0); carry == 0 { // money
			return Decimal{coef: wide{lo: lo}, scale: d.scale, neg: d.neg}, nil
		}
	}
	scale := max(d.scale, e.scale)
	a, ok1 := d.coef.shift(int(scale - d.scale))
	b, ok2 := e.coef.shift(int(scale - e.scale))
	sum := Decimal{scale: scale, neg: d.neg}
	ok := ok1 && ok2 && a.cmp(most) <= 0 && b.cmp(most) <= 0
	switch {
	case !ok:
	case d.neg == e.neg:
		sum.coef, ok = a.add(b)
	case a.cmp(b) >= 0:
		sum.coef = a.sub(b)
	default:
		sum.coef, sum.neg = b.sub(a), e.neg
	}
	if !ok || sum.coef.cmp(most) > 0 {
		return Decimal{}, fmt.Errorf("the sum of two decimals has more than %d digits: %w", MaxDigits, ErrOverflow)
	}
	sum.neg = sum.neg && !sum.coef.zero()
	return sum, nil
}

// Cmp compares the numbers: -1, 0 or 1. 3.30 and 3.3 are the same.
func (d Decimal) Cmp(e Decimal) int {
	if s := cmp.Compare(d.Sign(), e.Sign()); s != 0 {
		return s
	}
	scale := max(d.scale, e.scale)
	a, ok1 := d.coef.shift(int(scale - d.scale))
	b, ok2 := e.coef.shift(int(scale - e.scale))
	c := a.cmp(b)
	switch { // at most one of the two was shifted; past 128 bits it is the larger
	case !ok1:
		c = 1
	case !ok2:
		c = -1
	}
	if d.neg {
		return -c
	}
	return c
}

// Quo is d divided by a positive n, rounded half to even to scale digits behind the point (0 to 38); ErrOverflow if
// that takes more than 38 digits.
func (d Decimal) Quo(n int64, scale int) (Decimal, error) {
	if n <= 0 || scale < 0 || scale > MaxDigits {
		return Decimal{}, fmt.Errorf("a decimal divided by %d to %d digits behind the point: give a positive divisor and 0 to %d digits", n, scale, MaxDigits)
	}
	by := uint64(n)
	q, rest := d.coef.div(by)
	var half int // the rest compared with half of the last digit's worth
	for s := int(d.scale); s < scale; s++ {
		hi, lo := bits.Mul64(rest, 10)
		digit, r := bits.Div64(hi, lo, by) // rest < by, so the digit is below 10
		rest = r
		next, ok1 := q.mul(10)
		next, ok2 := next.add(wide{lo: digit})
		if !ok1 || !ok2 || next.cmp(most) > 0 {
			return Decimal{}, fmt.Errorf("a decimal divided by %d to %d digits behind the point has more than %d digits: %w", n, scale, MaxDigits, ErrOverflow)
		}
		q = next
	}
	half = cmp.Compare(rest, by-rest)
	for s := int(d.scale); s > scale; s-- {
		below := rest != 0
		var digit uint64
		q, digit = q.div(10)
		half = cmp.Compare(digit, 5)
		if half == 0 && below {
			half = 1
		}
		rest |= digit
	}
	if half > 0 || half == 0 && q.lo&1 == 1 {
		q, _ = q.add(wide{lo: 1}) // below 128 bits by far
	}
	if q.cmp(most) > 0 {
		return Decimal{}, fmt.Errorf("a decimal divided by %d to %d digits behind the point has more than %d digits: %w", n, scale, MaxDigits, ErrOverflow)
	}
	return Decimal{coef: q, scale: uint8(scale), neg: d.neg && !q.zero()}, nil // 0 to 38
}

// Append appends the number as text: "-12.50".
func (d Decimal) Append(dst []byte) []byte {
	if d.neg {
		dst = append(dst, '-')
	}
	first := len(dst)
	rest, low := d.coef.div(tenTo[19])
	rest, mid := rest.div(tenTo[19])
	for _, part := range [...]uint64{rest.lo, mid, low} {
		width := 0
		if len(dst) > first {
			width = 19
		}
		if part != 0 || width > 0 {
			dst = appendPadded(dst, part, width)
		}
	}
	for len(dst)-first <= int(d.scale) { // a digit stands in front of the point
		dst = slices.Insert(dst, first, '0')
	}
	if d.scale > 0 {
		dst = slices.Insert(dst, len(dst)-int(d.scale), '.')
	}
	return dst
}

// String is the number as Append writes it.
func (d Decimal) String() string { return string(d.Append(nil)) }

func appendPadded(dst []byte, v uint64, width int) []byte {
	var buf [20]byte
	text := strconv.AppendUint(buf[:0], v, 10)
	for n := len(text); n < width; n++ {
		dst = append(dst, '0')
	}
	return append(dst, text...)
}

// AppendBinary appends a form that DecodeDecimal reads; it never changes.
func (d Decimal) AppendBinary(dst []byte) []byte {
	head := d.scale << 1
	if d.neg {
		head |= 1
	}
	dst = append(dst, head)
	if d.coef.hi == 0 {
		return binary.AppendUvarint(append(dst, 0), d.coef.lo)
	}
	return binary.BigEndian.AppendUint64(binary.AppendUvarint(dst, d.coef.hi), d.coef.lo)
}

// DecodeDecimal reads what AppendBinary wrote, and returns what follows it. Not ok: it is damaged.
func DecodeDecimal(src []byte) (d Decimal, rest []byte, ok bool) {
	if len(src) == 0 {
		return Decimal{}, nil, false
	}
	d = Decimal{scale: src[0] >> 1, neg: src[0]&1 == 1}
	src = src[1:]
	var n int
	if d.coef.hi, n = binary.Uvarint(src); n <= 0 {
		return Decimal{}, nil, false
	}
	if src = src[n:]; d.coef.hi == 0 {
		d.coef.lo, n = binary.Uvarint(src)
	} else if n = min(len(src), 8); n == 8 {
		d.coef.lo = binary.BigEndian.Uint64(src)
	} else {
		n = 0
	}
	if n <= 0 || d.scale > MaxDigits || d.coef.cmp(most) > 0 || d.neg && d.coef.zero() {
		return Decimal{}, nil, false
	}
	return d, src[n:], true
}
