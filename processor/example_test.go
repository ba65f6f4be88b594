package processor_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/jsonfield"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// Order is one record of the source. Customer points into the record: nothing is copied.
type Order struct {
	Customer []byte
	Amount   int64
	At       int64
}

// orderDecoder reads the three fields that the pipeline needs.
func orderDecoder() func(in *stream.Record, out *Order) error {
	names := jsonfield.For("customer", "amount", "at")
	fields := make([]jsonfield.Value, 3)
	var text []byte
	return func(in *stream.Record, out *Order) (err error) {
		if err = names.Read(in.Value, fields); err != nil {
			return err
		}
		if out.Customer, err = fields[0].Text(&text); err != nil {
			return fmt.Errorf("customer: %w", err)
		}
		if out.Amount, err = fields[1].Int(); err != nil {
			return fmt.Errorf("amount: %w", err)
		}
		if out.At, err = fields[2].Int(); err != nil {
			return fmt.Errorf("at: %w", err)
		}
		return nil
	}
}

// Example builds a pipeline with two sinks and runs it, here in a scope in memory; with coordinators
// it is p.Run(ctx, processor.RunConfig{Coordinators: addrs}).
func Example() {
	source := processortest.NewSource("orders", "0")
	topic, files := processortest.NewSink("topic"), processortest.NewSink("files")

	orders := processor.From("orders", source, orderDecoder()).
		EventTime(func(o *Order) int64 { return o.At }).
		Where(func(o *Order) bool { return o.Amount > 0 }).
		Key(func(dst []byte, o *Order) []byte { return append(dst, o.Customer...) })

	encode := func(r *processor.Result[int64], out *stream.Record) error {
		out.Key = append(out.Key, r.Key...)
		out.Value = strconv.AppendInt(append(out.Value, "total "...), r.Value, 10)
		return nil
	}
	p, err := processor.Tumbling(orders, time.Second, aggregate.Sum(func(o *Order) int64 { return o.Amount })).
		To("topic", topic, encode).
		To("files", files, encode).
		Pipeline("totals")
	if err != nil {
		fmt.Println(err)
		return
	}

	for i, amount := range []int64{5, 7, -1, 2} {
		source.Append("0", stream.Record{Value: fmt.Appendf(nil, `{"customer":"ada","amount":%d,"at":%d}`, amount, i*400)})
	}
	source.End()
	if err := drain(p, map[string]participant.Resource{"topic": topic, "files": files}); err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range files.Committed() {
		fmt.Printf("epoch %d.%d: %s %s\n", c.Generation, c.N, c.Record.Key, c.Record.Value)
	}
	fmt.Printf("%+v\n", p.Counters())
	// Output:
	// epoch 1.1: ada total 12
	// epoch 1.1: ada total 2
	// {Records:4 Windowed:3 Late:0 Filtered:1 Skipped:0 Passed:0 DeadLettered:0 Fired:2}
}

// drain runs a pipeline until its source has ended, and decides one epoch.
func drain(p *processor.Pipeline, sinks map[string]participant.Resource) error {
	ctx := context.Background()
	scope := processortest.NewScope(sinks)
	task := p.Task(0, nil)
	run, err := scope.Begin(ctx, task)
	if err != nil {
		return err
	}
	if err := run.Await(ctx, func(_, ended bool, _ int64) bool { return ended }); err != nil {
		return err
	}
	if err := task.Barrier(ctx, participant.Barrier{Generation: 1, N: 1, Final: true, Drain: true}); err != nil {
		return err
	}
	if err := scope.Decide(ctx); err != nil {
		return err
	}
	if err := task.Halted(ctx, "drained"); err != nil {
		return err
	}
	return scope.Close(ctx)
}
