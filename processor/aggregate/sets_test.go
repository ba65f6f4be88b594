package aggregate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fold adds all records, which must go well.
func fold[A any](t interface{ Fatalf(string, ...any) }, agg Of[reading, A], records []reading) A {
	var acc A
	agg.Init(&acc)
	for i := range records {
		if err := agg.Add(&acc, &records[i]); err != nil {
			t.Fatalf("%s: record %d: %v", agg.Name(), i, err)
		}
	}
	return acc
}

// TestValuesAreWhatANaiveCountSays: distinct, top k, largest, first and last against maps and sorts.
func TestValuesAreWhatANaiveCountSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) reading {
			return reading{
				at: rapid.Int64Range(-3, 3).Draw(t, "at"), value: rapid.Int64Range(-9, 9).Draw(t, "value"),
				text: strconv.Itoa(rapid.IntRange(0, 60).Draw(t, "text")),
			}
		}), 1, 300).Draw(t, "records")
		counts := map[string]int64{}
		var order []string
		for _, r := range records {
			if counts[r.text]++; counts[r.text] == 1 {
				order = append(order, r.text)
			}
		}
		set := fold(t, Distinct(MaxLimit, text), records)
		var got []string
		for i := range set.Len() {
			got = append(got, string(set.At(i)))
		}
		if !slices.Equal(got, order) {
			t.Fatalf("distinct %q, want %q", got, order)
		}
		if n := fold(t, ApproxDistinct(0.02, text), records); n.Count() != int64(len(order)) {
			t.Fatalf("estimate of %d is %d", len(order), n.Count())
		}

		k := rapid.IntRange(1, 70).Draw(t, "k")
		slices.SortFunc(order, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
		top := fold(t, TopK(MaxLimit, text), records).AppendTop([]Counted{{Count: -1}}, k)[1:]
		want := order[:min(k, len(order))]
		if !slices.EqualFunc(top, want, func(c Counted, w string) bool { return string(c.Value) == w && c.Count == counts[w] }) {
			t.Fatalf("top %d: %v, want %q of %v", k, top, want, counts)
		}

		items := fold(t, Largest(k, value, text), records)
		sorted := slices.Clone(records)
		slices.SortStableFunc(sorted, func(a, b reading) int { return cmp.Compare(b.value, a.value) })
		if !slices.EqualFunc(items.Items(), sorted[:min(k, len(sorted))], func(r Ranked, w reading) bool { return r.By == w.value && string(r.Value) == w.text }) {
			t.Fatalf("largest %d: %v of %v", k, items.Items(), records)
		}

		slices.SortStableFunc(records, func(a, b reading) int { return cmp.Compare(a.at, b.at) })
		if f := fold(t, First(at, text), records); f.At != records[0].at || string(f.Value) != records[0].text {
			t.Fatalf("first %d %q", f.At, f.Value)
		}
		end := records[len(records)-1]
		if l := fold(t, Last(at, text), records); l.At != end.at || string(l.Value) != end.text {
			t.Fatalf("last %d %q", l.At, l.Value)
		}
	})
}

func TestFirstAndLastDoNotDependOnTheOrderOfDifferentTimes(t *testing.T) {
	records := []reading{{at: 5, text: "b"}, {at: 1, text: "a"}, {at: 5, text: "c"}, {at: 1, text: "x"}}
	if f, l := fold(t, First(at, text), records), fold(t, Last(at, text), records); string(f.Value) != "a" || string(l.Value) != "c" {
		t.Errorf("first %q, last %q", f.Value, l.Value)
	}
}

func TestMoreThanTheLimitIsAnErrorAndChangesNothing(t *testing.T) {
	long := strings.Repeat("x", MaxValue)
	records := []reading{{text: "a"}, {text: "b"}, {text: "a"}, {text: long}}
	for _, s := range []subject{of(Distinct(3, text)), of(TopK(3, text))} {
		full, err := s.encodeAll(records)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.encodeAll(append(records, reading{text: "c"})); !errors.Is(err, ErrTooMany) {
			t.Errorf("%s: got %v, want ErrTooMany", s.name(), err)
		}
		if again, err := s.encodeAll(append(records, records[0])); err != nil || (s.name() == "distinct") != bytes.Equal(again, full) {
			t.Errorf("%s: a value that is there: %v", s.name(), err)
		}
	}
	for _, s := range []subject{of(Distinct(3, text)), of(TopK(3, text)), of(First(at, text)), of(Last(at, text)), of(Largest(3, value, text))} {
		if _, err := s.encodeAll([]reading{{text: long + "x"}}); !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: got %v, want ErrTooLong", s.name(), err)
		}
	}
	full := make([]reading, maxBins)
	for i := range full {
		full[i].float = math.Ldexp(1+float64(i%128)/128, i/128-64)
	}
	q := Quantiles(0.01, float)
	acc := fold(t, q, full)
	if err := q.Add(&acc, &reading{float: -1}); !errors.Is(err, ErrTooMany) || acc.Count() != maxBins {
		t.Errorf("got %v, want ErrTooMany", err)
	}
	if err := q.Add(&acc, &reading{float: 1}); err != nil {
		t.Errorf("a value whose bin is there: %v", err)
	}
	other := fold(t, q, []reading{{float: -1}})
	if err := q.Merge(&acc, &other); !errors.Is(err, ErrTooMany) || acc.Count() != maxBins+1 {
		t.Errorf("got %v, want ErrTooMany", err)
	}
}

