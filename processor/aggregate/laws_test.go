package aggregate

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/number"
)

// reading is a record of tests: one field of each type.
type reading struct {
	at      int64
	value   int64
	float   float64
	decimal number.Decimal
	number  number.Number
	text    string
}

func at(r *reading) int64               { return r.at }
func value(r *reading) int64            { return r.value }
func float(r *reading) float64          { return r.float }
func decimal(r *reading) number.Decimal { return r.decimal }
func num(r *reading) number.Number      { return r.number }

func text(dst []byte, r *reading) []byte { return append(dst, r.text...) }

// subject is an aggregate without its type, for tables.
type subject interface {
	name() string
	laws(t *rapid.T, records []reading, cut int)
	decode(src []byte) ([]byte, error)
	encodeAll(records []reading) ([]byte, error)
}

type subjectOf[A any] struct{ agg Of[reading, A] }

func of[A any](agg Of[reading, A]) subject { return subjectOf[A]{agg} }

// subjects are all aggregates.
func subjects() []subject {
	return []subject{
		of(Count[reading]()), of(Sum(value)), of(Min(value)), of(Max(value)), of(Avg(value)), of(Summarize(value)),
		of(SumFloat(float)), of(MinFloat(float)), of(MaxFloat(float)), of(AvgFloat(float)),
		of(SumDecimal(decimal)), of(MinDecimal(decimal)), of(MaxDecimal(decimal)), of(AvgDecimal(decimal)),
		of(SumNumber(num)), of(MinNumber(num)), of(MaxNumber(num)), of(AvgNumber(num)),
		of(Distinct(5, text)), of(Distinct(100, text)), of(TopK(5, text)), of(TopK(100, text)),
		of(Largest(3, value, text)), of(Largest[reading](1000, value, nil)), of(First(at, text)), of(Last(at, text)),
		of(ApproxDistinct(0.1, text)), of(Quantiles(0.01, float)), of(Quantiles(0.5, float)),
		of(Where(even, Sum(value))), of(Where(even, Distinct(5, text))), of(allFields(5)), of(allFields(100)), of(rows()),
	}
}

func readings() *rapid.Generator[[]reading] {
	return rapid.Custom(func(t *rapid.T) []reading {
		// Streams of one temper find more than records that have nothing in common.
		ints := rapid.SampledFrom([]*rapid.Generator[int64]{rapid.Int64Range(-100, 100), rapid.Int64()}).Draw(t, "ints")
		floats := rapid.SampledFrom([]*rapid.Generator[float64]{
			rapid.Float64Range(-1000, 1000), rapid.Map(rapid.Uint64(), math.Float64frombits),
			rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1, 1e300, -1e300, math.MaxFloat64, 5e-324, 0x1p53, 0x1p-53, math.NaN(), math.Inf(-1)}),
		}).Draw(t, "floats")
		kinds := rapid.SampledFrom([][]number.Kind{{number.KindInt}, {number.KindFloat}, {number.KindDecimal}, {number.KindInt, number.KindFloat}, {number.KindInt, number.KindDecimal}, {number.KindNone, number.KindInt, number.KindFloat, number.KindDecimal}}).Draw(t, "kinds")
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) reading {
			r := reading{
				at: rapid.Int64Range(-3, 3).Draw(t, "at"), value: ints.Draw(t, "value"), float: floats.Draw(t, "float"),
				decimal: decimals().Draw(t, "decimal"), text: rapid.StringN(0, 2, 4).Draw(t, "text"),
			}
			switch rapid.SampledFrom(kinds).Draw(t, "kind") {
			case number.KindInt:
				r.number = number.OfInt(r.value)
			case number.KindFloat:
				r.number = number.OfFloat(r.float)
			case number.KindDecimal:
				r.number = number.OfDecimal(r.decimal)
			case number.KindNone:
			}
			return r
		}), 0, 40).Draw(t, "records")
	})
}

