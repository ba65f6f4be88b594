package processor_test

import (
	"fmt"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// totals is the stream that the examples of windows begin with, of a source with these orders.
func totals(source *processortest.Source) *processor.Stream[Order] {
	return processor.From("orders", source, orderDecoder()).
		EventTime(func(o *Order) int64 { return o.At }).
		Key(func(dst []byte, o *Order) []byte { return append(dst, o.Customer...) })
}

func amount(o *Order) int64 { return o.Amount }

func order(at, amount int64) stream.Record {
	return stream.Record{Value: fmt.Appendf(nil, `{"customer":"ada","amount":%d,"at":%d}`, amount, at), Time: at}
}

// tell is an encoder of sums.
func tell(r *processor.Result[int64], out *stream.Record) error {
	out.Value = fmt.Appendf(out.Value, "%s from %d to %d: %d", r.Key, r.Window.Start, r.Window.End, r.Value)
	if r.Update {
		out.Value = append(out.Value, ", instead of what was sent before"...)
	}
	return nil
}

// show builds the pipeline, runs it to the end of its source and prints what the sinks hold.
func show(w *processor.Windowed[Order, int64], source *processortest.Source, sinks ...*processortest.Sink) {
	p, err := w.Pipeline("totals")
	if err != nil {
		fmt.Println(err)
		return
	}
	source.End()
	resources := map[string]participant.Resource{"out": sinks[0]}
	if len(sinks) > 1 {
		resources["bad"] = sinks[1]
	}
	if err := drain(p, resources); err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range sinks {
		for _, c := range s.Committed() {
			fmt.Printf("%s\n", c.Record.Value)
			for _, h := range c.Record.Headers {
				fmt.Printf("  %s: %s\n", h.Key, h.Value)
			}
		}
	}
}

func ExampleSliding() {
	source, out := processortest.NewSource("orders", "0"), processortest.NewSink("out")
	source.Append("0", order(100, 1), order(700, 2), order(1200, 4))
	w := processor.Sliding(totals(source), time.Second, 500*time.Millisecond, aggregate.Sum(amount))
	show(w.To("out", out, tell), source, out)
	// Output:
	// ada from -500 to 500: 1
	// ada from 0 to 1000: 3
	// ada from 500 to 1500: 6
	// ada from 1000 to 2000: 4
}

func ExampleSession() {
	source, out := processortest.NewSource("orders", "0"), processortest.NewSink("out")
	source.Append("0", order(100, 1), order(700, 2), order(1900, 4))
	w := processor.Session(totals(source), time.Second, aggregate.Sum(amount))
	show(w.To("out", out, tell), source, out)
	// Output:
	// ada from 100 to 1700: 3
	// ada from 1900 to 2900: 4
}

func ExampleWindowed_AllowedLateness() {
	source, out := processortest.NewSource("orders", "0"), processortest.NewSink("out")
	source.Append("0", order(100, 1), order(1200, 2), order(700, 4))
	w := processor.Tumbling(totals(source), time.Second, aggregate.Sum(amount)).AllowedLateness(time.Minute)
	show(w.To("out", out, tell), source, out)
	// Output:
	// ada from 0 to 1000: 1
	// ada from 0 to 1000: 5, instead of what was sent before
	// ada from 1000 to 2000: 2
}

func ExampleStream_DeadLetters() {
	source := processortest.NewSource("orders", "0")
	out, bad := processortest.NewSink("out"), processortest.NewSink("bad")
	source.Append("0", order(100, 1), stream.Record{Value: []byte(`{"customer":"ada","amount":"many","at":200}`)})
	w := processor.Tumbling(totals(source).DeadLetters("bad", bad), time.Second, aggregate.Sum(amount))
	show(w.To("out", out, tell), source, out, bad)
	// Output:
	// ada from 0 to 1000: 1
	// {"customer":"ada","amount":"many","at":200}
	//   unisink-reason: decode: amount: wrong type: a string where an integer should be
	//   unisink-origin: orders/0/1
}
