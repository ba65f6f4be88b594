package column

import (
	"bytes"
	"strconv"
)

// decimal is a number as it is written: sign, digits without zeros at either end, and the place of the point.
type decimal struct {
	negative bool
	digits   []byte // of text; none: zero
	// point is how many digits stand before the decimal point; it may be negative or behind the last.
	point int
}

// maxPoint bounds exponents. PostgreSQL's numerics have 131,072 digits before the point and 16,383 behind it.
const maxPoint = 131_072

// readDecimal reads a number as JSON writes it, and with a plus before it. Its digits may share text's bytes.
func readDecimal(text []byte) (d decimal, ok bool) {
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		d.negative, text = text[0] == '-', text[1:]
	}
	mantissa, exponent := text, 0
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		n, err := strconv.Atoi(string(text[i+1:]))
		if err != nil {
			return decimal{}, false
		}
		mantissa, exponent = text[:i], n
	}
	whole, fraction, dotted := bytes.Cut(mantissa, []byte{'.'})
	if !allDigits(whole) || !allDigits(fraction) || len(whole) == 0 || dotted && len(fraction) == 0 {
		return decimal{}, false
	}
	all := whole
	if dotted {
		all = append(append(make([]byte, 0, len(mantissa)), whole...), fraction...)
	}
	lead := len(all) - len(bytes.TrimLeft(all, "0"))
	d.digits = bytes.TrimRight(all[lead:], "0")
	if len(d.digits) == 0 {
		return decimal{}, true
	}
	if exponent > 2*maxPoint || exponent < -2*maxPoint {
		return decimal{}, false
	}
	d.point = len(whole) - lead + exponent
	return d, true
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// fraction is how many digits stand behind the point.
func (d decimal) fraction() int { return max(len(d.digits)-d.point, 0) }

// integer is the number as one, if it is one of that many bits.
func (d decimal) integer(bits int) (int64, bool) {
	if len(d.digits) == 0 {
		return 0, true
	}
	if d.fraction() > 0 || d.point > 19 {
		return 0, false
	}
	text := make([]byte, 0, 20)
	if d.negative {
		text = append(text, '-')
	}
	text = append(text, d.digits...)
	for len(text) < d.point || d.negative && len(text) == d.point {
		text = append(text, '0')
	}
	v, err := strconv.ParseInt(string(text), 10, bits)
	return v, err == nil
}

// appendTo appends the number without exponent.
func (d decimal) appendTo(dst []byte) []byte {
	if len(d.digits) == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	if d.point <= 0 {
		dst = append(dst, '0')
	}
	for i := range max(d.point, len(d.digits)) - min(d.point, 0) {
		at := i + min(d.point, 0) // among the digits
		if at == d.point {
			dst = append(dst, '.')
		}
		if at < 0 || at >= len(d.digits) {
			dst = append(dst, '0')
		} else {
			dst = append(dst, d.digits[at])
		}
	}
	return dst
}
