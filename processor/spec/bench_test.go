package spec_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/jsonfield"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
)

// block is a source that delivers the same records again and again, their event times moved on.
type block struct {
	processortest.Source
	batch stream.Batch
	texts [][]byte
	left  int
	next  int
}

const (
	benchBatch     = 500
	benchBlock     = 50_000
	benchPerSecond = 50_000
	benchBegin     = 1_760_000_000_000
)

func newBlock(n int) *block {
	b := &block{left: n}
	for i := range benchBlock {
		b.texts = append(b.texts, fmt.Appendf(nil, `{"at":%d,"id":"o-%08d","customer":"c-%04d","amount":%d,"note":"two items, no hurry"}`,
			benchBegin, i, i*7919%1000, i%5000))
	}
	b.batch = stream.Batch{Split: stream.Split{Resource: "source", ID: "0"}, Records: make([]stream.Record, benchBatch), HighWater: -1}
	return b
}

func (b *block) Open(context.Context, []stream.Position) error { return nil }
func (b *block) Splits() []stream.Split                        { return []stream.Split{b.batch.Split} }
func (b *block) Close() error                                  { return nil }

func (b *block) Poll(context.Context) (*stream.Batch, error) {
	if b.left <= 0 {
		return nil, io.EOF
	}
	for i := range b.batch.Records {
		text := b.texts[b.next%benchBlock]
		at := int64(benchBegin + b.next*1000/benchPerSecond)
		strconv.AppendInt(text[:len(`{"at":`)], at, 10) // as many digits as before
		b.batch.Records[i] = stream.Record{Value: text, Offset: int64(b.next)}
		b.next++
	}
	b.left -= benchBatch
	b.batch.Next = stream.Position{Split: b.batch.Split, Offset: int64(b.next)}
	return &b.batch, nil
}

// nowhere is a sink that forgets.
type nowhere struct{ *processortest.Sink }

type forgetful struct{ participant.Branch }

func (forgetful) Write(context.Context, []stream.Record) error { return nil }

func (n nowhere) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	b, err := n.Sink.Begin(ctx, name)
	return forgetful{b}, err
}

// benchmark runs a pipeline over b.N records.
func benchmark(b *testing.B, build func(source processor.Source, one, two processor.Sink) (*processor.Pipeline, error)) {
	b.Helper()
	one, two := nowhere{processortest.NewSink("one")}, nowhere{processortest.NewSink("two")}
	p, err := build(newBlock(b.N), one, two)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	scope := processortest.NewScope(map[string]participant.Resource{"one": one, "two": two})
	task := p.Task(0, nil)
	b.ReportAllocs()
	b.ResetTimer()
	run, err := scope.Begin(ctx, task)
	if err != nil {
		b.Fatal(err)
	}
	if err := run.Await(ctx, func(_, ended bool, _ int64) bool { return ended }); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := task.Halted(ctx, "measured"); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(p.Counters().Fired)/float64(b.N), "results/op")
}

type typedOrder struct {
	customer   []byte
	amount, at int64
}

// BenchmarkRecord: one op is one record of 100 bytes of JSON, 1,000 keys, 1 s windows, from its bytes through the
// window to the encoded results of two sinks: written down, and the same job in Go.
func BenchmarkRecord(b *testing.B) {
	b.Run("yaml", func(b *testing.B) {
		benchmark(b, func(source processor.Source, one, two processor.Sink) (*processor.Pipeline, error) {
			d, err := spec.Parse("bench.yaml", []byte(`
pipeline: bench
source: {name: source, mem: {}, event_time: rec.at}
where: rec.amount >= 0
key: rec.customer
window: {tumbling: 1s, aggregate: {total: sum(rec.amount)}}
sinks: [{name: one, mem: {}}, {name: two, mem: {}}]
`), env)
			if err != nil {
				return nil, err
			}
			return spec.Build(d, []spec.Adapter{{
				Kind:   "mem",
				Source: func(spec.Env, string, spec.Settings) (processor.Source, error) { return source, nil },
				Sink: func(_ spec.Env, name string, _ spec.Settings) (processor.Sink, error) {
					return map[string]processor.Sink{"one": one, "two": two}[name], nil
				},
			}}, env)
		})
	})
	b.Run("typed", func(b *testing.B) {
		benchmark(b, func(source processor.Source, one, two processor.Sink) (*processor.Pipeline, error) {
			reader := jsonfield.For("at", "customer", "amount")
			fields := make([]jsonfield.Value, 3)
			orders := processor.From("source", source, func(in *stream.Record, out *typedOrder) (err error) {
				if err = reader.Read(in.Value, fields); err != nil {
					return err
				}
				if out.customer, err = fields[1].Text(nil); err != nil {
					return err
				}
				if out.amount, err = fields[2].Int(); err != nil {
					return err
				}
				out.at, err = fields[0].Int()
				return err
			}).EventTime(func(o *typedOrder) int64 { return o.at }).
				Where(func(o *typedOrder) bool { return o.amount >= 0 }).
				Key(func(dst []byte, o *typedOrder) []byte { return append(dst, o.customer...) })
			encode := func(r *processor.Result[int64], out *stream.Record) error {
				out.Key = append(out.Key, r.Key...)
				out.Value = fmt.Appendf(out.Value, `{"key":%q,"window_start":%d,"window_end":%d,"total":%d}`, r.Key, r.Window.Start, r.Window.End, r.Value)
				return nil
			}
			return processor.Tumbling(orders, time.Second, aggregate.Sum(func(o *typedOrder) int64 { return o.amount })).
				To("one", one, encode).To("two", two, encode).Pipeline("bench")
		})
	})
}
