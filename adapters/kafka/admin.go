package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// AdminConfig is how tools reach a cluster.
type AdminConfig struct {
	Brokers     []string // "host:port", at least one
	Compression Compression
	ClientID    string       // default "unisink"
	Security    Security     // TLS and SASL
	Options     []kgo.Opt    // added to those of every client: a dialer, other mechanisms
	Logger      *slog.Logger // default: discard
}

// Admin has the few calls that the demo, verify and tests need. All of them may be called from
// several goroutines at once.
type Admin struct {
	at  endpoint
	cl  *kgo.Client
	adm *kadm.Client
}

// NewAdmin checks the settings; nothing is dialled before the first call. The caller closes it.
func NewAdmin(cfg AdminConfig) (*Admin, error) {
	codec, err := cfg.Compression.codec()
	if err := misconfigured("kafka admin", []error{checkBrokers(cfg.Brokers), cfg.Security.check(), err}); err != nil {
		return nil, err
	}
	at, err := newEndpoint(cfg.Brokers, cfg.ClientID, cfg.Security, cfg.Options, cfg.Logger)
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{kgo.RecordPartitioner(kgo.UniformBytesPartitioner(64<<10, true, true, nil))}
	if codec != nil {
		opts = append(opts, kgo.ProducerBatchCompression(codec...))
	}
	cl, err := at.client(opts...)
	if err != nil {
		return nil, err
	}
	return &Admin{at: at, cl: cl, adm: kadm.NewClient(cl)}, nil
}

// Close ends the client. Records that an asynchronous Produce still holds are dropped; Flush first.
func (a *Admin) Close() { a.cl.Close() }

// Reach makes sure that a broker answers; the error is one sentence.
func (a *Admin) Reach(ctx context.Context) error { return a.at.reach(ctx, a.cl) }

// ClusterID is the cluster's own id, the identity of every handle made there.
func (a *Admin) ClusterID(ctx context.Context) (string, error) {
	id, _, err := metadata(ctx, a.cl)
	if err != nil {
		return "", classed(fmt.Errorf("ask %s for its cluster id: %w", a.at, err))
	}
	return id, nil
}

// CreateTopic makes a topic with the cluster's default replication, and returns when every
// partition has a leader; one that is there already, with as many partitions, is no error.
func (a *Admin) CreateTopic(ctx context.Context, name string, partitions int, config map[string]string) error {
	settings := make(map[string]*string, len(config))
	for k, v := range config {
		settings[k] = &v
	}
	_, err := a.adm.CreateTopic(ctx, int32(partitions), -1, settings, name)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		topics, err := a.at.topics(ctx, a.cl, name)
		if err != nil {
			return err
		}
		if have := len(topics[name].parts); have != partitions {
			return fmt.Errorf("%w: topic %q at %s has %d partitions already, not %d", participant.ErrMisconfigured, name, a.at, have, partitions)
		}
		return nil
	}
	if err != nil {
		return classed(fmt.Errorf("create topic %q at %s: %w", name, a.at, err))
	}
	wait := slow()
	for {
		_, topics, err := metadata(ctx, a.cl, name)
		if err != nil {
			return classed(fmt.Errorf("ask %s for topic %q: %w", a.at, name, err))
		}
		leaderless := func(p partInfo) bool { return p.leader < 0 }
		if t := topics[name]; len(t.parts) == partitions && !slices.ContainsFunc(t.parts, leaderless) {
			return nil
		}
		if err := wait.wait(ctx); err != nil {
			return fmt.Errorf("topic %q at %s was created, but has no leaders yet: %w", name, a.at, err)
		}
	}
}

// DeleteTopic removes a topic; one that is not there is no error.
func (a *Admin) DeleteTopic(ctx context.Context, name string) error {
	_, err := a.adm.DeleteTopic(ctx, name)
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return classed(fmt.Errorf("delete topic %q at %s: %w", name, a.at, err))
	}
	return nil
}

// TopicExists reports whether a topic is there, and with how many partitions.
func (a *Admin) TopicExists(ctx context.Context, name string) (partitions int, found bool, err error) {
	_, topics, err := metadata(ctx, a.cl, name)
	if err != nil {
		return 0, false, classed(fmt.Errorf("ask %s for topic %q: %w", a.at, name, err))
	}
	t, ok := topics[name]
	if !ok || t.missing() {
		return 0, false, nil
	}
	if t.err != nil {
		return 0, false, classed(fmt.Errorf("topic %q at %s: %w", name, a.at, t.err))
	}
	return len(t.parts), true, nil
}

// StartOffsets is the first offset of each partition that is still there.
func (a *Admin) StartOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	return a.offsets(ctx, topic, a.adm.ListStartOffsets)
}

// EndOffsets is the offset behind the last record of each partition; of committed ones, behind
// the last that readers of committed records can see now.
func (a *Admin) EndOffsets(ctx context.Context, topic string, committed bool) (map[int32]int64, error) {
	if committed {
		return a.offsets(ctx, topic, a.adm.ListCommittedOffsets)
	}
	return a.offsets(ctx, topic, a.adm.ListEndOffsets)
}

func (a *Admin) offsets(ctx context.Context, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[int32]int64, error) {
	if _, err := a.at.topics(ctx, a.cl, topic); err != nil {
		return nil, err
	}
	listed, err := list(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, classed(fmt.Errorf("offsets of topic %q at %s: %w", topic, a.at, err))
	}
	out := make(map[int32]int64)
	for p, o := range listed[topic] {
		out[p] = o.Offset
	}
	return out, nil
}

