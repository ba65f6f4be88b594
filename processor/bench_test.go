package processor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/checkpoint"
	"github.com/unisink/unisink/processor/jsonfield"
	"github.com/unisink/unisink/processor/stream"
)

// nowhere takes results and forgets them.
type nowhere struct{ participant.Branch }

func (nowhere) Write(context.Context, []stream.Record) error { return nil }

type benchRun struct{ participant.Run }

func (benchRun) Branch(context.Context, string) (participant.Branch, error) { return nowhere{}, nil }
func (benchRun) HasWork()                                                   {}
func (benchRun) Progress(int64, bool)                                       {}

type order1 struct {
	customer   []byte
	amount, at int64
}

// BenchmarkRecord: one op is one record of 100 bytes of JSON, 1,000 keys, 1 s windows, from its bytes
// through the window to the encoded results of two sinks, in batches of 500.
func BenchmarkRecord(b *testing.B) {
	reader := jsonfield.For("customer", "amount", "at")
	fields := make([]jsonfield.Value, 3)
	orders := From("orders", nil, func(in *stream.Record, out *order1) (err error) {
		if err = reader.Read(in.Value, fields); err != nil {
			return err
		}
		if out.customer, err = fields[0].Text(nil); err != nil {
			return err
		}
		if out.amount, err = fields[1].Int(); err != nil {
			return err
		}
		out.at, err = fields[2].Int()
		return err
	}).EventTime(func(o *order1) int64 { return o.at }).
		Where(func(o *order1) bool { return o.amount >= 0 }).
		Key(func(dst []byte, o *order1) []byte { return append(dst, o.customer...) })
	encode := func(r *Result[int64], out *stream.Record) error {
		out.Key = append(out.Key, r.Key...)
		out.Value = fmt.Appendf(out.Value, `{"start":%d,"total":%d}`, r.Window.Start, r.Value)
		return nil
	}
	w := Tumbling(orders, time.Second, aggregate.Sum(func(o *order1) int64 { return o.amount })).To("one", nil, encode).To("two", nil, encode)
	loop := newEpochLoop(newWindowOperator(w, DefaultKeyGroups), []namedSink{{name: "one"}, {name: "two"}}, nil)
	loop.run = benchRun{}
	split := stream.Split{Resource: "orders", ID: "0"}
	loop.op.reset([]stream.Split{split})

	const perSecond = 50_000
	batch := &stream.Batch{Split: split, HighWater: -1}
	const size = 500
	fill := func(first int) { // the same buffers again and again, as a source does
		batch.Records = batch.Records[:0]
		for i := first; i < first+size; i++ {
			v := batch.Records[:cap(batch.Records)]
			var buf []byte
			if len(v) > len(batch.Records) {
				buf = v[len(batch.Records)].Value[:0]
			}
			buf = fmt.Appendf(buf, `{"id":"o-%08d","customer":"c-%04d","amount":%d,"at":%d,"note":"two items, no hurry"}`,
				i, i*7919%1000, i%5000, 1_760_000_000_000+int64(i)*1000/perSecond)
			batch.Records = append(batch.Records, stream.Record{Value: buf, Offset: int64(i)})
		}
		batch.Next = stream.Position{Split: split, Offset: int64(first + size)}
	}
	b.ReportAllocs()
	ctx := context.Background()
	b.ResetTimer()
	for i := 0; i < b.N; i += size {
		b.StopTimer()
		fill(i)
		b.StartTimer()
		if err := loop.batch(ctx, batch, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(loop.op.counts().Fired)/float64(b.N), "results/op")
}

// BenchmarkSnapshot: one op is the snapshot of an epoch, 2,000 accumulators in two open windows, inline.
func BenchmarkSnapshot(b *testing.B) {
	in := From("in", nil, decodeReading()).EventTime(at).Key(byKey)
	op := newWindowOperator(Tumbling(in, time.Second, aggregate.Summarize(value)), DefaultKeyGroups)
	split := stream.Split{Resource: "in", ID: "0"}
	op.reset([]stream.Split{split})
	for w := range 2 {
		batch := &stream.Batch{Split: split, HighWater: -1}
		for i := range 1000 {
			batch.Records = append(batch.Records, record("x", fmt.Sprintf("customer-%04d", i), int64(w)*100, int64(i)))
		}
		if err := op.process(b.Context(), batch, 0, nil); err != nil {
			b.Fatal(err)
		}
	}
	snap := checkpoint.New(checkpoint.Config{Member: "main", Operator: "window", KeyGroups: DefaultKeyGroups})
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		taken, err := snap.Take(b.Context(), participant.Barrier{Generation: 1, N: 1}, op.meta(nil), op.keyed(), 64<<10)
		if err != nil {
			b.Fatal(err)
		}
		size = len(taken.Parts[0].Body)
	}
	b.ReportMetric(float64(size), "bytes")
}
