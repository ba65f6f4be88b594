package processor

import (
	"context"
	"fmt"
	"strconv"
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

// recordRig takes records of 100 bytes of JSON, 1,000 keys, 1 s windows, from their bytes through the window to the
// encoded results of two sinks.
type recordRig struct {
	loop  *epochLoop
	batch *stream.Batch
	next  int // the next record
}

const (
	recordsPerBatch  = 500
	recordsPerSecond = 50_000 // of event time
)

func newRecordRig() *recordRig {
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
		out.Value = strconv.AppendInt(append(out.Value, `{"start":`...), r.Window.Start, 10)
		out.Value = append(strconv.AppendInt(append(out.Value, `,"total":`...), r.Value, 10), '}')
		return nil
	}
	w := Tumbling(orders, time.Second, aggregate.Sum(func(o *order1) int64 { return o.amount })).To("one", nil, encode).To("two", nil, encode)
	loop := newEpochLoop(newWindowOperator(w, DefaultKeyGroups), []namedSink{{name: "one"}, {name: "two"}}, nil)
	loop.run = benchRun{}
	split := stream.Split{Resource: "orders", ID: "0"}
	loop.op.reset([]stream.Split{split})
	return &recordRig{loop: loop, batch: &stream.Batch{Split: split, HighWater: -1, Records: make([]stream.Record, recordsPerBatch)}}
}

// fill makes the next batch, in the same buffers again and again, as a source does.
func (r *recordRig) fill() {
	for i := range r.batch.Records {
		n := int64(r.next)
		v := append(r.batch.Records[i].Value[:0], `{"id":"o-`...)
		v = strconv.AppendInt(v, 10_000_000+n, 10)
		v = append(v, `","customer":"c-`...)
		v = strconv.AppendInt(v, 1000+n*7919%1000, 10)
		v = append(v, `","amount":`...)
		v = strconv.AppendInt(v, n%5000, 10)
		v = append(v, `,"at":`...)
		v = strconv.AppendInt(v, 1_760_000_000_000+n*1000/recordsPerSecond, 10)
		v = append(v, `,"note":"two items, no hurry"}`...)
		r.batch.Records[i] = stream.Record{Value: v, Offset: n}
		r.next++
	}
	r.batch.Next = stream.Position{Split: r.batch.Split, Offset: int64(r.next)}
}

// BenchmarkRecord: one op is one record, in batches of 500.
func BenchmarkRecord(b *testing.B) {
	r := newRecordRig()
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += recordsPerBatch {
		b.StopTimer()
		r.fill()
		b.StartTimer()
		if err := r.loop.batch(b.Context(), r.batch, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(r.loop.op.counts().Fired)/float64(b.N), "results/op")
}

// TestNoRecordIsAllocatedFor: neither for a record on its way through a window nor for a result, once every key and
// buffer was there.
func TestNoRecordIsAllocatedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("counts allocations of one goroutine; takes seconds under the race detector")
	}
	const windows = 3
	r := newRecordRig()
	run := func() {
		for range windows * recordsPerSecond / recordsPerBatch {
			r.fill()
			if err := r.loop.batch(t.Context(), r.batch, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	run()
	before := r.loop.op.counts()
	if n := testing.AllocsPerRun(1, run); n > windows { // sorting takes one per window
		t.Errorf("%v allocations of %d records in %d windows", n, windows*recordsPerSecond, windows)
	}
	if c := r.loop.op.counts(); c.Windowed-before.Windowed != 2*windows*recordsPerSecond || c.Fired-before.Fired != 2*windows*1000 {
		t.Errorf("counted %+v after %+v", c, before) // AllocsPerRun runs it once more
	}
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
