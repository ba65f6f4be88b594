package processor_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// world is a pipeline over three real nodes in virtual time.
type world struct {
	t           *testing.T
	cluster     *coordinatortest.Cluster
	client      *participant.Client
	source      *processortest.Source
	topic, file *processortest.Sink
	store       state.Store
	docs        map[string][]string
}

func newWorld(t *testing.T, store state.Store) *world {
	w := &world{
		t: t, cluster: coordinatortest.Start(t, 3), store: store, docs: map[string][]string{},
		source: processortest.NewSource("orders", "0", "1"),
		topic:  processortest.NewSink("topic"), file: processortest.NewSink("files"),
	}
	w.client = w.cluster.Client()
	spec, err := w.pipeline().Spec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &unisinkv1.Pipeline{
		Name: spec.Name, Fingerprint: spec.Fingerprint, KeyGroups: spec.KeyGroups, Shards: 1,
		Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: 100},
	}
	for _, m := range spec.Members {
		member := &unisinkv1.MemberSpec{Name: m.Name, Source: m.Source}
		for _, r := range m.Resources {
			member.Resources = append(member.Resources, &unisinkv1.ResourceSpec{Name: r.Name, Kind: r.Kind})
		}
		p.Members = append(p.Members, member)
	}
	if _, err := w.client.Pipelines().PutPipeline(t.Context(), &unisinkv1.PutPipelineRequest{Meta: w.client.NewMeta(), Pipeline: p}); err != nil {
		t.Fatal(err)
	}
	return w
}

// pipeline is built anew for each process.
func (w *world) pipeline() *processor.Pipeline {
	orders := processor.From("orders", w.source, orderDecoder()).
		EventTime(func(o *Order) int64 { return o.At }).
		Key(func(dst []byte, o *Order) []byte { return append(dst, o.Customer...) })
	encode := func(r *processor.Result[aggregate.Summary], out *stream.Record) error {
		out.Key = append(out.Key, r.Key...)
		out.Value = fmt.Appendf(out.Value, `{"start":%d,"orders":%d,"total":%d}`, r.Window.Start, r.Value.Count, r.Value.Sum)
		return nil
	}
	var opts []processor.Option
	if w.store != nil {
		opts = append(opts, processor.StateStore(w.store))
	}
	p, err := processor.Tumbling(orders, time.Second, aggregate.Summarize(func(o *Order) int64 { return o.Amount })).
		IdleAfter(0).To("topic", w.topic, encode).To("files", w.file, encode).Pipeline("totals", opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// run starts a process and returns what kills it, and where its error comes.
func (w *world) run() (kill func(), ended <-chan error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	p := w.pipeline()
	go func() {
		done <- p.Run(ctx, processor.RunConfig{Coordinators: w.cluster.Addresses(), Dial: w.cluster.Dial})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("run: %v", err)
		}
	}, done
}

// order appends one order to both splits.
func (w *world) order(i, keys int) { w.orderOf(fmt.Sprintf("c-%05d", i*7919%keys), i%100, i*10) }

func (w *world) orderOf(customer string, amount, at int) {
	for _, split := range []string{"0", "1"} {
		doc := fmt.Sprintf(`{"customer":%q,"amount":%d,"at":%d}`, customer, amount, at)
		w.docs[split] = append(w.docs[split], doc)
		w.source.Append(split, stream.Record{Value: []byte(doc)})
	}
}

// drain stops the pipeline with everything fired, and verifies its outputs.
func (w *world) drain(ended <-chan error) {
	w.t.Helper()
	desired := &unisinkv1.SetDesiredRequest{Meta: w.client.NewMeta(), Name: "totals", Desired: unisinkv1.DesiredState_DESIRED_STATE_DRAINING}
	if _, err := w.client.Pipelines().SetDesired(w.t.Context(), desired); err != nil {
		w.t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			w.t.Fatalf("run: %v", err)
		}
	case <-time.After(time.Minute):
		w.t.Fatal("the pipeline does not stop")
	}
	cut, err := w.client.Pipelines().ProvenCut(w.t.Context(), &unisinkv1.ProvenCutRequest{Pipeline: "totals"})
	if err != nil {
		w.t.Fatal(err)
	}
	c := verify.Cut{Drained: true}
	for _, s := range cut.GetScopes() {
		for _, p := range s.GetPositions() {
			split := stream.Split{Resource: p.GetResource(), ID: p.GetSplit()}
			c.Positions = append(c.Positions, stream.Position{Split: split, Offset: p.GetOffset()})
		}
	}
	fields := map[string]verify.Aggregate{"orders": verify.Count, "total": verify.Sum}
	r, err := verify.Run(w.t.Context(),
		verify.Pipeline{Window: time.Second, EventTime: "at", Key: "customer", Value: "amount"}, w,
		[]verify.Sink{
			{Name: "topic", Reader: committed{w.topic}, Start: "start", Fields: fields},
			{Name: "files", Reader: committed{w.file}, Start: "start", Fields: fields},
		}, c)
	if err != nil {
		w.t.Fatal(err)
	}
	records := len(w.docs["0"]) + len(w.docs["1"])
	if r.Verdict != verify.Clean || r.Records != records || r.Windows == 0 {
		w.t.Errorf("%+v, of %d records", r, records)
	}
	if n := w.topic.Prepared() + w.file.Prepared(); n != 0 {
		w.t.Errorf("%d branches are left behind", n)
	}
	w.cluster.AssertSameState()
}

