package number

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func decimals() *rapid.Generator[Decimal] {
	return rapid.Custom(func(t *rapid.T) Decimal {
		d, err := ParseDecimal(rapid.StringMatching(`-?(0|[1-9][0-9]{0,4}|[0-9]{30,38})`).Draw(t, "digits"))
		if err != nil {
			t.Fatal(err)
		}
		d.scale = uint8(rapid.SampledFrom([]int{0, 2, 2, 2, 3, 38}).Draw(t, "scale"))
		return d
	})
}

// rat is a decimal as the standard library reads it.
func rat(t interface{ Fatalf(string, ...any) }, d Decimal) *big.Rat {
	r, ok := new(big.Rat).SetString(d.String())
	if !ok {
		t.Fatalf("%q is not a number", d)
	}
	return r
}

func TestDecimalsAreReadAsWritten(t *testing.T) {
	nines := strings.Repeat("9", 38)
	for _, c := range []struct{ in, want string }{
		{"0", "0"},
		{"-0", "0"},
		{"-0.00", "0.00"},
		{"3.30", "3.30"},
		{"007", "7"},
		{"-12.50", "-12.50"},
		{"1.5e3", "1500"},
		{"1.5E-3", "0.0015"},
		{"15e+1", "150"},
		{"0e999", "0"},
		{"1e37", "1" + strings.Repeat("0", 37)},
		{nines, nines},
		{"-0." + nines, "-0." + nines},
		{"18446744073709551616", "18446744073709551616"},
		{strings.Repeat("0", 100) + "1", "1"},
		{"10000000000000000000.0000000000000000001", ""},
		{"1" + nines, ""},
		{"1e38", ""},
		{"1e9999999", ""},
		{"1e-39", ""},
		{"1e-99999999999", ""},
		{"0." + nines + "0", ""},
	} {
		for _, in := range []string{c.in, strings.ReplaceAll(c.in, "e", "E")} {
			d, err := ParseDecimal([]byte(in))
			switch {
			case c.want == "" && !errors.Is(err, ErrOverflow) && !errors.Is(err, errDecimal):
				t.Errorf("%q: got %v, %v", in, d, err)
			case c.want != "" && (err != nil || d.String() != c.want):
				t.Errorf("%q: got %q, %v", in, d, err)
			}
		}
	}
	for _, in := range []string{"", "-", ".", "5.", ".5", "+5", "1,5", "1_0", "0x1", "NaN", "1e", "1e+", "e5", " 1", "1 ", "1.2.3", "--1", "1e5.0", "∞", "1e99999999"} {
		if d, err := ParseDecimal(in); !errors.Is(err, errDecimal) {
			t.Errorf("%q: got %v, %v", in, d, err)
		}
	}
}

func TestDecimalsCountAsTheStandardLibraryDoes(t *testing.T) {
	limit, _ := new(big.Rat).SetString("1" + strings.Repeat("0", MaxDigits))
	rapid.Check(t, func(t *rapid.T) {
		a, b := decimals().Draw(t, "a"), decimals().Draw(t, "b")
		x, y := rat(t, a), rat(t, b)
		if back, err := ParseDecimal(a.String()); err != nil || back != a {
			t.Fatalf("%v came back as %v, %v", a, back, err)
		}
		if a.Cmp(b) != x.Cmp(y) || a.Sign() != x.Sign() {
			t.Fatalf("%v and %v compare %d, sign %d", a, b, a.Cmp(b), a.Sign())
		}
		sum, err := a.Add(b)
		want := new(big.Rat).Add(x, y)
		scale := max(a.Scale(), b.Scale())
		fits := true // with so many digits behind the point
		for _, r := range []*big.Rat{x, y, want} {
			fits = fits && new(big.Rat).Mul(new(big.Rat).Abs(r), pow10(scale)).Cmp(limit) < 0
		}
		switch {
		case fits != (err == nil), err != nil && !errors.Is(err, ErrOverflow):
			t.Fatalf("%v + %v: %v", a, b, err)
		case err == nil && (rat(t, sum).Cmp(want) != 0 || sum.Scale() != scale || sum.neg && sum.Sign() == 0):
			t.Fatalf("%v + %v = %v", a, b, sum)
		}
		n, to := rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Min(1)).Draw(t, "n"), rapid.IntRange(0, MaxDigits).Draw(t, "to")
		got, err := a.Quo(n, to)
		exact := new(big.Rat).Quo(x, new(big.Rat).SetInt64(n))
		rounded := halfEven(new(big.Rat).Mul(exact, pow10(to)))
		if fits := new(big.Int).Abs(rounded).Cmp(limit.Num()) < 0; fits != (err == nil) {
			t.Fatalf("%v / %d to %d: %v, %v", a, n, to, got, err)
		}
		if err == nil && (rat(t, got).Cmp(new(big.Rat).Quo(new(big.Rat).SetInt(rounded), pow10(to))) != 0 || got.Scale() != to) {
			t.Fatalf("%v / %d to %d = %v", a, n, to, got)
		}
	})
	for _, c := range []struct{ n, scale int }{{0, 2}, {-1, 2}, {1, -1}, {1, 39}} {
		if d, err := WholeDecimal(1).Quo(int64(c.n), c.scale); err == nil {
			t.Errorf("1 / %d to %d: got %v", c.n, c.scale, d)
		}
	}
}

func pow10(n int) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil))
}

