package verify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/jsonfield"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a source in memory, by split.
type script map[string][]string

func (s script) Read(_ context.Context, to []stream.Position, f func(stream.Split, *stream.Record) error) error {
	for _, p := range to {
		for i, doc := range s[p.Split.ID][:p.Offset] {
			r := stream.Record{Value: []byte(doc), Topic: "orders", Offset: int64(i)}
			if err := f(p.Split, &r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s script) cut() verify.Cut {
	var c verify.Cut
	for id, docs := range s {
		c.Positions = append(c.Positions, stream.Position{Split: stream.Split{ID: id}, Offset: int64(len(docs))})
	}
	return c
}

// outputs are the results of a sink, as JSON.
type outputs []string

func (o outputs) Read(_ context.Context, f func(verify.Output) error) error {
	for i, doc := range o {
		if err := f(verify.Output{Value: []byte(doc), Place: fmt.Sprintf("line %d", i+1)}); err != nil {
			return err
		}
	}
	return nil
}

func order(key string, at, amount int64) string {
	return fmt.Sprintf(`{"customer":%q,"at":%d,"amount":%d}`, key, at, amount)
}

func total(key string, start, n, sum int64) string {
	return fmt.Sprintf(`{"customer":%q,"start":%d,"orders":%d,"total":%d}`, key, start, n, sum)
}

var totals = verify.Pipeline{Window: time.Second, EventTime: "at", Key: "customer", Value: "amount"}

func sink(name string, r verify.OutputReader) verify.Sink {
	return verify.Sink{
		Name: name, Reader: r, Key: "customer", Start: "start",
		Fields: map[string]verify.Aggregate{"orders": verify.Count, "total": verify.Sum},
	}
}

func run(t testing.TB, p verify.Pipeline, s script, cut verify.Cut, sinks ...verify.Sink) verify.Report {
	t.Helper()
	r, err := verify.Run(context.Background(), p, s, sinks, cut)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var shop = script{
	"0": {order("ada", 100, 5), order("bob", 200, 7), order("ada", 900, 1), order("ada", 1100, 2), order("bob", 2500, 3)},
	"1": {order("cyd", 150, 9), order("cyd", 1900, 4), order("cyd", 2100, 1)},
}

var right = outputs{
	total("ada", 0, 2, 6), total("bob", 0, 1, 7), total("cyd", 0, 1, 9), total("ada", 1000, 1, 2), total("cyd", 1000, 1, 4),
}

func TestRightOutputsAreClean(t *testing.T) {
	r := run(t, totals, shop, shop.cut(), sink("topic", right), sink("files", right))
	if r.Verdict != verify.Clean || r.Records != 8 || r.Windows != 5 || r.Open != 2 {
		t.Errorf("%+v", r)
	}
}

func TestSabotageIsNamed(t *testing.T) {
	bad := slices.Clone(right)
	bad = append(bad[1:], bad[3])                // ada's first left out, ada's second doubled
	bad[1] = total("cyd", 0, 1, 8)               // altered
	bad = append(bad, total("eve", 1000, 1, 1))  // made up
	bad = append(bad, total("bob", 2000, 1, 3))  // not fired yet
	bad = append(bad, `{"customer":"x","start"`) // torn
	r := run(t, totals, shop, shop.cut(), sink("topic", right), sink("files", bad))
	if r.Verdict != verify.Broken {
		t.Errorf("verdict %s", r.Verdict)
	}
	show := func(cases []verify.Case) string {
		var out []string
		for _, c := range cases {
			out = append(out, c.Sink+" "+c.Key+" "+c.Window)
		}
		return strings.Join(out, "\n")
	}
	first, second, third := "1970-01-01T00:00:00.000Z/1970-01-01T00:00:01.000Z", "1970-01-01T00:00:01.000Z/1970-01-01T00:00:02.000Z", "1970-01-01T00:00:02.000Z/1970-01-01T00:00:03.000Z"
	if got, want := show(r.Missing), "files ada "+first; got != want {
		t.Errorf("missing %q, want %q", got, want)
	}
	if got, want := show(r.Doubled), "files ada "+second; got != want {
		t.Errorf("doubled %q, want %q", got, want)
	}
	if got, want := show(r.Different), "files line 8 \nfiles cyd "+first+"\nfiles eve "+second+"\nfiles bob "+third; got != want {
		t.Errorf("different\n%s\nwant\n%s", got, want)
	}
}

func TestAReportIsThisJSON(t *testing.T) {
	r := run(t, totals, shop, shop.cut(), sink("files", right[1:]))
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"verdict":"broken","records":8,"compared":4,"windows":5,"missing":[{"sink":"files","key":"ada","window":"1970-01-01T00:00:00.000Z/1970-01-01T00:00:01.000Z"}],"doubled":[],"different":[],"undeterminable":[]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLateRecordsOfOneSplitAreKnown(t *testing.T) {
	s := script{"0": {order("ada", 100, 5), order("ada", 1000, 1), order("ada", 900, 7), order("ada", 2000, 1)}}
	r := run(t, totals, s, s.cut(), sink("topic", outputs{total("ada", 0, 1, 5), total("ada", 1000, 1, 1)}))
	if r.Verdict != verify.Clean || r.Late != 1 {
		t.Errorf("%+v", r)
	}
}

func TestWhatMayHaveBeenLateIsNeverClean(t *testing.T) {
	s := script{
		"0": {order("ada", 100, 5), order("ada", 1000, 1), order("ada", 900, 7), order("ada", 2000, 1)},
		"1": {order("bob", 100, 5), order("bob", 2000, 1)},
	}
	for _, n := range []int64{1, 2} { // both are possible
		sum := map[int64]int64{1: 5, 2: 12}[n]
		r := run(t, totals, s, s.cut(), sink("topic", outputs{total("ada", 0, n, sum), total("ada", 1000, 1, 1), total("bob", 0, 1, 5)}))
		if r.Verdict != verify.Undeterminable || len(r.Undeterminable) != 1 || r.Undeterminable[0].Key != "ada" {
			t.Errorf("%+v", r)
		}
	}
	idle := totals
	idle.Idle = true
	r := run(t, idle, shop, shop.cut(), sink("topic", right[1:]))
	if r.Verdict != verify.Undeterminable {
		t.Errorf("with idle splits, a result that is not there: %+v", r)
	}
	if r := run(t, idle, shop, shop.cut(), sink("topic", append(slices.Clone(right), right[0]))); r.Verdict != verify.Broken {
		t.Errorf("with idle splits, a doubled result: %+v", r)
	}
}

func TestARecordThatCannotBeReadIsNeverClean(t *testing.T) {
	s := script{"0": {order("ada", 100, 5), `{"customer":`, order("ada", 1000, 1)}}
	out := sink("topic", outputs{total("ada", 0, 1, 5)})
	if r := run(t, totals, s, s.cut(), out); r.Verdict != verify.Undeterminable || r.Undeterminable[0].Key != "orders/0/1" {
		t.Errorf("%+v", r)
	}
	skips := totals
	skips.SkipBad = true
	if r := run(t, skips, s, s.cut(), out); r.Verdict != verify.Clean || r.Skipped != 1 {
		t.Errorf("%+v", r)
	}
}

func TestADrainedPipelineOwesEveryWindow(t *testing.T) {
	cut := shop.cut()
	cut.Drained = true
	r := run(t, totals, shop, cut, sink("topic", right))
	if r.Verdict != verify.Broken || len(r.Missing) != 2 {
		t.Errorf("%+v", r)
	}
	all := append(slices.Clone(right), total("bob", 2000, 1, 3), total("cyd", 2000, 1, 1))
	if r := run(t, totals, shop, cut, sink("topic", all)); r.Verdict != verify.Clean {
		t.Errorf("%+v", r)
	}
}

// epochs adds to outputs the epoch they came from.
type epochs []uint64

func (e epochs) Read(_ context.Context, f func(verify.Output) error) error {
	for i, n := range e {
		if err := f(verify.Output{Value: []byte(right[i]), Generation: 7, N: n, Place: "x"}); err != nil {
			return err
		}
	}
	return nil
}

func TestS4_AResultIsOfOneEpochInAllSinks(t *testing.T) {
	a, b := epochs{1, 1, 1, 2, 2}, epochs{1, 1, 2, 2, 2}
	if r := run(t, totals, shop, shop.cut(), sink("topic", a), sink("files", a)); r.Verdict != verify.Clean {
		t.Errorf("%+v", r)
	}
	r := run(t, totals, shop, shop.cut(), sink("topic", a), sink("files", b))
	if r.Verdict != verify.Broken || len(r.Different) != 1 || r.Different[0].Key != "cyd" {
		t.Errorf("%+v", r)
	}
}

// TestAPipelineIsVerified runs a pipeline of random records in random batches, kills it, and verifies what it wrote.
func TestAPipelineIsVerified(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		docs := script{}
		names := []string{"0", "1", "2"}[:rapid.IntRange(1, 3).Draw(rt, "splits")]
		disorder := rapid.Int64Range(0, 500).Draw(rt, "disorder")
		for _, split := range names {
			clock := int64(0)
			for range rapid.IntRange(0, 40).Draw(rt, "records") {
				clock += rapid.Int64Range(0, 400).Draw(rt, "step")
				behind := rapid.Int64Range(0, disorder).Draw(rt, "behind")
				docs[split] = append(docs[split], order(rapid.SampledFrom([]string{"ada", "bob"}).Draw(rt, "key"), clock-behind, 3))
			}
		}
		lives := rapid.IntRange(1, 4).Draw(rt, "lives")
		batch := rapid.IntRange(1, 9).Draw(rt, "batch")
		drain := rapid.Bool().Draw(rt, "drain")
		synctest.Test(t, func(t *testing.T) {
			out, cut := pipeline(t, docs, names, disorder, lives, batch, drain)
			p := totals
			p.Disorder = time.Duration(disorder) * time.Millisecond
			r := run(t, p, docs, cut, sink("one", out))
			if r.Verdict != verify.Clean {
				rt.Fatalf("%+v\nof %v\nfrom %v", r, out, docs)
			}
			if len(out) > 0 {
				if r := run(t, p, docs, cut, sink("one", out[1:])); r.Verdict != verify.Broken || len(r.Missing) != 1 {
					rt.Fatalf("one left out: %+v", r)
				}
			}
		})
	})
}

type entry struct {
	customer   []byte
	at, amount int64
}

func pipeline(t *testing.T, docs script, names []string, disorder int64, lives, batch int, drain bool) (outputs, verify.Cut) {
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	src, out := processortest.NewSource("orders", names...), processortest.NewSink("one")
	src.Batch = batch
	for _, split := range names {
		for _, d := range docs[split] {
			src.Append(split, stream.Record{Value: []byte(d)})
		}
	}
	fields, reader := make([]jsonfield.Value, 3), jsonfield.For("customer", "at", "amount")
	orders := processor.From("orders", src, func(in *stream.Record, e *entry) (err error) {
		if err = reader.Read(in.Value, fields); err != nil {
			return err
		}
		e.customer, _ = fields[0].Text(nil)
		e.at, _ = fields[1].Int()
		e.amount, err = fields[2].Int()
		return err
	}).EventTime(func(e *entry) int64 { return e.at }).Key(func(dst []byte, e *entry) []byte { return append(dst, e.customer...) })
	build := func() participant.Task {
		p, err := processor.Tumbling(orders, time.Second, aggregate.Summarize(func(e *entry) int64 { return e.amount })).
			Disorder(time.Duration(disorder)*time.Millisecond).IdleAfter(0).
			To("one", out, func(r *processor.Result[aggregate.Summary], o *stream.Record) error {
				o.Value = append(o.Value, total(string(r.Key), r.Window.Start, r.Value.Count, r.Value.Sum)...)
				return nil
			}).Pipeline("totals")
		must(err)
		return p.Task(0, nil)
	}
	scope := processortest.NewScope(map[string]participant.Resource{"one": out})
	for life := range lives {
		task := build()
		_, err := scope.Begin(ctx, task)
		must(err)
		last := life == lives-1
		if last {
			synctest.Wait()
		}
		must(task.Barrier(ctx, participant.Barrier{Generation: uint64(life + 1), N: 1, Final: last, Drain: last && drain}))
		if life%2 == 0 || last {
			must(scope.Decide(ctx))
		}
		must(task.Halted(ctx, "killed"))
	}
	must(scope.Close(ctx))
	cut := verify.Cut{Drained: drain}
	_, _, c := scope.Last()
	for _, split := range names {
		at := stream.Position{Split: stream.Split{Resource: "orders", ID: split}}
		for _, p := range c.Positions {
			if p.Split == split {
				at.Offset = p.Offset
			}
		}
		cut.Positions = append(cut.Positions, at)
	}
	var got outputs
	for _, r := range out.Committed() {
		got = append(got, string(r.Record.Value))
	}
	return got, cut
}

// ahead is a pipeline that goes on while it is verified: proven up to five and two records, decided
// up to the end.
func ahead() (s script, cut verify.Cut) {
	s = script{
		"0": append(slices.Clone(shop["0"]), order("ada", 3600, 4), order("bob", 4700, 2)),
		"1": append(slices.Clone(shop["1"]), order("cyd", 3900, 8), order("cyd", 4800, 8)),
	}
	cut = s.cut()
	cut.Newest = slices.Clone(cut.Positions)
	for i := range cut.Positions {
		cut.Positions[i].Offset = map[string]int64{"0": 5, "1": 3}[cut.Positions[i].Split.ID]
	}
	return s, cut
}

func TestWhatFiredSinceTheCutMayBeThereAndIsJudged(t *testing.T) {
	s, cut := ahead()
	r := run(t, totals, s, cut, sink("topic", right), sink("files", right))
	if r.Verdict != verify.Clean || r.Records != 8 || r.Windows != 5 {
		t.Errorf("nothing of the newer epochs is there: %+v", r)
	}
	more := append(slices.Clone(right), total("bob", 2000, 1, 3), total("cyd", 2000, 1, 1), total("ada", 3000, 1, 4))
	r = run(t, totals, s, cut, sink("topic", more), sink("files", right))
	if r.Verdict != verify.Clean || r.Records != 8 || r.Windows != 5 {
		t.Errorf("one sink is ahead: %+v", r)
	}
	for what, bad := range map[string]outputs{
		"altered":   append(slices.Clone(right), total("bob", 2000, 1, 4)),
		"too early": append(slices.Clone(right), total("bob", 4000, 1, 2)),
	} {
		if r = run(t, totals, s, cut, sink("topic", bad)); r.Verdict != verify.Broken || len(r.Different) != 1 {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if r = run(t, totals, s, cut, sink("topic", right[1:])); r.Verdict != verify.Broken || len(r.Missing) != 1 {
		t.Errorf("missing at the cut: %+v", r)
	}
}

func TestADrainIsSeenInTheSinksAndAStopToo(t *testing.T) {
	drained := append(slices.Clone(right), total("bob", 2000, 1, 3), total("cyd", 2000, 1, 1))
	cut := shop.cut()
	cut.Final = true
	if r := run(t, totals, shop, cut, sink("topic", right), sink("files", right)); r.Verdict != verify.Clean || r.Open != 2 {
		t.Errorf("stopped: %+v", r)
	}
	if r := run(t, totals, shop, cut, sink("topic", drained), sink("files", drained)); r.Verdict != verify.Clean || r.Windows != 7 || r.Open != 0 {
		t.Errorf("drained: %+v", r)
	}
	r := run(t, totals, shop, cut, sink("topic", drained), sink("files", drained[:6]))
	if r.Verdict != verify.Broken || len(r.Missing) != 1 || r.Missing[0].Sink != "files" || r.Missing[0].Key != "cyd" {
		t.Errorf("drained into one sink alone: %+v", r)
	}
	cut.Final = false
	if r := run(t, totals, shop, cut, sink("topic", drained)); r.Verdict != verify.Broken || len(r.Different) != 2 {
		t.Errorf("not final: %+v", r)
	}
}
