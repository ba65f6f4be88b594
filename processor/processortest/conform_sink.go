package processortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor/stream"
)

// SinkWriter is processor.Writer, which this package cannot import without a cycle.
type SinkWriter interface {
	participant.Branch
	Write(ctx context.Context, records []stream.Record) error
}

// SinkKit says how to test what a sink does with records. That it keeps the contract of resources is for
// participanttest to say.
type SinkKit struct {
	// New makes a sink with nothing in it.
	New func(t testing.TB) SinkTarget
	// Big is how many records the large batches have; default 20000, of 100 bytes.
	Big int
	// Patience for each check; default one minute.
	Patience time.Duration
}

// SinkTarget is one sink in the world.
type SinkTarget struct {
	// Process opens it as a new process does.
	Process func(t testing.TB) participant.Resource
	// Read returns the values that readers see; those of one key in their order.
	Read func(t testing.TB) []string
	// Bad is a record that the sink cannot write, too large or not in its form; nil: there is none.
	Bad *stream.Record

	patience time.Duration
	big      int
}

// SinkCheck is one rule for sinks.
type SinkCheck struct {
	Name string
	// Run looks at one target. Why says what it had nothing to look with for.
	Run func(g SinkTarget, t testing.TB) (why string)
}

// SinkChecks lists the rules.
func SinkChecks() []SinkCheck {
	always := func(f func(b sinkBench)) func(SinkTarget, testing.TB) string {
		return func(g SinkTarget, t testing.TB) string { f(g.bench(t)); return "" }
	}
	return []SinkCheck{
		{"everything of an epoch shows, or nothing", always(sinkBench.wholeEpochs)},
		{"epochs show in their order, key by key", always(sinkBench.order)},
		{"the next generation goes on where the last was decided", always(sinkBench.restart)},
		{"E1/empty epochs are nothing, however many", always(sinkBench.empty)},
		{"what was written is the caller's again", always(sinkBench.ownership)},
		{"a big batch shows whole, in one write or many", always(sinkBench.bigBatches)},
		{"E3/a record that can't be written is no vote", func(g SinkTarget, t testing.TB) string {
			if g.Bad == nil {
				return "no record is known that it can't write (SinkTarget.Bad)"
			}
			g.bench(t).badRecord(*g.Bad)
			return ""
		}},
		{"a cancelled write is no half of an epoch", always(sinkBench.cancelledWrite)},
		{"nothing is written after the vote", always(sinkBench.lateWrite)},
	}
}

// RunSink tests a sink. The certificate tells what was checked and what was not; it is logged too.
func RunSink(t *testing.T, k SinkKit) participanttest.Certificate {
	if k.Big == 0 {
		k.Big = 20_000
	}
	if k.Patience == 0 {
		k.Patience = time.Minute
	}
	cert := participanttest.Certificate{Adapter: t.Name(), Of: "sink"}
	for _, c := range SinkChecks() {
		var why string
		ran := false
		ok := t.Run(c.Name, func(t *testing.T) {
			ran = true
			g := k.New(t)
			g.patience, g.big = k.Patience, k.Big
			if why = c.Run(g, t); why != "" {
				t.Skip("not certified: " + why)
			}
		})
		if ran {
			note(&cert, c.Name, why, ok)
		}
	}
	t.Log(cert)
	return cert
}

// sinkBench is a target in a check.
type sinkBench struct {
	testing.TB
	SinkTarget
	ctx context.Context
}

func (g SinkTarget) bench(t testing.TB) sinkBench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), max(g.patience, time.Second))
	t.Cleanup(cancel)
	return sinkBench{t, g, ctx}
}

var kitNamespace = participant.Namespace{Name: "kit", Incarnation: 1}

// opened is a new process in a generation.
func (b sinkBench) opened(generation uint64) participant.Resource {
	b.Helper()
	r := b.Process(b.TB)
	b.Cleanup(func() {
		if err := r.Close(); err != nil {
			b.Errorf("close: %v", err)
		}
	})
	err := r.Open(b.ctx, participant.Opening{
		Namespace: kitNamespace, Scope: "orders/0", Member: "sink", Resource: "out", Generation: generation,
		MaxPending: 4, EpochInterval: 100 * time.Millisecond,
	})
	if err != nil {
		b.Fatalf("open generation %d: %v", generation, err)
	}
	return r
}

func (b sinkBench) begin(r participant.Resource, generation, n uint64) SinkWriter {
	b.Helper()
	branch, err := r.Begin(b.ctx, participant.BranchName{
		Namespace: kitNamespace, Pipeline: "orders", Member: "sink", Resource: "out", Generation: generation, N: n,
	})
	if err != nil {
		b.Fatalf("begin %d.%d: %v", generation, n, err)
	}
	w, ok := branch.(SinkWriter)
	if !ok {
		b.Fatalf("a branch of it is %T, which is no processor.Writer", branch)
	}
	return w
}

