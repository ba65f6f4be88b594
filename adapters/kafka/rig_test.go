package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// rig is a broker with a topic, and what tests look at it with.
type rig struct {
	testing.TB
	b     *devkafka.Broker // nil where the broker is a real one
	a     *Admin
	addrs []string
	ns    string
	topic string
}

// newRig is one with an embedded broker.
func newRig(t testing.TB, opts ...kfake.Opt) *rig {
	t.Helper()
	b := broker(t, devkafka.Config{Topics: map[string]int{"totals": 3}, Options: opts})
	return rigOn(t, b)
}

// rigOn is one with an embedded broker that is there already.
func rigOn(t testing.TB, b *devkafka.Broker) *rig {
	return &rig{TB: t, b: b, a: admin(t, b), addrs: []string{b.Addr()}, ns: "test", topic: "totals"}
}

// sink makes one that is not open.
func (r *rig) sink(change ...func(*SinkConfig)) *Sink {
	r.Helper()
	cfg := SinkConfig{Brokers: r.addrs, Topic: r.topic}
	for _, f := range change {
		f(&cfg)
	}
	s, err := NewSink(cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := s.Close(); err != nil {
			r.Error(err)
		}
	})
	return s
}

// opening is that of the embedded brokers' tests.
func opening(generation uint64) participant.Opening {
	return participant.Opening{
		Namespace: participant.Namespace{Name: "test", Incarnation: 1}, Scope: "orders/0", Member: "all",
		Resource: "totals", Generation: generation, MaxPending: 2, EpochInterval: 100 * time.Millisecond,
	}
}

func branchName(generation, n uint64) participant.BranchName {
	return participant.BranchName{
		Namespace: participant.Namespace{Name: "test", Incarnation: 1}, Pipeline: "orders", Member: "all",
		Resource: "totals", Generation: generation, N: n,
	}
}

// opening is one in the rig's own namespace.
func (r *rig) opening(generation uint64) participant.Opening {
	o := opening(generation)
	o.Namespace.Name = r.ns
	return o
}

// name names a branch in the rig's own namespace.
func (r *rig) name(generation, n uint64) participant.BranchName {
	name := branchName(generation, n)
	name.Namespace.Name = r.ns
	return name
}

// opened makes a sink that is open for a generation.
func (r *rig) opened(generation uint64, change ...func(*SinkConfig)) *Sink {
	r.Helper()
	s := r.sink(change...)
	if err := s.Open(r.Context(), r.opening(generation)); err != nil {
		r.Fatal(err)
	}
	return s
}

// begin starts a branch and writes n records to it.
func (r *rig) begin(s *Sink, name participant.BranchName, n int) *Branch {
	r.Helper()
	br, err := s.Begin(r.Context(), name)
	if err != nil {
		r.Fatal(err)
	}
	b := br.(*Branch)
	records := make([]stream.Record, n)
	for i := range records {
		records[i] = stream.Record{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%d.%d/%d", name.Generation, name.N, i)}
	}
	if err := b.Write(r.Context(), records); err != nil {
		r.Fatal(err)
	}
	return b
}

// prepared begins, writes and prepares a branch, which must vote yes.
func (r *rig) prepared(s *Sink, name participant.BranchName, n int) participant.Handle {
	r.Helper()
	v, err := r.begin(s, name, n).Prepare(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	if v.Kind != participant.Yes {
		r.Fatalf("prepare %s: vote %d, %v; want yes", name, v.Kind, v.Reason)
	}
	return v.Handle
}

// visible is what readers of committed records see, sorted.
func (r *rig) visible() []string {
	r.Helper()
	var out []string
	err := r.a.ReadAll(r.Context(), r.topic, true, nil, nil, func(rec *stream.Record) error {
		out = append(out, string(rec.Value))
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func (r *rig) sees(want int) {
	r.Helper()
	if got := r.visible(); len(got) != want {
		r.Errorf("readers see %d records, want %d: %.200q", len(got), want, got)
	}
}

func (r *rig) commit(s *Sink, h participant.Handle, want participant.Verdict) {
	r.Helper()
	p, err := s.Commit(r.Context(), h)
	if err != nil || p.Verdict != want {
		r.Errorf("commit: verdict %d (%s), %v; want %d", p.Verdict, p.Evidence, err, want)
	}
}

func (r *rig) rollback(s *Sink, h participant.Handle, want participant.Verdict) {
	r.Helper()
	p, err := s.Rollback(r.Context(), h)
	if err != nil || p.Verdict != want {
		r.Errorf("rollback: verdict %d (%s), %v; want %d", p.Verdict, p.Evidence, err, want)
	}
}

// answer makes the broker answer the next n EndTxn with an error; after says that it does the
// work first.
func (r *rig) answer(n int, err *kerr.Error) *atomic.Int64 {
	var hits atomic.Int64
	r.b.Cluster().ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if hits.Load() >= int64(n) {
			return nil, nil, false
		}
		hits.Add(1)
		r.b.Cluster().KeepControl()
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = err.Code
		return resp, nil, true
	})
	return &hits
}

// refuseStaleEpochs makes the broker refuse what a producer writes by an epoch that somebody has raised since before
// it does anything. That is what real ones do; kfake refuses the records as well, and leaves an empty transaction open.
func (r *rig) refuseStaleEpochs() {
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.addrs...))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(cl.Close)
	inits := map[string]int{} // by id; the control functions run one at a time
	r.b.Cluster().ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.b.Cluster().KeepControl()
		if id := req.(*kmsg.InitProducerIDRequest).TransactionalID; id != nil {
			inits[*id]++
		}
		return nil, nil, false
	})
	r.b.Cluster().ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.b.Cluster().KeepControl()
		produce := req.(*kmsg.ProduceRequest)
		if produce.TransactionID == nil || inits[*produce.TransactionID] < 2 {
			return nil, nil, false
		}
		id := *produce.TransactionID
		var epoch int16
		for before := 0; before != inits[id]; { // others are served while this one waits
			before = inits[id]
			r.b.Cluster().SleepControl(func() { epoch = r.epochOf(cl, id) })
		}
		if epochOfBatch(r, produce) >= epoch {
			return nil, nil, false
		}
		return refusal(produce), nil, true
	})
}

func (r *rig) epochOf(cl *kgo.Client, id string) int16 {
	ask := kmsg.NewPtrDescribeTransactionsRequest()
	ask.TransactionalIDs = []string{id}
	said, err := ask.RequestWith(context.Background(), cl)
	if err != nil {
		r.Errorf("ask for the epoch of %s: %v", id, err)
		return 0
	}
	return said.TransactionStates[0].ProducerEpoch
}

// epochOfBatch is the one that a request's first records were written by.
func epochOfBatch(t testing.TB, produce *kmsg.ProduceRequest) int16 {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(produce.Topics[0].Partitions[0].Records); err != nil {
		t.Errorf("read a batch: %v", err)
	}
	return b.ProducerEpoch
}

func refusal(produce *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	resp := produce.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range produce.Topics {
		to := kmsg.NewProduceResponseTopic()
		to.Topic, to.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, kerr.InvalidProducerEpoch.Code
			to.Partitions = append(to.Partitions, part)
		}
		resp.Topics = append(resp.Topics, to)
	}
	return resp
}
