package aggregate_test

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/number"
	"github.com/unisink/unisink/processor/stream"
)

// Order is a record of the examples.
type Order struct {
	At      int64
	Product string
	Cents   int64
	Weight  float64
	Price   number.Decimal
	Tip     number.Number
}

func at(o *Order) int64             { return o.At }
func cents(o *Order) int64          { return o.Cents }
func weight(o *Order) float64       { return o.Weight }
func price(o *Order) number.Decimal { return o.Price }
func tip(o *Order) number.Number    { return o.Tip }

func product(dst []byte, o *Order) []byte { return append(dst, o.Product...) }

// orders are what every example has in its window.
func orders() []Order {
	euro := func(text string) number.Decimal {
		d, err := number.ParseDecimal(text)
		if err != nil {
			panic(err)
		}
		return d
	}
	return []Order{
		{At: 3, Product: "tea", Cents: 250, Weight: 0.1, Price: euro("2.50"), Tip: number.OfInt(1)},
		{At: 1, Product: "cup", Cents: 900, Weight: 0.2, Price: euro("9.00"), Tip: number.OfFloat(0.5)},
		{At: 2, Product: "tea", Cents: 250, Weight: 0.3, Price: euro("2.499"), Tip: number.OfInt(0)},
	}
}

// over is what a window does with an aggregate.
func over[A any](agg aggregate.Of[Order, A]) A {
	var acc A
	agg.Init(&acc)
	for _, o := range orders() {
		if err := agg.Add(&acc, &o); err != nil {
			fmt.Println(err)
		}
	}
	return acc
}

func ExampleCount() {
	fmt.Println(over(aggregate.Count[Order]()))
	// Output: 3
}

func ExampleSum() {
	fmt.Println(over(aggregate.Sum(cents)))

	sum := aggregate.Sum(cents)
	acc := int64(math.MaxInt64)
	err := sum.Add(&acc, &Order{Cents: 1})
	fmt.Println(errors.Is(err, aggregate.ErrOverflow), acc == math.MaxInt64)
	// Output:
	// 1400
	// true true
}

func ExampleMin() {
	fmt.Println(over(aggregate.Min(cents)))
	// Output: 250
}

func ExampleMax() {
	fmt.Println(over(aggregate.Max(cents)))
	// Output: 900
}

func ExampleAvg() {
	mean := over(aggregate.Avg(cents))
	fmt.Println(mean.Sum, mean.Count, mean.Avg())
	// Output: 1400 3 466.6666666666667
}

func ExampleSummarize() {
	s := over(aggregate.Summarize(cents))
	fmt.Println(s.Count, s.Sum, s.Min, s.Max, s.Avg())
	// Output: 3 1400 250 900 466.6666666666667
}

// One rounding at the end, not one with each record: 0.1 + 0.2 + 0.3 would be 0.6000000000000001.
func ExampleSumFloat() {
	fmt.Println(over(aggregate.SumFloat(weight)).Value())
	// Output: 0.6
}

func ExampleMinFloat() {
	fmt.Println(over(aggregate.MinFloat(weight)))
	// Output: 0.1
}

func ExampleMaxFloat() {
	fmt.Println(over(aggregate.MaxFloat(weight)))
	// Output: 0.3
}

func ExampleAvgFloat() {
	fmt.Println(over(aggregate.AvgFloat(weight)).Avg())
	// Output: 0.19999999999999998
}

func ExampleSumDecimal() {
	fmt.Println(over(aggregate.SumDecimal(price)))
	// Output: 13.999
}

func ExampleMinDecimal() {
	fmt.Println(over(aggregate.MinDecimal(price)).Value)
	// Output: 2.499
}

func ExampleMaxDecimal() {
	fmt.Println(over(aggregate.MaxDecimal(price)).Value)
	// Output: 9.00
}

func ExampleAvgDecimal() {
	mean := over(aggregate.AvgDecimal(price))
	rounded, err := mean.Avg(2)
	fmt.Println(mean.Sum, mean.Count, rounded, err)
	// Output: 13.999 3 4.67 <nil>
}

func ExampleSumNumber() {
	sum := over(aggregate.SumNumber(tip)).Value()
	fmt.Println(sum, sum.Kind())
	// Output: 1.5 float
}

func ExampleMinNumber() {
	fmt.Println(over(aggregate.MinNumber(tip)).Value)
	// Output: 0
}

func ExampleMaxNumber() {
	fmt.Println(over(aggregate.MaxNumber(tip)).Value)
	// Output: 1
}

func ExampleAvgNumber() {
	fmt.Println(over(aggregate.AvgNumber(tip)).Avg())
	// Output: 0.5
}