// halfEven rounds to the nearest integer, half to even.
func halfEven(r *big.Rat) *big.Int {
	twice := new(big.Int).Mul(r.Num(), big.NewInt(2))
	q := new(big.Int).Div(twice.Add(twice, r.Denom()), new(big.Int).Mul(r.Denom(), big.NewInt(2))) // floor(r + 1/2)
	if new(big.Rat).Sub(new(big.Rat).SetInt(q), r).Cmp(big.NewRat(1, 2)) == 0 && q.Bit(0) == 1 {
		q.Sub(q, big.NewInt(1))
	}
	return q
}

func TestIntegersAsDecimals(t *testing.T) {
	for _, v := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		if d := WholeDecimal(v); d.String() != fmt.Sprint(v) {
			t.Errorf("%d: got %v", v, d)
		}
	}
}

func TestNumbersAreReadFromJSON(t *testing.T) {
	for in, want := range map[string]struct {
		kind Kind
		text string
		err  error
	}{
		"0":                   {KindInt, "0", nil},
		"-12":                 {KindInt, "-12", nil},
		"9223372036854775807": {KindInt, "9223372036854775807", nil},
		"9223372036854775808": {err: ErrOverflow},
		"1.0":                 {KindFloat, "1.0", nil},
		"1e3":                 {KindFloat, "1000.0", nil},
		"-2.5E-10":            {KindFloat, "-2.5e-10", nil},
		"1e400":               {err: ErrOverflow},
		"1e-400":              {KindFloat, "0.0", nil},
		"":                    {err: errAny},
		"-":                   {err: errAny},
		"1-2":                 {err: errAny},
		"0x10":                {err: errAny},
		"1_000":               {err: errAny},
		"NaN":                 {err: errAny},
		"Infinity":            {err: errAny},
		"1.2.3":               {err: errAny},
		" 1":                  {err: errAny},
	} {
		n, err := Parse([]byte(in))
		switch {
		case want.err == nil && (err != nil || n.Kind() != want.kind || string(n.AppendJSON(nil)) != want.text):
			t.Errorf("%q: got %s %v, %v", in, n.Kind(), n, err)
		case want.err != nil && err == nil, errors.Is(want.err, ErrOverflow) && !errors.Is(err, ErrOverflow):
			t.Errorf("%q: got %v, %v", in, n, err)
		}
	}
	d, err := ParseDecimal("1.50")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(OfDecimal(d).AppendJSON(nil)); got != `"1.50"` {
		t.Errorf("got %s", got)
	}
}

var errAny = errors.New("any")

func numbers() *rapid.Generator[Number] {
	return rapid.OneOf(rapid.Map(rapid.Int64(), OfInt), rapid.Map(rapid.Float64(), OfFloat), rapid.Map(decimals(), OfDecimal), rapid.Just(Number{}))
}

// TestNumbersComeBackFromBytes: and what is cut off is damage.
func TestNumbersComeBackFromBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := numbers().Draw(t, "n")
		code := n.AppendBinary(nil)
		if back, rest, ok := Decode(append(code, "rest"...)); !ok || back != n || string(rest) != "rest" {
			t.Fatalf("%v came back as %v before %q, %v", n, back, rest, ok)
		}
		for i := range code {
			if back, _, ok := Decode(code[:i]); ok {
				t.Fatalf("%d bytes of %x are %v", i, code, back)
			}
		}
	})
}

// TestNumbersCompareByTheirExactValues: integers with floats, and integers with decimals.
func TestNumbersCompareByTheirExactValues(t *testing.T) {
	exact := func(n Number) *big.Rat {
		if f, ok := n.Float(); ok {
			return new(big.Rat).SetFloat64(f)
		}
		r, _ := new(big.Rat).SetString(n.String())
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		ints := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3), rapid.Int64Range(math.MaxInt64-2, math.MaxInt64), rapid.Int64Range(math.MinInt64, math.MinInt64+2), rapid.Int64Range(1<<53-2, 1<<53+2))
		i := OfInt(ints.Draw(t, "i"))
		near := float64(ints.Draw(t, "near")) + rapid.SampledFrom([]float64{0, 0.5, -0.5}).Draw(t, "off")
		for _, other := range []Number{OfInt(ints.Draw(t, "j")), OfFloat(near), OfFloat(rapid.Float64().Draw(t, "f")), OfDecimal(decimals().Draw(t, "d"))} {
			if want := exact(i).Cmp(exact(other)); i.Compare(other) != want || other.Compare(i) != -want {
				t.Fatalf("%v and %v compare %d and %d, want %d", i, other, i.Compare(other), other.Compare(i), want)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, n := range []Number{{}, OfInt(-300), OfFloat(0.5), OfDecimal(Decimal{coef: most, scale: 38, neg: true}), OfDecimal(WholeDecimal(7))} {
		f.Add(n.AppendBinary(nil))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		n, rest, ok := Decode(src)
		if !ok {
			return
		}
		if back, more, ok := Decode(append(n.AppendBinary(nil), rest...)); !ok || back != n || string(more) != string(rest) {
			t.Errorf("%x is %v, which came back as %v, %v", src, n, back, ok)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0", "-12.50", "1e5", "1.5E-3", "99999999999999999999999999999999999999", "1e38", "-", "1.", "0x1p-2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDecimal(text)
		if err == nil {
			exact, ok := new(big.Rat).SetString(text)
			if !ok || exact.Cmp(rat(t, d)) != 0 {
				t.Errorf("%q became %v", text, d)
			}
		}
		n, err := Parse(text)
		if err == nil && n.Valid() != nil {
			t.Errorf("%q became %v", text, n)
		}
		if back, again := Parse(n.Append(nil)); err == nil && (again != nil || back != n) {
			t.Errorf("%q became %v and then %v, %v", text, n, back, again)
		}
	})
}
