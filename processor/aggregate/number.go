package aggregate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Kind is what a [Number] is.
type Kind uint8

// The kinds of numbers. The zero value is none.
const (
	kindUnset Kind = iota
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
	case kindUnset:
	}
	return "no number"
}

// Number is an int64, a float64 or a [Decimal], where it is known at run time only which. The zero value
// is no number; adding it is an error.
type Number struct {
	kind Kind
	dec  Decimal // an integer or the bits of a float stand in coef.lo
}

var errNoNumber = errors.New("no number")

// IntNumber is an integer as a Number.
func IntNumber(v int64) Number {
	return Number{KindInt, Decimal{coef: wide{lo: uint64(v)}}} // its bits
}

// FloatNumber is a float as a Number. NaN and the infinities are refused when they are added.
func FloatNumber(v float64) Number {
	return Number{KindFloat, Decimal{coef: wide{lo: math.Float64bits(v)}}}
}

// DecimalNumber is a decimal as a Number.
func DecimalNumber(v Decimal) Number { return Number{KindDecimal, v} }

// ParseNumber reads a number of JSON: with a point or an exponent it is a float, else an integer. What does
// not fit is ErrOverflow. (A decimal is a string in JSON; see [ParseDecimal].) It keeps nothing of text.
func ParseNumber[S ~string | ~[]byte](text S) (Number, error) {
	n, err := parseNumber(string(text)) // as in ParseDecimal
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, strconv.ErrRange):
		return Number{}, fmt.Errorf("%q does not fit into 64 bits: %w", string(text), ErrOverflow)
	default:
		return Number{}, fmt.Errorf("%q is not a number", string(text))
	}
}

func parseNumber(text string) (Number, error) {
	digits, isFloat := 0, false
	for i := range len(text) {
		switch c := text[i]; {
		case c-'0' <= 9:
			digits++
		case c == '-' && i == 0:
		case c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-':
			isFloat = true
		default:
			return Number{}, errNoNumber // also what Go has beyond JSON: 0x, 1_000, Inf
		}
	}
	if digits == 0 {
		return Number{}, errNoNumber
	}
	if !isFloat {
		v, err := strconv.ParseInt(text, 10, 64)
		return IntNumber(v), err
	}
	v, err := strconv.ParseFloat(text, 64)
	return FloatNumber(v), err
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

func (n Number) int() int64     { return int64(n.dec.coef.lo) } // its bits
func (n Number) float() float64 { return math.Float64frombits(n.dec.coef.lo) }

// valid is the error of adding n.
func (n Number) valid() error {
	switch n.kind {
	case kindUnset:
		return errNoNumber
	case KindFloat:
		return checkFinite(n.float())
	case KindInt, KindDecimal:
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
		if f := n.float(); finite(f) {
			return appendJSONFloat(dst, f)
		}
	case kindUnset:
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

// compare orders two numbers by their exact values; not a decimal and a float.
func compare(a, b Number) int {
	switch {
	case a.kind == KindInt && b.kind == KindInt:
		return cmp.Compare(a.int(), b.int())
	case a.kind == KindFloat && b.kind == KindFloat:
		return cmp.Compare(a.float(), b.float())
	case a.kind == KindFloat:
		return -compareIntFloat(b.int(), a.float())
	case b.kind == KindFloat:
		return compareIntFloat(a.int(), b.float())
	default:
		return a.decimal().Cmp(b.decimal())
	}
}

// decimal is an integer or a decimal as a decimal.
func (n Number) decimal() Decimal {
	if n.kind == KindInt {
		return DecimalOf(n.int())
	}
	return n.dec
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

func (n Number) encode(dst []byte) []byte {
	dst = append(dst, byte(n.kind))
	switch n.kind {
	case KindInt:
		return appendInts(dst, n.int())
	case KindFloat:
		return appendFloat(dst, n.float())
	case KindDecimal:
		return n.dec.encode(dst)
	case kindUnset:
	}
	return dst
}

func (n *Number) decode(r *reader) {
	*n = Number{}
	switch k := Kind(r.byte()); k {
	case KindInt:
		*n = IntNumber(r.varint())
	case KindFloat:
		*n = FloatNumber(r.float())
	case KindDecimal:
		n.kind = k
		n.dec.decode(r)
	case kindUnset:
	default:
		r.fail()
	}
}