func decimals() *rapid.Generator[number.Decimal] {
	return rapid.Custom(func(t *rapid.T) number.Decimal {
		digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,4}|[0-9]{30,38})`).Draw(t, "digits")
		d, err := number.ParseDecimal(fmt.Sprintf("%se-%d", digits, rapid.SampledFrom([]int{0, 2, 2, 2, 3, 38}).Draw(t, "scale")))
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

// TestAggregatesMergeAndSurviveASnapshot: an accumulator that was cut in two, or went through a
// snapshot, is that of all records; after an error it is what it was; Check foretells Add.
func TestAggregatesMergeAndSurviveASnapshot(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				records := readings().Draw(t, "records")
				s.laws(t, records, rapid.IntRange(0, len(records)).Draw(t, "cut"))
			})
		})
	}
}

func (s subjectOf[A]) name() string { return s.agg.Name() }

func (s subjectOf[A]) laws(t *rapid.T, records []reading, cut int) {
	var whole, left, right A
	s.agg.Init(&whole)
	s.agg.Init(&left)
	s.agg.Init(&right)
	failed := false
	for i := range records {
		part := &left
		if i >= cut {
			part = &right
		}
		failed = !s.add(t, &whole, &records[i]) || failed
		failed = !s.add(t, part, &records[i]) || failed
	}
	s.survives(t, &whole)
	before, other := s.agg.Encode(nil, &left), s.agg.Encode(nil, &right)
	err := s.agg.Merge(&left, &right)
	switch after := s.agg.Encode(nil, &left); {
	case err != nil && (!known(err) || !bytes.Equal(after, before)):
		t.Fatalf("merge: %v left %x of %x", err, after, before)
	case !bytes.Equal(s.agg.Encode(nil, &right), other):
		t.Fatalf("merge changed the other: %x of %x", s.agg.Encode(nil, &right), other)
	case err == nil && !failed && !bytes.Equal(after, s.agg.Encode(nil, &whole)):
		t.Fatalf("merged %x, whole %x", after, s.agg.Encode(nil, &whole))
	}
	for i := range records[cut:] { // what was merged owns its memory
		s.add(t, &left, &records[cut+i])
	}
	if !bytes.Equal(s.agg.Encode(nil, &right), other) {
		t.Fatal("what was merged is shared")
	}
}

// add adds a record and reports whether that went well.
func (s subjectOf[A]) add(t *rapid.T, acc *A, rec *reading) bool {
	before := s.agg.Encode(nil, acc)
	checked := s.agg.(Checker[reading, A]).Check(acc, rec)
	if after := s.agg.Encode(nil, acc); !bytes.Equal(after, before) {
		t.Fatalf("Check left %x of %x", after, before)
	}
	err := s.agg.Add(acc, rec)
	if fmt.Sprint(err) != fmt.Sprint(checked) {
		t.Fatalf("Check said %v, Add %v", checked, err)
	}
	if err == nil {
		return true
	}
	if after := s.agg.Encode(nil, acc); !known(err) || !bytes.Equal(after, before) {
		t.Fatalf("%v left %x of %x", err, after, before)
	}
	return false
}

func (s subjectOf[A]) survives(t *rapid.T, acc *A) {
	code := s.agg.Encode([]byte("before"), acc)
	if !bytes.HasPrefix(code, []byte("before")) {
		t.Fatalf("Encode did not append: %x", code)
	}
	code = code[len("before"):]
	var back A
	src := bytes.Clone(code)
	if err := s.agg.Decode(src, &back); err != nil {
		t.Fatalf("%x: %v", code, err)
	}
	clear(src) // nothing of it may be kept
	if again := s.agg.Encode(nil, &back); !bytes.Equal(again, code) {
		t.Fatalf("%x came back as %x", code, again)
	}
	if err := s.agg.Decode(append(code[:len(code):len(code)], 0), &back); err == nil {
		t.Fatal("a longer accumulator was taken")
	}
	for n := range code {
		if err := s.agg.Decode(code[:n], &back); err == nil && n > 0 {
			t.Fatalf("%d bytes of %d were taken: %x", n, len(code), code)
		}
	}
}

func (s subjectOf[A]) decode(src []byte) ([]byte, error) {
	var acc A
	s.agg.Init(&acc)
	if err := s.agg.Decode(src, &acc); err != nil {
		return nil, err
	}
	return s.agg.Encode(nil, &acc), nil
}

func (s subjectOf[A]) encodeAll(records []reading) ([]byte, error) {
	var acc A
	s.agg.Init(&acc)
	for i := range records {
		if err := s.agg.Add(&acc, &records[i]); err != nil {
			return nil, fmt.Errorf("record %d: %w", i, err)
		}
	}
	return s.agg.Encode(nil, &acc), nil
}

// known reports whether a record, and not a mistake of ours, may be the reason.
func known(err error) bool {
	for _, k := range []error{ErrOverflow, ErrNotFinite, ErrMixed, ErrTooMany, ErrTooLong, number.ErrNone, errTwo} {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}

func TestMeansOfNothing(t *testing.T) {
	if (Mean{}).Avg() != 0 || (Mean{Sum: 3, Count: 2}).Avg() != 1.5 || (Summary{Sum: 3, Count: 2}).Avg() != 1.5 || (FloatMean{}).Avg() != 0 {
		t.Error("wrong mean")
	}
	if d, err := (DecimalMean{}).Avg(2); err != nil || d.String() != "0.00" {
		t.Errorf("got %v, %v", d, err)
	}
	if n := (NumberMean{}).Avg(); n.Kind() != number.KindNone {
		t.Errorf("got %v", n)
	}
}

func intNumber(v int64) number.Number { return number.OfInt(v) }

func nan() float64 { return math.NaN() }
