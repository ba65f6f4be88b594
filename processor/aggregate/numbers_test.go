package aggregate

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/number"
)

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
	d := func(s string) number.Number {
		v, err := number.ParseDecimal(s)
		if err != nil {
			t.Fatal(err)
		}
		return number.OfDecimal(v)
	}
	i, f := number.OfInt, number.OfFloat
	for _, c := range []struct {
		in               []number.Number
		sum, least, most string
		avg              string
		err              error
		errSum           error // of sums alone
	}{
		{in: nil, sum: "null", least: "null", most: "null", avg: "null"},
		{in: []number.Number{i(1), i(2)}, sum: "3", least: "1", most: "2", avg: "1.5"},
		{in: []number.Number{i(math.MaxInt64), i(1)}, least: "1", most: "9223372036854775807", errSum: ErrOverflow},
		{in: []number.Number{f(0.1), f(0.2), f(0.3)}, sum: "0.6", least: "0.1", most: "0.3", avg: "0.19999999999999998"},
		{in: []number.Number{i(1), f(0.5)}, sum: "1.5", least: "0.5", most: "1", avg: "0.75"},
		{in: []number.Number{f(0.5), i(1), i(1)}, sum: "2.5", least: "0.5", most: "1", avg: "0.8333333333333334"},
		{in: []number.Number{i(math.MaxInt64), f(1), i(-math.MaxInt64)}, sum: "1.0", least: "-9223372036854775807", most: "9223372036854775807", avg: "0.3333333333333333"},
		{in: []number.Number{f(0x1p63), i(math.MaxInt64)}, sum: "18446744073709552000.0", least: "9223372036854775807", most: "9223372036854776000.0", avg: "9223372036854776000.0"},
		{in: []number.Number{d("1.10"), d("2.2")}, sum: "3.30", least: "1.10", most: "2.2", avg: "1.65000000"},
		{in: []number.Number{i(1), d("0.01"), i(math.MaxInt64)}, sum: "9223372036854775808.01", least: "0.01", most: "9223372036854775807", avg: "3074457345618258602.67000000"},
		{in: []number.Number{d("2"), d("1"), d("1")}, sum: "4", least: "1", most: "2", avg: "1.333333"},
		{in: []number.Number{d("0.1"), f(0.1)}, err: ErrMixed},
		{in: []number.Number{f(0.1), i(1), d("0.1")}, err: ErrMixed},
		{in: []number.Number{i(1), f(math.NaN())}, err: ErrNotFinite},
		{in: []number.Number{f(math.Inf(1))}, err: ErrNotFinite},
		{in: []number.Number{{}}, err: number.ErrNone},
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