// Read makes the world a verify.SourceReader.
func (w *world) Read(_ context.Context, to []stream.Position, f func(stream.Split, *stream.Record) error) error {
	for _, p := range to {
		for i, doc := range w.docs[p.Split.ID][:p.Offset] {
			if err := f(p.Split, &stream.Record{Value: []byte(doc), Topic: "orders", Offset: int64(i)}); err != nil {
				return err
			}
		}
	}
	return nil
}

type committed struct{ sink *processortest.Sink }

func (c committed) Read(_ context.Context, f func(verify.Output) error) error {
	for i, r := range c.sink.Committed() {
		o := verify.Output{Key: r.Record.Key, Value: r.Record.Value, Generation: r.Generation, N: r.N, Place: fmt.Sprint("record ", i)}
		if err := f(o); err != nil {
			return err
		}
	}
	return nil
}

// Pipelines are killed and run again, the leader too, while orders come; at the end both sinks hold
// every window once.
func TestPipelinesAndLeadersDieAndEveryRecordIsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		kill, ended := w.run()
		for i := range 2000 {
			w.order(i, 5)
			time.Sleep(10 * time.Millisecond)
			switch i {
			case 400, 733, 734, 1200:
				kill()
				kill, ended = w.run()
			case 900, 1500:
				leader := w.cluster.Leader()
				w.cluster.Crash(leader)
				time.Sleep(3 * time.Second)
				w.cluster.Restart(leader)
			}
		}
		if n := len(w.topic.Committed()); n < 50 {
			t.Errorf("%d results before the drain; windows do not fire as they should", n)
		}
		w.drain(ended)
	})
}

// State that does not fit into a vote lies in a store and survives as well.
func TestStateInAStoreSurvivesThePipeline(t *testing.T) {
	dir, err := state.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		kill, ended := w.run()
		turns, life := 500, 150
		if testing.Short() {
			turns, life = 200, 60 // as many deaths, each in another part of a window
		}
		for i := range turns {
			for j := range 40 { // 4,000 keys per window, which cannot be compressed into a vote
				w.orderOf(fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, i, j))), j, i*10)
			}
			time.Sleep(10 * time.Millisecond)
			if i%life == life-1 {
				ids, err := dir.List(t.Context(), "totals.0.main.")
				if err != nil || len(ids) == 0 {
					t.Errorf("after turn %d the store has no part: %v", i, err)
				}
				kill()
				kill, ended = w.run()
			}
		}
		time.Sleep(5 * time.Second)
		w.drain(ended)
	})
	ids, err := dir.List(t.Context(), "totals.0.main.")
	if err != nil || len(ids) > 20 {
		t.Errorf("%d parts are left, %v: %s", len(ids), err, strings.Join(ids, " "))
	}
}

func TestAPipelineWithoutCoordinatorsSaysSo(t *testing.T) {
	w := &world{t: t, source: processortest.NewSource("orders", "0"), topic: processortest.NewSink("topic"), file: processortest.NewSink("files")}
	if err := w.pipeline().Run(t.Context(), processor.RunConfig{}); err == nil || !strings.Contains(err.Error(), `pipeline "totals"`) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.pipeline().Run(ctx, processor.RunConfig{Coordinators: []string{"127.0.0.1:1"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