// Produce writes records, each once and in order, and returns when all are acknowledged. Records
// without a topic go to the one given.
func (a *Admin) Produce(ctx context.Context, topic string, records []stream.Record) error {
	made := make([]*kgo.Record, len(records))
	for i := range records {
		made[i] = plainRecord(topic, &records[i])
	}
	for _, res := range a.cl.ProduceSync(ctx, made...) {
		if res.Err != nil {
			return classed(fmt.Errorf("produce to %q at %s: %w", res.Record.Topic, a.at, res.Err))
		}
	}
	return nil
}

// Producer writes records without waiting for each: a generator's tool. The first failure is kept
// and returned by every later call. Records are taken over: they must not be changed afterwards.
type Producer struct {
	a     *Admin
	topic string

	mu   sync.Mutex // guards err
	err  error
	done func(*kgo.Record, error)
}

// Producer starts one for a topic.
func (a *Admin) Producer(topic string) *Producer {
	p := &Producer{a: a, topic: topic}
	p.done = func(r *kgo.Record, err error) {
		if err == nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err == nil {
			p.err = classed(fmt.Errorf("produce to %q at %s: %w", r.Topic, a.at, err))
		}
	}
	return p
}

// Write hands records over; it waits only while too many are under way.
func (p *Producer) Write(ctx context.Context, records []stream.Record) error {
	for i := range records {
		p.a.cl.Produce(ctx, plainRecord(p.topic, &records[i]), p.done)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Flush waits until all that was written is acknowledged.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.a.cl.Flush(ctx); err != nil {
		return fmt.Errorf("flush to %s: %w", p.a.at, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// plainRecord makes a record of the client library.
func plainRecord(topic string, r *stream.Record) *kgo.Record {
	out := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value}
	if out.Topic == "" {
		out.Topic = topic
	}
	if r.Time != 0 {
		out.Timestamp = time.UnixMilli(r.Time)
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return out
}

// ReadAll reads every partition of a topic from one set of offsets up to, but not including,
// another, one partition after the other is not promised. Missing offsets mean the first and,
// for the end, what EndOffsets says now. Records are valid during the call of fn; its first error
// ends the reading and is returned.
func (a *Admin) ReadAll(ctx context.Context, topic string, committed bool, from, to map[int32]int64, fn func(*stream.Record) error) error {
	first, err := a.StartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := a.EndOffsets(ctx, topic, committed)
	if err != nil {
		return err
	}
	reach := ends // how far to read: the markers that decide about the last records stand behind them
	if committed {
		if reach, err = a.EndOffsets(ctx, topic, false); err != nil {
			return err
		}
	}
	left := make(map[int32]int64) // partition -> where to stop
	sift := make(map[int32]*decided)
	assign := make(map[int32]kgo.Offset)
	for p, end := range ends {
		at := max(first[p], from[p])
		if stop, ok := to[p]; ok {
			end = min(end, stop)
		}
		if at < end {
			left[p], assign[p] = end, kgo.NewOffset().At(at)
			if committed {
				left[p], sift[p] = reach[p], &decided{below: end, open: map[int64][]*awaited{}}
			}
		}
	}
	if len(left) == 0 {
		return nil
	}
	cl, err := a.at.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: assign}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	return readUntil(ctx, cl, left, sift, fn)
}

// readUntil polls until every partition has reached its end. Where there is a sift it passes on what that
// lets through, else every record.
func readUntil(ctx context.Context, cl *kgo.Client, left map[int32]int64, sift map[int32]*decided, fn func(*stream.Record) error) error {
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return classed(fmt.Errorf("read: %w", err))
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			end, ok := left[r.Partition]
			if !ok {
				continue
			}
			last := r.Offset+1 >= end
			for _, passed := range passing(r, end, last, sift[r.Partition]) {
				out := plainStream(passed)
				if err := fn(&out); err != nil {
					return err
				}
			}
			if last {
				delete(left, r.Partition)
				cl.PauseFetchPartitions(map[string][]int32{r.Topic: {r.Partition}})
			}
		}
	}
	return nil
}

// passing is what is passed on when a record has come.
func passing(r *kgo.Record, end int64, last bool, d *decided) []*kgo.Record {
	switch {
	case d == nil && (r.Offset >= end || r.Attrs.IsControl()):
		return nil
	case d == nil:
		return []*kgo.Record{r}
	}
	out := d.take(r)
	if last {
		out = append(out, d.ready(true)...)
	}
	return out
}

// plainStream makes a record of ours.
func plainStream(r *kgo.Record) stream.Record {
	out := stream.Record{
		Key: r.Key, Value: r.Value, Time: r.Timestamp.UnixMilli(),
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, stream.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

// Transaction is one that the cluster knows and whose id is one of ours.
type Transaction struct {
	ID    string
	Name  participant.BranchName // N holds the slot
	State string                 // as Kafka calls it: Ongoing, PrepareCommit, Empty, ...
	PID   int64
	Epoch int16
	Since time.Time
	// Partitions that it has written to and that have no marker yet, by topic.
	Partitions map[string][]int32
}

// ListTransactions lists what the cluster knows of a namespace's transactional ids, in any state
// or in those given. Ids that are not written as ours are left out; nothing is matched by prefix.
func (a *Admin) ListTransactions(ctx context.Context, ns participant.Namespace, states ...string) ([]Transaction, error) {
	found, err := listTransactions(ctx, a.cl, states, func(n participant.BranchName) bool { return n.Namespace == ns })
	if err != nil {
		return nil, classed(fmt.Errorf("list transactions at %s: %w", a.at, err))
	}
	slices.SortFunc(found, func(x, y Transaction) int { return strings.Compare(x.ID, y.ID) })
	return found, nil
}
