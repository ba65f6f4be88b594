package number

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Kind is what a [Number] is.
type Kind uint8

// The kinds of numbers. That of the zero value is none.
const (
	KindNone Kind = iota
	KindInt
	KindFloat
	KindDecimal
)

// String names the kind as an error does.
func (k Kind) String() string {
	switch k {
	case KindInt:
		return "integer"
	case KindFloat:
		return "float"
	case KindDecimal:
		return "decimal"
	case KindNone:
	}
	return "no number"
}

// Number is an int64, a float64 or a [Decimal], where it is known at run time only which. The zero value
// is no number; counting with it is ErrNone.
type Number struct {
	kind Kind
	dec  Decimal // an integer or the bits of a float stand in coef.lo
}

// OfInt is an integer as a Number.
func OfInt(v int64) Number {
	return Number{KindInt, Decimal{coef: wide{lo: uint64(v)}}} // its bits
}

// OfFloat is a float as a Number. NaN and the infinities are refused when one counts with them.
func OfFloat(v float64) Number {
	return Number{KindFloat, Decimal{coef: wide{lo: math.Float64bits(v)}}}
}

// OfDecimal is a decimal as a Number.
func OfDecimal(v Decimal) Number { return Number{KindDecimal, v} }

// Parse reads a number of JSON: with a point or an exponent it is a float, else an integer. What does
// not fit is ErrOverflow. (A decimal is a string in JSON; see [ParseDecimal].) It keeps nothing of text.
func Parse[S ~string | ~[]byte](text S) (Number, error) {
	n, err := parse(string(text)) // as in ParseDecimal
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, strconv.ErrRange):
		return Number{}, fmt.Errorf("the number does not fit into 64 bits: %w", ErrOverflow)
	default:
		return Number{}, errors.New("the text is not a number")
	}
}

func parse(text string) (Number, error) {
	digits, isFloat := 0, false
	for i := range len(text) {
		switch c := text[i]; {
		case c-'0' <= 9:
			digits++
		case c == '-' && i == 0:
		case c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-':
			isFloat = true
		default:
			return Number{}, ErrNone // also what Go has beyond JSON: 0x, 1_000, Inf
		}
	}
	if digits == 0 {
		return Number{}, ErrNone
	}
	if !isFloat {
		v, err := strconv.ParseInt(text, 10, 64)
		return OfInt(v), err
	}
	v, err := strconv.ParseFloat(text, 64)
	return OfFloat(v), err
}

// Kind tells which of the three it is.
func (n Number) Kind() Kind { return n.kind }

// Int is the integer, if it is one.
func (n Number) Int() (v int64, ok bool) { return int64(n.dec.coef.lo), n.kind == KindInt } // its bits

// Float is the float, if it is one.
func (n Number) Float() (v float64, ok bool) {
	return math.Float64frombits(n.dec.coef.lo), n.kind == KindFloat
}

// Decimal is the decimal, if it is one.
func (n Number) Decimal() (v Decimal, ok bool) { return n.dec, n.kind == KindDecimal }

// Exact is an integer or a decimal as a decimal; not ok otherwise.
func (n Number) Exact() (v Decimal, ok bool) {
	switch n.kind {
	case KindInt:
		return WholeDecimal(n.int()), true
	case KindDecimal:
		return n.dec, true
	case KindFloat, KindNone:
	}
	return Decimal{}, false
}

func (n Number) int() int64     { return int64(n.dec.coef.lo) } // its bits
func (n Number) float() float64 { return math.Float64frombits(n.dec.coef.lo) }

// Valid is the error of counting with n: ErrNone, ErrNotFinite.
func (n Number) Valid() error {
	switch n.kind {
	case KindNone:
		return ErrNone
	case KindFloat:
		return Finite(n.float())
	case KindInt, KindDecimal:
	}
	return nil
}

// Finite is ErrNotFinite, unless f is.
func Finite(f float64) error {
	if f-f != 0 {
		return fmt.Errorf("%v: %w", f, ErrNotFinite)
	}
	return nil
}

// AppendJSON appends it as JSON: a decimal as a string, the others as numbers; null for no number. A float of
// whole value has a point or an exponent, so that it is read as a float again.
func (n Number) AppendJSON(dst []byte) []byte {
	if n.kind == KindDecimal {
		return append(n.dec.Append(append(dst, '"')), '"')
	}
	return n.Append(dst)
}

// Append appends it as AppendJSON does, a decimal without quotes.
func (n Number) Append(dst []byte) []byte {
	switch n.kind {
	case KindInt:
		return strconv.AppendInt(dst, n.int(), 10)
	case KindDecimal:
		return n.dec.Append(dst)
	case KindFloat:
		if f := n.float(); Finite(f) == nil {
			return appendJSONFloat(dst, f)
		}
	case KindNone:
	}
	return append(dst, "null"...)
}

// String is the number as Append writes it.
func (n Number) String() string { return string(n.Append(nil)) }

func appendJSONFloat(dst []byte, f float64) []byte {
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if f == math.Trunc(f) {
		dst = append(dst, ".0"...)
	}
	return dst
}

// Compare orders two numbers by their exact values: -1, 0 or 1. It means nothing for a decimal and a float, nor for no number.
func (n Number) Compare(m Number) int {
	switch {
	case n.kind == KindInt && m.kind == KindInt:
		return cmp.Compare(n.int(), m.int())
	case n.kind == KindFloat && m.kind == KindFloat:
		return cmp.Compare(n.float(), m.float())
	case n.kind == KindFloat:
		return -compareIntFloat(m.int(), n.float())
	case m.kind == KindFloat:
		return compareIntFloat(n.int(), m.float())
	}
	a, _ := n.Exact()
	b, _ := m.Exact()
	return a.Cmp(b)
}

func compareIntFloat(i int64, f float64) int {
	switch {
	case f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole := math.Trunc(f)
	if c := cmp.Compare(i, int64(whole)); c != 0 {
		return c
	}
	return cmp.Compare(0, f-whole)
}

// AppendBinary appends a form that Decode reads; it never changes.
func (n Number) AppendBinary(dst []byte) []byte {
	dst = append(dst, byte(n.kind))
	switch n.kind {
	case KindInt:
		return binary.AppendVarint(dst, n.int())
	case KindFloat:
		return binary.BigEndian.AppendUint64(dst, n.dec.coef.lo)
	case KindDecimal:
		return n.dec.AppendBinary(dst)
	case KindNone:
	}
	return dst
}

// Decode reads what AppendBinary wrote, and returns what follows it. Not ok: it is damaged. NaN and the
// infinities count as damage.
func Decode(src []byte) (n Number, rest []byte, ok bool) {
	if len(src) == 0 {
		return Number{}, nil, false
	}
	kind := Kind(src[0])
	src = src[1:]
	switch kind {
	case KindInt:
		v, k := binary.Varint(src)
		if k <= 0 {
			return Number{}, nil, false
		}
		return OfInt(v), src[k:], true
	case KindFloat:
		if len(src) < 8 {
			return Number{}, nil, false
		}
		n = OfFloat(math.Float64frombits(binary.BigEndian.Uint64(src)))
		return n, src[8:], n.Valid() == nil
	case KindDecimal:
		d, rest, ok := DecodeDecimal(src)
		return OfDecimal(d), rest, ok
	case KindNone:
		return Number{}, src, true
	default:
		return Number{}, nil, false
	}
}
