package aggregate

import (
	"math"
	"strconv"
	"testing"

	"github.com/unisink/unisink/processor/number"
)

// benchRecords are of one key: a thousand different values.
func benchRecords() []reading {
	var records []reading
	for i := range 1000 {
		r := reading{
			at: int64(i), value: int64(i * 7919 % 1000), float: float64(i*7919%1000) / 100,
			decimal: number.WholeDecimal(int64(i)), text: "customer-" + strconv.Itoa(i*7919%1000),
		}
		r.number = number.OfInt(r.value)
		records = append(records, r)
	}
	return records
}

func (s subjectOf[A]) adder() func(records []reading) error {
	var acc A
	s.agg.Init(&acc)
	return func(records []reading) error {
		for i := range records {
			if err := s.agg.Add(&acc, &records[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func (s subjectOf[A]) encoder(records []reading) (func(), error) {
	var acc A
	s.agg.Init(&acc)
	for i := range records {
		if err := s.agg.Add(&acc, &records[i]); err != nil {
			return nil, err
		}
	}
	var buf []byte
	return func() { buf = s.agg.Encode(buf[:0], &acc) }, nil
}

// measured is a subject whose costs are of interest.
type measured interface {
	subject
	adder() func(records []reading) error
	encoder(records []reading) (func(), error)
}

func allMeasured() []measured {
	type three struct {
		count, sum int64
		float      FloatSum
	}
	return []measured{
		subjectOf[int64]{Count[reading]()},
		subjectOf[int64]{Sum(value)},
		subjectOf[int64]{Max(value)},
		subjectOf[Mean]{Avg(value)},
		subjectOf[Summary]{Summarize(value)},
		subjectOf[FloatSum]{SumFloat(float)},
		subjectOf[float64]{MinFloat(float)},
		subjectOf[FloatMean]{AvgFloat(float)},
		subjectOf[number.Decimal]{SumDecimal(decimal)},
		subjectOf[DecimalExtreme]{MaxDecimal(decimal)},
		subjectOf[DecimalMean]{AvgDecimal(decimal)},
		subjectOf[NumberSum]{SumNumber(num)},
		subjectOf[NumberExtreme]{MinNumber(num)},
		subjectOf[NumberMean]{AvgNumber(num)},
		subjectOf[Moment]{First(at, text)},
		subjectOf[Moment]{Last(at, text)},
		subjectOf[Ranking]{Largest(10, value, text)},
		subjectOf[Set]{Distinct(MaxLimit, text)},
		subjectOf[Tally]{TopK(MaxLimit, text)},
		subjectOf[Approx]{ApproxDistinct(0.02, text)},
		subjectOf[Distribution]{Quantiles(0.01, float)},
		subjectOf[three]{Fields(
			Field("count", Count[reading](), func(s *three) *int64 { return &s.count }),
			Field("sum", Sum(value), func(s *three) *int64 { return &s.sum }),
			Field("float", SumFloat(float), func(s *three) *FloatSum { return &s.float }),
		)},
		subjectOf[Row]{Fields(Field("count", Count[reading](), Cell[int64](0)), Field("set", Distinct(MaxLimit, text), Cell[Set](1)))},
	}
}

// TestAKnownKeyIsAddedToWithoutAllocation: and so is a snapshot into a buffer that is large enough.
func TestAKnownKeyIsAddedToWithoutAllocation(t *testing.T) {
	records := benchRecords()
	for _, s := range allMeasured() {
		add := s.adder()
		if err := add(records); err != nil { // what is new may allocate
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(5, func() {
			if err := add(records); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations of %d records", s.name(), n, len(records))
		}
		encode, err := s.encoder(records)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(5, encode); n != 0 {
			t.Errorf("%s: %v allocations of a snapshot", s.name(), n)
		}
	}
}

// BenchmarkAdd: one op is one record of a key that is known.
func BenchmarkAdd(b *testing.B) {
	records := benchRecords()
	for _, s := range allMeasured() {
		b.Run(s.name(), func(b *testing.B) {
			add := s.adder()
			b.ReportAllocs()
			for n := b.N; n > 0; n -= len(records) {
				if err := add(records[:min(n, len(records))]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWideFloats: sums that two floats do not hold.
func BenchmarkWideFloats(b *testing.B) {
	values := []float64{1e300, 1, 1e-300, -1e300, math.Pi, 1e150}
	var s FloatSum
	b.ReportAllocs()
	for i := range b.N {
		if err := s.add(values[i%len(values)]); err != nil {
			b.Fatal(err)
		}
	}
}