func (b sinkBench) write(w SinkWriter, records ...stream.Record) {
	b.Helper()
	if err := w.Write(b.ctx, records); err != nil {
		b.Fatalf("write: %v", err)
	}
}

// votes is the handle of a branch that votes yes.
func (b sinkBench) votes(w SinkWriter) participant.Handle {
	b.Helper()
	vote, err := w.Prepare(b.ctx)
	if err != nil || vote.Kind != participant.Yes {
		b.Fatalf("prepare: vote %d, reason %v, error %v; want yes", vote.Kind, vote.Reason, err)
	}
	return vote.Handle
}

func (b sinkBench) commits(r participant.Resource, h participant.Handle) {
	b.Helper()
	if p, err := r.Commit(b.ctx, h); err != nil || p.Verdict != participant.Committed {
		b.Fatalf("commit: verdict %d, %v", p.Verdict, err)
	}
}

func (b sinkBench) rollsBack(r participant.Resource, h participant.Handle) {
	b.Helper()
	if p, err := r.Rollback(b.ctx, h); err != nil || p.Verdict != participant.RolledBack {
		b.Fatalf("roll back: verdict %d, %v", p.Verdict, err)
	}
}

// sees compares what readers see, in any order.
func (b sinkBench) sees(want []stream.Record) {
	b.Helper()
	got := slices.Sorted(slices.Values(b.Read(b.TB)))
	var values []string
	for _, r := range want {
		values = append(values, string(r.Value))
	}
	slices.Sort(values)
	if len(got) != len(values) {
		b.Fatalf("readers see %d records, want %d: %.200q", len(got), len(values), got)
	}
	for i := range got {
		if got[i] != values[i] {
			b.Fatalf("readers see %.100q where %.100q should be", got[i], values[i])
		}
	}
}

// kitKeys is how many keys the kit's records have.
const kitKeys = 5

// epochRecords are n records of one epoch, over a few keys; their values are JSON and grow within a key.
func epochRecords(epoch, n int) []stream.Record {
	out := make([]stream.Record, n)
	for i := range out {
		key := i % kitKeys
		out[i] = stream.Record{
			Key: fmt.Appendf(nil, "key-%d", key), Value: fmt.Appendf(nil, `{"key":%d,"epoch":"%06d","i":"%06d"}`, key, epoch, i),
		}
	}
	return out
}

func (b sinkBench) wholeEpochs() {
	r := b.opened(1)
	kept, dropped := epochRecords(1, 500), epochRecords(2, 500)
	w := b.begin(r, 1, 1)
	b.write(w, kept...)
	h := b.votes(w)
	b.sees(nil)
	w2 := b.begin(r, 1, 2)
	b.write(w2, dropped...)
	h2 := b.votes(w2)
	b.commits(r, h)
	b.sees(kept)
	b.rollsBack(r, h2)
	b.sees(kept)
}

func (b sinkBench) order() {
	r := b.opened(1)
	var all []stream.Record
	var handles []participant.Handle
	for n := 1; n <= 3; n++ {
		w := b.begin(r, 1, uint64(n))
		for _, rec := range epochRecords(n, 20) {
			b.write(w, rec)
			all = append(all, rec)
		}
		handles = append(handles, b.votes(w))
	}
	for _, h := range handles {
		b.commits(r, h)
	}
	b.sees(all)
	last := map[string]string{}
	for _, v := range b.Read(b.TB) {
		key, rest, _ := strings.Cut(v, ",")
		if rest < last[key] {
			b.Errorf("%s comes behind %s", v, last[key])
		}
		last[key] = rest
	}
}

// restart: the process dies with one epoch decided, one voted for and one being written; the next one writes
// again all that was not decided, under the same numbers.
func (b sinkBench) restart() {
	first := b.opened(1)
	var handles []participant.Handle
	for n := 1; n <= 2; n++ {
		w := b.begin(first, 1, uint64(n))
		b.write(w, epochRecords(n, 20)...)
		handles = append(handles, b.votes(w))
	}
	b.write(b.begin(first, 1, 3), epochRecords(3, 20)...)

	next := b.opened(2)
	b.commits(next, handles[0])
	b.rollsBack(next, handles[1])
	// What was being written may have come to be listed, or may not; whoever restores drops what is.
	left, err := next.List(b.ctx, kitNamespace)
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range left {
		b.rollsBack(next, l.Handle)
	}
	want := epochRecords(1, 20)
	for n := 2; n <= 4; n++ {
		w := b.begin(next, 2, uint64(n-1))
		b.write(w, epochRecords(n, 20)...)
		b.commits(next, b.votes(w))
		want = append(want, epochRecords(n, 20)...)
	}
	b.sees(want)
}