func TestSettingsThatCannotBeAreNamed(t *testing.T) {
	type settable interface {
		subject
		validate() error
	}
	for _, s := range []struct {
		subject settable
		want    string
	}{
		{subjectOf[Set]{Distinct(0, text)}, "limit of distinct is 0"},
		{subjectOf[Set]{Distinct(MaxLimit+1, text)}, "give 1 to 1000000"},
		{subjectOf[Tally]{TopK(-1, text)}, "limit of top k is -1"},
		{subjectOf[Ranking]{Largest(0, value, text)}, "k of largest is 0"},
		{subjectOf[Ranking]{Largest(10_001, value, text)}, "give 1 to 10000"},
		{subjectOf[Approx]{ApproxDistinct(0.11, text)}, "give 0.0041 to 0.1"},
		{subjectOf[Approx]{ApproxDistinct(0.004, text)}, "is 0.004;"},
		{subjectOf[Approx]{ApproxDistinct(math.NaN(), text)}, "is NaN;"},
		{subjectOf[Distribution]{Quantiles(0, float)}, "give 0.0001 to 0.5"},
		{subjectOf[Distribution]{Quantiles(0.51, float)}, "is 0.51;"},
		{subjectOf[Distribution]{Quantiles(math.NaN(), float)}, "is NaN;"},
		{subjectOf[Distribution]{Quantiles(0.00006, float)}, "is 6e-05;"},
	} {
		err := s.subject.validate()
		if err == nil || !strings.Contains(err.Error(), s.want) {
			t.Errorf("%s: got %v, want %q", s.subject.name(), err, s.want)
		}
		if _, added := s.subject.encodeAll(make([]reading, 1)); added == nil || !strings.Contains(added.Error(), s.want) {
			t.Errorf("%s: added: %v", s.subject.name(), added)
		}
		if _, err := s.subject.decode([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}); err == nil {
			t.Errorf("%s: decoded", s.subject.name())
		}
	}
	for _, v := range []settable{subjectOf[Approx]{ApproxDistinct(0.0041, text)}, subjectOf[Approx]{ApproxDistinct(0.1, text)}, subjectOf[Distribution]{Quantiles(0.0001, float)}, subjectOf[Distribution]{Quantiles(0.5, float)}} {
		if err := v.validate(); err != nil {
			t.Errorf("%s: %v", v.name(), err)
		}
	}
}

func (s subjectOf[A]) validate() error { return s.agg.(Validator).Validate() }