func ExampleDistinct() {
	products := over(aggregate.Distinct(10_000, product))
	fmt.Println(products.Len())
	for i := range products.Len() {
		fmt.Printf("%s\n", products.At(i))
	}
	// Output:
	// 2
	// tea
	// cup
}

func ExampleApproxDistinct() {
	fmt.Println(over(aggregate.ApproxDistinct(0.02, product)).Count())
	// Output: 2
}

func ExampleTopK() {
	products := over(aggregate.TopK(10_000, product))
	for _, c := range products.AppendTop(nil, 1) {
		fmt.Printf("%s %d\n", c.Value, c.Count)
	}
	// Output: tea 2
}

func ExampleLargest() {
	for _, r := range over(aggregate.Largest(2, cents, product)).Items() {
		fmt.Printf("%d %s\n", r.By, r.Value)
	}
	// Output:
	// 900 cup
	// 250 tea
}

func ExampleFirst() {
	first := over(aggregate.First(at, product))
	fmt.Printf("%s at %d\n", first.Value, first.At)
	// Output: cup at 1
}

func ExampleLast() {
	last := over(aggregate.Last(at, product))
	fmt.Printf("%s at %d\n", last.Value, last.At)
	// Output: tea at 3
}

func ExampleQuantiles() {
	cost := over(aggregate.Quantiles(0.01, func(o *Order) float64 { return float64(o.Cents) }))
	for _, q := range []float64{0.5, 0.99} {
		v, ok := cost.Quantile(q)
		fmt.Println(q, v, ok)
	}
	// Output:
	// 0.5 250 true
	// 0.99 900 true
}

// A window with several aggregates has a struct for them; nothing is allocated per record.
func ExampleFields() {
	type report struct {
		orders int64
		big    int64
		total  number.Decimal
	}
	r := over(aggregate.Fields(
		aggregate.Field("orders", aggregate.Count[Order](), func(r *report) *int64 { return &r.orders }),
		aggregate.Field("big", aggregate.Where(func(o *Order) bool { return o.Cents > 500 }, aggregate.Count[Order]()), func(r *report) *int64 { return &r.big }),
		aggregate.Field("total", aggregate.SumDecimal(price), func(r *report) *number.Decimal { return &r.total }),
	))
	fmt.Println(r.orders, r.big, r.total)
	// Output: 3 1 13.999
}

// Fields that are known at run time only have a Row.
func ExampleCell() {
	row := over(aggregate.Fields(
		aggregate.Field("orders", aggregate.Count[Order](), aggregate.Cell[int64](0)),
		aggregate.Field("tips", aggregate.SumNumber(tip), aggregate.Cell[aggregate.NumberSum](1)),
	))
	fmt.Println(*row.At(0).(*int64), row.At(1).(*aggregate.NumberSum).Value())
	// Output: 3 1.5
}

func ExampleWhere() {
	big := func(o *Order) bool { return o.Cents > 500 }
	fmt.Println(over(aggregate.Where(big, aggregate.Sum(cents))))
	// Output: 900
}

// span is an aggregate of a user's own: how long it was between the first and the last order.
type span struct{}

type bounds struct{ from, to int64 }

func (span) Name() string { return "span" }

func (span) Init(acc *bounds) { *acc = bounds{math.MaxInt64, math.MinInt64} }

func (span) Add(acc *bounds, o *Order) error {
	*acc = bounds{min(acc.from, o.At), max(acc.to, o.At)}
	return nil
}

func (span) Merge(acc, other *bounds) error {
	*acc = bounds{min(acc.from, other.from), max(acc.to, other.to)}
	return nil
}

func (span) Encode(dst []byte, acc *bounds) []byte {
	return fmt.Appendf(dst, "%d %d", acc.from, acc.to)
}

func (span) Decode(src []byte, acc *bounds) error {
	_, err := fmt.Sscanf(string(src), "%d %d", &acc.from, &acc.to)
	return err
}

// Whatever has the methods is an aggregate, for a window and for Fields.
func Example_yourOwn() {
	read := processor.From("orders", nil, func(*stream.Record, *Order) error { return nil })
	_ = processor.Tumbling(read, time.Second, span{})

	acc := over(span{})
	fmt.Println(acc.to - acc.from)
	// Output: 2
}

// The methods of aggregates here are those that a window asks for.
var (
	_ processor.Aggregate[Order, int64]                  = aggregate.Count[Order]()
	_ processor.Aggregate[Order, aggregate.Distribution] = aggregate.Quantiles(0.01, weight)
	_ processor.Aggregate[Order, bounds]                 = span{}
)
