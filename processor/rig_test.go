package processor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/jsonfield"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ Source = (*processortest.Source)(nil)
	_ Sink   = (*processortest.Sink)(nil)
)

// reading is what the tests' records say.
type reading struct {
	id, key []byte
	at      int64
	value   int64
}

var readingFields = jsonfield.For("id", "key", "at", "value")

func decodeReading() func(in *stream.Record, out *reading) error {
	fields := make([]jsonfield.Value, 4)
	return func(in *stream.Record, out *reading) (err error) {
		if err := readingFields.Read(in.Value, fields); err != nil {
			return err
		}
		var errs [4]error
		out.id, errs[0] = fields[0].Text(nil)
		out.key, errs[1] = fields[1].Text(nil)
		out.at, errs[2] = fields[2].Int()
		out.value, errs[3] = fields[3].Int()
		return errors.Join(errs[:]...)
	}
}

func record(id, key string, at, value int64) stream.Record {
	return stream.Record{Value: fmt.Appendf(nil, `{"id":%q,"key":%q,"at":%d,"value":%d}`, id, key, at, value), Time: at}
}

func byKey(dst []byte, r *reading) []byte { return append(dst, r.key...) }

func at(r *reading) int64 { return r.at }

func value(r *reading) int64 { return r.value }

// ids is an aggregate of a user's own: which records, in their order.
type ids struct{}

func (ids) Name() string               { return "ids" }
func (ids) Init(acc *[]string)         { *acc = nil }
func (ids) Merge(a, b *[]string) error { *a = append(*a, *b...); return nil }

func (ids) Add(acc *[]string, r *reading) error {
	*acc = append(*acc, string(r.id))
	return nil
}

func (ids) Encode(dst []byte, acc *[]string) []byte { return append(dst, strings.Join(*acc, " ")...) }

func (ids) Decode(src []byte, acc *[]string) error {
	*acc = strings.Fields(string(src))
	return nil
}

func encodeIDs(r *Result[[]string], out *stream.Record) error {
	out.Key = append(out.Key, r.Key...)
	out.Value = append(out.Value, strings.Join(r.Value, " ")...)
	out.Headers = append(out.Headers, stream.Header{Key: "start", Value: strconv.AppendInt(nil, r.Window.Start, 10)})
	return nil
}

func encodeSum(r *Result[int64], out *stream.Record) error {
	out.Key = append(out.Key, r.Key...)
	out.Value = strconv.AppendInt(append(out.Value, strconv.FormatInt(r.Window.Start, 10)+" "...), r.Value, 10)
	return nil
}

func encodeLate(_ *stream.Record, rec *reading, out *stream.Record) error {
	out.Value = append(out.Value, rec.id...)
	return nil
}

// rig runs a pipeline step by step, without goroutines of its own, against a scope in memory.
type rig struct {
	t      testing.TB
	ctx    context.Context
	source *processortest.Source
	sinks  map[string]*processortest.Sink
	scope  *processortest.Scope
	build  func() *Pipeline
	task   *task
	run    *processortest.Run
	n      uint64
	ended  bool
}

func newRig(t testing.TB, source *processortest.Source, build func(r *rig) *Pipeline, sinks ...string) *rig {
	r := &rig{t: t, ctx: context.Background(), source: source, sinks: map[string]*processortest.Sink{}}
	resources := map[string]participant.Resource{}
	for _, name := range sinks {
		r.sinks[name] = processortest.NewSink(name)
		resources[name] = r.sinks[name]
	}
	r.scope = processortest.NewScope(resources)
	r.build = func() *Pipeline { return build(r) }
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// restart is kill -9 and a new process.
func (r *rig) restart() {
	r.t.Helper()
	r.must(r.tryRestart())
}

func (r *rig) tryRestart() error {
	restore, run, err := r.scope.Open(r.ctx)
	if err != nil {
		return err
	}
	r.task = newTask(r.build(), "test", 0, nil)
	if err := r.task.Restore(r.ctx, restore); err != nil {
		return err
	}
	r.run, r.n, r.ended = run, 0, false
	r.task.loop.run, r.task.loop.limit = run, r.scope.InlineLimit
	return nil
}

// poll takes one batch, or the end, through the loop; false: there was nothing.
func (r *rig) poll() bool {
	r.t.Helper()
	if r.ended {
		return false
	}
	b, err := r.source.Poll(r.ctx)
	switch {
	case errors.Is(err, io.EOF):
		r.ended = true
		r.must(r.task.loop.end(r.ctx))
	case err != nil:
		r.t.Fatal(err)
	case b == nil:
		return false
	default:
		r.must(r.task.loop.batch(r.ctx, b, 0))
	}
	return true
}

// barrier ends the epoch, without a decision.
func (r *rig) barrier(drain bool) {
	r.t.Helper()
	r.n++
	r.must(r.task.loop.barrier(r.ctx, participant.Barrier{Generation: r.task.gen, N: r.n, Final: drain, Drain: drain}))
}

// decide decides the next epoch and commits it.
func (r *rig) decide() {
	r.t.Helper()
	r.must(r.scope.Decide(r.ctx))
	r.must(r.scope.Finish(r.ctx))
}

// epoch is a barrier and its decision.
func (r *rig) epoch() {
	r.t.Helper()
	r.barrier(false)
	r.decide()
}

// values lists a sink's committed values.
func (r *rig) values(sink string) []string {
	var out []string
	for _, c := range r.sinks[sink].Committed() {
		out = append(out, string(c.Record.Key)+"="+string(c.Record.Value))
	}
	return out
}

func (r *rig) expect(sink string, want ...string) {
	r.t.Helper()
	if got := r.values(sink); !slices.Equal(got, want) {
		r.t.Fatalf("sink %q holds %q, want %q", sink, got, want)
	}
}

// sums is a pipeline of sums per second into the sinks "one" and "two".
func sums(t testing.TB, change ...func(*Windowed[reading, int64]) *Windowed[reading, int64]) func(r *rig) *Pipeline {
	return func(r *rig) *Pipeline {
		w := Tumbling(From("in", r.source, decodeReading()).EventTime(at).Key(byKey), time.Second, aggregate.Sum(value))
		for _, c := range change {
			w = c(w)
		}
		p, err := w.To("one", r.sinks["one"], encodeSum).To("two", r.sinks["two"], encodeSum).Pipeline("test")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}