// TestQuantilesAreWithinTheirError: against the sorted values, over the whole range of floats.
func TestQuantilesAreWithinTheirError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		relative := rapid.SampledFrom([]float64{0.5, 0.1, 0.01, 0.0001}).Draw(t, "relative")
		one := rapid.OneOf(rapid.Float64Range(-1000, 1000), rapid.Float64Range(0, 1), rapid.Float64(),
			rapid.Map(rapid.IntRange(-300, 300), func(i int) float64 { return float64(i) }), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 5e-324, 0x1p-1022, -0x1p-1023, math.MaxFloat64}))
		values := rapid.SliceOfN(one, 1, 200).Draw(t, "values")
		var records []reading
		for _, v := range values {
			records = append(records, reading{float: v})
		}
		d := fold(t, Quantiles(relative, float), records)
		slices.Sort(values)
		if d.Count() != int64(len(values)) || d.Min() != values[0] || d.Max() != values[len(values)-1] {
			t.Fatalf("%d values from %g to %g", d.Count(), d.Min(), d.Max())
		}
		for _, q := range append(rapid.SliceOfN(rapid.Float64Range(0, 1), 3, 3).Draw(t, "q"), 0, 0.5, 1) {
			got, ok := d.Quantile(q)
			exact := values[max(int(math.Ceil(q*float64(len(values)))), 1)-1]
			least := math.Abs(exact) * (1 - relative)
			if math.Abs(exact) < 0x1p-1022 {
				least = 0
			}
			if !ok || got*exact < 0 || math.Abs(got) > math.Abs(exact) || math.Abs(got) < least {
				t.Fatalf("quantile %g is %g, the exact one is %g", q, got, exact)
			}
			if relative <= 0.01 && exact == math.Trunc(exact) && math.Abs(exact) <= 256 && got != exact {
				t.Fatalf("quantile %g is %g, of the integer %g", q, got, exact)
			}
		}
	})
	tiny := fold(t, Quantiles(0.01, float), []reading{{float: -1}, {float: 0x1.8p-1024}, {float: 1}})
	if v, ok := tiny.Quantile(0.5); !ok || v != 0 {
		t.Errorf("a magnitude below 2^-1022 is %g", v)
	}
	var none Distribution
	some := fold(t, Quantiles(0.01, float), make([]reading, 2))
	for _, q := range []float64{-0.1, 1.1, math.NaN()} {
		if _, ok := some.Quantile(q); ok {
			t.Errorf("quantile %v was told", q)
		}
	}
	if _, ok := none.Quantile(0.5); ok {
		t.Error("a quantile of nothing was told")
	}
}

// TestEstimatesAreWithinTheirError: the root of the mean square of the error, over many sets of each size.
func TestEstimatesAreWithinTheirError(t *testing.T) {
	for _, c := range []struct {
		relative float64
		sets     int
	}{{0.1, 60}, {0.02, 40}} {
		agg := ApproxDistinct(c.relative, text)
		sum := map[int]float64{}
		bias := map[int]float64{}
		sizes := []int{1, exactly, exactly + 1, 1000, 5000, 20_000}
		if testing.Short() {
			c.sets /= 10 // of one goroutine
		}
		for set := range c.sets {
			var acc Approx
			agg.Init(&acc)
			for n := 1; n <= sizes[len(sizes)-1]; n++ {
				if err := agg.Add(&acc, &reading{text: fmt.Sprintf("%d/%d", set, n)}); err != nil {
					t.Fatal(err)
				}
				if slices.Contains(sizes, n) {
					e := float64(acc.Count())/float64(n) - 1
					sum[n] += e * e / float64(c.sets)
					bias[n] += e / float64(c.sets)
				}
			}
		}
		for _, n := range sizes {
			switch got := math.Sqrt(sum[n]); {
			case n <= exactly && got != 0:
				t.Errorf("%v: of %d the estimate is not exact", c.relative, n)
			case got > c.relative*1.2, math.Abs(bias[n]) > 3*c.relative/math.Sqrt(float64(c.sets)):
				t.Errorf("%v: of %d the error is %.4f, on average %.4f", c.relative, n, got, bias[n])
			}
		}
	}
}

// TestEstimatesMerge: whichever of the two has its registers already.
func TestEstimatesMerge(t *testing.T) {
	agg := ApproxDistinct(0.05, text)
	records := func(from, to int) (r []reading) {
		for i := from; i < to; i++ {
			r = append(r, reading{text: strconv.Itoa(i)})
		}
		return r
	}
	for _, c := range []struct{ a, b []reading }{
		{records(0, 200), records(200, 250)},
		{records(0, 200), records(100, 256)},
		{records(0, 200), records(100, 257)},
		{records(0, 900), records(100, 200)},
		{records(0, 100), records(50, 900)},
		{records(0, 900), records(400, 2000)},
		{nil, records(0, 900)},
		{records(0, 900), nil},
	} {
		whole, a, b := fold(t, agg, slices.Concat(c.a, c.b)), fold(t, agg, c.a), fold(t, agg, c.b)
		other := agg.Encode(nil, &b)
		if err := agg.Merge(&a, &b); err != nil {
			t.Fatal(err)
		}
		if code, want := agg.Encode(nil, &a), agg.Encode(nil, &whole); !bytes.Equal(code, want) {
			t.Errorf("%d and %d: merged %x, whole %x", len(c.a), len(c.b), code, want)
		}
		var back Approx
		if err := agg.Decode(agg.Encode(nil, &whole), &back); err != nil || back.Count() != whole.Count() {
			t.Errorf("%d came back as %d, %v", whole.Count(), back.Count(), err)
		}
		fresh := reading{text: "fresh"}
		if err := agg.Add(&a, &fresh); err != nil || !bytes.Equal(agg.Encode(nil, &b), other) {
			t.Errorf("what was merged is shared, or %v", err)
		}
	}
}