func (b sinkBench) empty() {
	r := b.opened(1)
	var want []stream.Record
	for n := 1; n <= 40; n++ {
		w := b.begin(r, 1, uint64(n))
		if n%10 == 0 {
			b.write(w, epochRecords(n, 1)...)
			b.commits(r, b.votes(w))
			want = append(want, epochRecords(n, 1)...)
			continue
		}
		if n%2 == 0 {
			b.write(w) // no records are no work either
		}
		if vote, err := w.Prepare(b.ctx); err != nil || vote.Kind != participant.ReadOnly {
			b.Fatalf("an epoch without a record votes %d, %v, error %v; want read-only", vote.Kind, vote.Reason, err)
		}
	}
	b.sees(want)
	if found, err := r.List(b.ctx, kitNamespace); err != nil || len(found) > 0 {
		b.Errorf("%d branches are left, error %v", len(found), err)
	}
}

// ownership: a batch is overwritten as soon as Write has returned.
func (b sinkBench) ownership() {
	r := b.opened(1)
	w := b.begin(r, 1, 1)
	want := epochRecords(1, 50)
	for i := range want {
		rec := stream.Record{
			Key: slices.Clone(want[i].Key), Value: slices.Clone(want[i].Value), Headers: []stream.Header{{Key: "h", Value: []byte("v")}},
		}
		batch := []stream.Record{rec}
		b.write(w, batch...)
		for _, spoil := range [][]byte{rec.Key, rec.Value, rec.Headers[0].Value} {
			for j := range spoil {
				spoil[j] = '?'
			}
		}
		batch[0] = stream.Record{}
	}
	b.commits(r, b.votes(w))
	b.sees(want)
}

func (b sinkBench) bigBatches() {
	r := b.opened(1)
	var want []stream.Record
	for n := 1; n <= 2; n++ {
		records := epochRecords(n, max(b.big, 10))
		for i := range records {
			records[i].Value = append(records[i].Value[:len(records[i].Value)-1], `,"pad":"`+strings.Repeat("x", 60)+`"}`...)
		}
		w := b.begin(r, 1, uint64(n))
		piece := len(records)
		if n == 2 {
			piece = 97
		}
		for part := range slices.Chunk(records, piece) {
			b.write(w, part...)
		}
		b.commits(r, b.votes(w))
		want = append(want, records...)
	}
	b.sees(want)
}

// noVote checks that a branch of which a write failed is not voted for with a part of its records. A
// failed write may as well be all that there is: then the caller ends the branch.
func (b sinkBench) noVote(r participant.Resource, w SinkWriter, werr error) {
	b.Helper()
	if werr != nil {
		if err := w.Discard(b.ctx); err != nil && !errors.Is(err, participant.ErrPrepared) {
			b.Logf("discard after a write that failed: %v", err)
		}
		b.sees(nil)
		return
	}
	vote, err := w.Prepare(b.ctx)
	if err == nil && vote.Kind != participant.No {
		b.Fatalf("a branch with a record that it can't write votes %d", vote.Kind)
	}
	b.sees(nil)
}

func (b sinkBench) badRecord(bad stream.Record) {
	r := b.opened(1)
	w := b.begin(r, 1, 1)
	b.write(w, epochRecords(1, 10)...)
	b.noVote(r, w, w.Write(b.ctx, []stream.Record{bad}))
	// The generation ends with it, and the next one is not spoilt.
	next := b.opened(2)
	w = b.begin(next, 2, 1)
	b.write(w, epochRecords(1, 10)...)
	b.commits(next, b.votes(w))
	b.sees(epochRecords(1, 10))
}

func (b sinkBench) cancelledWrite() {
	r := b.opened(1)
	w := b.begin(r, 1, 1)
	records := epochRecords(1, 500)
	b.write(w, records[:100]...)
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if err := w.Write(ctx, records[100:]); err != nil {
		if derr := w.Discard(b.ctx); derr != nil {
			b.Errorf("discard after a cancelled write: %v", derr)
		}
		b.sees(nil)
		return
	}
	// It was taken all the same: then it is whole.
	b.commits(r, b.votes(w))
	b.sees(records)
}

func (b sinkBench) lateWrite() {
	r := b.opened(1)
	w := b.begin(r, 1, 1)
	b.write(w, epochRecords(1, 10)...)
	h := b.votes(w)
	if err := w.Write(b.ctx, epochRecords(2, 10)); err == nil {
		b.Errorf("a write after the vote is taken")
	}
	b.commits(r, h)
	b.sees(epochRecords(1, 10))
}
