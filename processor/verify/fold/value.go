package fold

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Rational returns a number as an exact one: an integer, a finite float, a decimal, or text that is one,
// as JSON has it. Exponents are bounded, or a few bytes could ask for gigabytes.
func Rational(v any) (*big.Rat, bool) {
	switch x := v.(type) {
	case int64:
		return new(big.Rat).SetInt64(x), true
	case int:
		return new(big.Rat).SetInt64(int64(x)), true
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, false
		}
		return new(big.Rat).SetFloat64(x), true
	case *big.Rat:
		return x, true
	case json.Number:
		return ratOf(string(x))
	}
	return nil, false
}

const maxExponent = 400

func ratOf(text string) (*big.Rat, bool) {
	if len(text) > maxExponent || strings.ContainsAny(text, "/xXoObBpP_") {
		return nil, false
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		if e, err := strconv.Atoi(text[at+1:]); err != nil || e > maxExponent || e < -maxExponent {
			return nil, false
		}
	}
	return new(big.Rat).SetString(text)
}

// Decimal reads text as an exact number: digits with a point and a sign, or with an exponent.
func Decimal(text string) (*big.Rat, bool) { return ratOf(text) }

// order compares two values of one kind; numbers come before everything else.
func order(a, b any) int {
	x, isNumber := Rational(a)
	y, isOther := Rational(b)
	switch {
	case isNumber && isOther:
		return x.Cmp(y)
	case isNumber:
		return -1
	case isOther:
		return 1
	}
	return cmp.Compare(Canonical(a), Canonical(b))
}

// Canonical is a value as text, the same for equal ones.
func Canonical(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case string:
		return "s" + x
	case []byte:
		return "s" + string(x)
	case bool:
		return strconv.FormatBool(x)
	case json.Number: // with a fraction it was written as a float, which is seldom what the digits say
		if f, err := x.Float64(); err == nil && strings.ContainsAny(string(x), ".eE") {
			return Canonical(f)
		}
	}
	if r, ok := Rational(v); ok {
		return "n" + r.RatString()
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("?%v", v)
	}
	return "j" + string(text)
}

// unlike says how a value is another than it must be, or "". A decimal may be text.
func unlike(is, must any) string {
	if f, float := must.(float64); float {
		return far(is, f, 0)
	}
	if r, number := Rational(must); number {
		if text, ok := is.(string); ok {
			if d, ok := ratOf(text); ok && d.Cmp(r) == 0 {
				return ""
			}
		} else if d, ok := Rational(is); ok && d.Cmp(r) == 0 {
			return ""
		}
		return mustBe(is, must)
	}
	if Canonical(is) == Canonical(must) {
		return ""
	}
	return mustBe(is, must)
}

func mustBe(is, must any) string { return "is " + shown(is) + ", and must be " + shown(must) }

func empty(is any) string {
	if is == nil {
		return ""
	}
	return "is " + shown(is) + ", and there is no value"
}

// far says that a float is further from what it must be than rounding explains, or "".
func far(is any, must, slack float64) string {
	var f float64
	switch x := is.(type) {
	case float64:
		f = x
	case int64:
		f = float64(x)
	case json.Number:
		var err error
		if f, err = x.Float64(); err != nil {
			return mustBe(is, must)
		}
	default:
		return mustBe(is, must)
	}
	if d := math.Abs(f - must); d <= slack || f == must {
		return ""
	}
	return mustBe(is, must)
}

// meanDigits is how many digits behind the point a mean of decimals has at least, where it is not exact.
const meanDigits = 6

// roundedMean judges a mean of decimals, which is rounded at its last digit.
func roundedMean(is string, must *big.Rat) string {
	d, ok := ratOf(is)
	if !ok {
		return mustBe(is, must)
	}
	digits := 0
	if at := strings.IndexByte(is, '.'); at >= 0 {
		digits = len(is) - at - 1
	}
	unit := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil))
	off := new(big.Rat).Sub(d, must)
	off.Abs(off).Mul(off, big.NewRat(2, 1))
	if off.Sign() == 0 || digits >= meanDigits && off.Cmp(unit) <= 0 {
		return ""
	}
	return mustBe(is, must)
}

// shown shows a value to people.
func shown(v any) string {
	switch x := v.(type) {
	case nil:
		return "nothing"
	case string:
		return strconv.Quote(x)
	case []byte:
		return strconv.Quote(string(x))
	case *big.Rat:
		if x.IsInt() {
			return x.Num().String()
		}
		return strings.TrimRight(x.FloatString(20), "0")
	case json.Number, int64, int, float64, bool:
		return fmt.Sprint(x)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// Object reads one JSON object, numbers as json.Number.
func Object(doc []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	if fields == nil || d.More() {
		return nil, errors.New("not one JSON object")
	}
	return fields, nil
}

// FormJSON brings a JSON document into one form: members sorted, numbers as they are worth. What is no JSON
// stays as it is.
func FormJSON(value []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return value
	}
	return appendForm(nil, v)
}

func appendForm(dst []byte, v any) []byte {
	switch x := v.(type) {
	case map[string]any:
		dst = append(dst, '{')
		for _, k := range slices.Sorted(maps.Keys(x)) {
			dst = append(strconv.AppendQuote(dst, k), ':')
			dst = append(appendForm(dst, x[k]), ',')
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for _, y := range x {
			dst = append(appendForm(dst, y), ',')
		}
		return append(dst, ']')
	case string:
		return strconv.AppendQuote(dst, x)
	case json.Number:
		if r, ok := ratOf(string(x)); ok {
			return append(dst, r.RatString()...)
		}
		return append(dst, x...)
	}
	return fmt.Append(dst, v)
}
