package aggregate

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustDecimal(t testing.TB, s string) Decimal {
	t.Helper()
	d, err := ParseDecimal(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
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
	limit, _ := new(big.Rat).SetString("1" + strings.Repeat("0", maxDigits))
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
		n, to := rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Min(1)).Draw(t, "n"), rapid.IntRange(0, maxDigits).Draw(t, "to")
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
		if d, err := DecimalOf(1).Quo(int64(c.n), c.scale); err == nil {
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
		if d := DecimalOf(v); d.String() != fmt.Sprint(v) {
			t.Errorf("%d: got %v", v, d)
		}
	}
}

// TestFloatSumsAreExact: the sum is the exact one, rounded once, in whatever order the records come.
func TestFloatSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s, mix FloatSum
		exact := new(big.Float).SetPrec(2500)
		small := rapid.OneOf(rapid.Float64Range(-1e9, 1e9), rapid.Map(rapid.Uint64(), func(b uint64) float64 {
			return math.Float64frombits(b &^ (1 << 62)) // below 2 in magnitude: no overflow
		}), rapid.SampledFrom([]float64{1, 0x1p53, 0x1p-53, 0x1p-54, 0x1p106, -0x1p-53, 5e-324}))
		values := rapid.SliceOf(small).Draw(t, "values")
		for _, v := range values {
			if err := s.add(v); err != nil {
				t.Fatal(err)
			}
			exact.Add(exact, new(big.Float).SetFloat64(v))
		}
		if want, _ := exact.Float64(); s.Value() != want {
			t.Fatalf("got %g, want %g", s.Value(), want)
		}
		for _, i := range rapid.Permutation(values).Draw(t, "order") {
			if err := mix.add(i); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := mix.encode(nil), s.encode(nil); string(got) != string(want) {
			t.Fatalf("in another order the sum is %x, not %x", got, want)
		}
		n := rapid.Int64().Draw(t, "integer")
		if err := s.addInt(n); err != nil {
			t.Fatal(err)
		}
		if want, _ := exact.Add(exact, new(big.Float).SetInt64(n)).Float64(); s.Value() != want {
			t.Fatalf("with %d: got %g, want %g", n, s.Value(), want)
		}
	})
	var s FloatSum
	for range 2 {
		if err := s.add(math.MaxFloat64); err != nil && !errors.Is(err, ErrOverflow) {
			t.Fatal(err)
		}
	}
	if s.Value() != math.MaxFloat64 {
		t.Errorf("after an overflow: %g", s.Value())
	}
}

func TestNumbersMixByTheRules(t *testing.T) {
	d := func(s string) Number { return DecimalNumber(mustDecimal(t, s)) }
	i, f := IntNumber, FloatNumber
	for _, c := range []struct {
		in               []Number
		sum, least, most string
		avg              string
		err              error
		errSum           error // of sums alone
	}{
		{in: nil, sum: "null", least: "null", most: "null", avg: "null"},
		{in: []Number{i(1), i(2)}, sum: "3", least: "1", most: "2", avg: "1.5"},
		{in: []Number{i(math.MaxInt64), i(1)}, least: "1", most: "9223372036854775807", errSum: ErrOverflow},
		{in: []Number{f(0.1), f(0.2), f(0.3)}, sum: "0.6", least: "0.1", most: "0.3", avg: "0.19999999999999998"},
		{in: []Number{i(1), f(0.5)}, sum: "1.5", least: "0.5", most: "1", avg: "0.75"},
		{in: []Number{f(0.5), i(1), i(1)}, sum: "2.5", least: "0.5", most: "1", avg: "0.8333333333333334"},
		{in: []Number{i(math.MaxInt64), f(1), i(-math.MaxInt64)}, sum: "1.0", least: "-9223372036854775807", most: "9223372036854775807", avg: "0.3333333333333333"},
		{in: []Number{f(0x1p63), i(math.MaxInt64)}, sum: "18446744073709552000.0", least: "9223372036854775807", most: "9223372036854776000.0", avg: "9223372036854776000.0"},
		{in: []Number{d("1.10"), d("2.2")}, sum: "3.30", least: "1.10", most: "2.2", avg: "1.65000000"},
		{in: []Number{i(1), d("0.01"), i(math.MaxInt64)}, sum: "9223372036854775808.01", least: "0.01", most: "9223372036854775807", avg: "3074457345618258602.67000000"},
		{in: []Number{d("2"), d("1"), d("1")}, sum: "4", least: "1", most: "2", avg: "1.333333"},
		{in: []Number{d("0.1"), f(0.1)}, err: ErrMixed},
		{in: []Number{f(0.1), i(1), d("0.1")}, err: ErrMixed},
		{in: []Number{i(1), f(math.NaN())}, err: ErrNotFinite},
		{in: []Number{f(math.Inf(1))}, err: ErrNotFinite},
		{in: []Number{{}}, err: errNoNumber},
	} {
		sum, avg := SumNumber(num), AvgNumber(num)
		least, most := MinNumber(num), MaxNumber(num)
		var s NumberSum
		var a NumberMean
		var lo, hi NumberExtreme
		sum.Init(&s)
		avg.Init(&a)
		least.Init(&lo)
		most.Init(&hi)
		var errSum, err error
		for _, n := range c.in {
			rec := &reading{number: n}
			errSum = errors.Join(errSum, sum.Add(&s, rec), avg.Add(&a, rec))
			err = errors.Join(err, least.Add(&lo, rec), most.Add(&hi, rec))
		}
		wantSum := c.errSum
		if wantSum == nil {
			wantSum = c.err
		}
		if !errors.Is(err, c.err) || !errors.Is(errSum, wantSum) {
			t.Errorf("%v: got %v and %v", c.in, err, errSum)
			continue
		}
		if c.err == nil && (lo.Value.String() != c.least || hi.Value.String() != c.most) {
			t.Errorf("%v: least %v, most %v", c.in, lo.Value, hi.Value)
		}
		if wantSum == nil && (s.Value().String() != c.sum || a.Avg().String() != c.avg) {
			t.Errorf("%v: sum %v, mean %v", c.in, s.Value(), a.Avg())
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
		n, err := ParseNumber([]byte(in))
		switch {
		case want.err == nil && (err != nil || n.Kind() != want.kind || string(n.AppendJSON(nil)) != want.text):
			t.Errorf("%q: got %s %v, %v", in, n.Kind(), n, err)
		case want.err != nil && err == nil, errors.Is(want.err, ErrOverflow) && !errors.Is(err, ErrOverflow):
			t.Errorf("%q: got %v, %v", in, n, err)
		}
	}
	if got := string(DecimalNumber(mustDecimal(t, "1.50")).AppendJSON(nil)); got != `"1.50"` {
		t.Errorf("got %s", got)
	}
}

var errAny = errors.New("any")
