package kafka

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

const (
	// namesPartition holds one small record per part; the others hold the parts themselves.
	namesPartition = 0
	// storePartitions is how many partitions a topic gets that is made here.
	storePartitions = 4
	// storeChunk is the most that one record of a part holds: half of what brokers take by default.
	storeChunk = 512 << 10
	// storeAbandoned is the age from which a part that was begun and not finished has no writer any more.
	storeAbandoned = time.Hour
)

// StateStoreConfig says where a StateStore keeps its parts.
type StateStoreConfig struct {
	Brokers []string // "host:port", at least one
	// Topic is compacted, has at least two partitions and nothing else in it. It is made if it is not there.
	Topic    string
	ClientID string       // default "unisink"
	Security Security     // TLS and SASL
	Options  []kgo.Opt    // added to those of every client
	Logger   *slog.Logger // default: discard
}

// StateStore is a state.Store in a compacted topic. A part is cut into chunks, which are written to one partition and
// acknowledged by all replicas before its name is written to partition 0: after Put it is as durable as the topic is,
// and a half-written part is never seen under its id. All methods may be called from several goroutines, and several
// processes may have one topic open; two that put one id at the same time must put the same.
type StateStore struct {
	at    endpoint
	topic string
	data  int32 // partitions that hold parts: 1 to data
	cl    *kgo.Client
	adm   *kadm.Client

	tail  chan struct{} // a token, held while the tail of names is read, so that it is read once
	mu    sync.Mutex    // guards names; held for memory only
	names partNames
}

// OpenStateStore reaches the cluster, makes the topic if it is not there, reads the names of all parts, and removes what
// killed processes left half-written for more than an hour. The caller closes the store.
func OpenStateStore(ctx context.Context, cfg StateStoreConfig) (*StateStore, error) {
	var noTopic error
	if cfg.Topic == "" {
		noTopic = errors.New("topic: name the topic that keeps the state")
	}
	if err := misconfigured("kafka state store", []error{checkBrokers(cfg.Brokers), cfg.Security.check(), noTopic}); err != nil {
		return nil, err
	}
	at, err := newEndpoint(cfg.Brokers, cfg.ClientID, cfg.Security, cfg.Options, cfg.Logger)
	if err != nil {
		return nil, err
	}
	cl, err := at.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, err
	}
	s := &StateStore{at: at, topic: cfg.Topic, cl: cl, adm: kadm.NewClient(cl), tail: make(chan struct{}, 1), names: newNames()}
	if err := s.open(ctx); err != nil {
		cl.Close()
		return nil, err
	}
	return s, nil
}

func (s *StateStore) open(ctx context.Context) error {
	if err := s.at.reach(ctx, s.cl); err != nil {
		return err
	}
	if err := s.makeTopic(ctx); err != nil {
		return err
	}
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	left := s.names.abandoned(time.Now().Add(-storeAbandoned))
	s.mu.Unlock()
	for _, id := range left {
		if err := s.Delete(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// makeTopic makes sure that there is a topic which keeps every part until it is deleted.
func (s *StateStore) makeTopic(ctx context.Context) error {
	compact := "compact"
	_, err := s.adm.CreateTopic(ctx, storePartitions, -1, map[string]*string{"cleanup.policy": &compact}, s.topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return classed(fmt.Errorf("make topic %q for state at %s: %w", s.topic, s.at, err))
	}
	wait := slow()
	for {
		_, topics, err := metadata(ctx, s.cl, s.topic)
		if err != nil {
			return classed(fmt.Errorf("ask %s for topic %q: %w", s.at, s.topic, err))
		}
		t := topics[s.topic]
		leaderless := func(p partInfo) bool { return p.leader < 0 }
		if len(t.parts) > 0 && !slices.ContainsFunc(t.parts, leaderless) {
			s.data = int32(len(t.parts)) - 1 //nolint:gosec // partitions are counted in 32 bits
			break
		}
		if err := wait.wait(ctx); err != nil {
			return fmt.Errorf("topic %q at %s was made, but has no leaders yet: %w", s.topic, s.at, err)
		}
	}
	if s.data < 1 {
		return fmt.Errorf("%w: topic %q at %s has one partition, and state needs two or more; name another topic, or add partitions",
			participant.ErrMisconfigured, s.topic, s.at)
	}
	return s.checkPolicy(ctx)
}

// checkPolicy refuses a topic that would lose parts with time.
func (s *StateStore) checkPolicy(ctx context.Context) error {
	all, err := s.adm.DescribeTopicConfigs(ctx, s.topic)
	if err != nil {
		return classed(fmt.Errorf("ask %s how topic %q is kept: %w", s.at, s.topic, err))
	}
	for _, r := range all {
		if r.Err != nil {
			return classed(fmt.Errorf("ask %s how topic %q is kept: %w", s.at, s.topic, r.Err))
		}
		for _, c := range r.Configs {
			if c.Key == "cleanup.policy" && c.MaybeValue() != "compact" {
				return fmt.Errorf("%w: topic %q at %s has cleanup.policy %q and would lose state with time; it must be compact",
					participant.ErrMisconfigured, s.topic, s.at, c.MaybeValue())
			}
		}
	}
	return nil
}

// Name is "kafka:" with the topic and the brokers that it was opened with.
func (s *StateStore) Name() string { return "kafka:" + s.topic + "@" + s.at.String() }

// Close ends the client. What was put stays.
func (s *StateStore) Close() error {
	s.cl.Close()
	return nil
}

// Put writes a part: what is begun, so that it can be removed should this process die; the chunks; the name.
func (s *StateStore) Put(ctx context.Context, id string, body []byte) error {
	if err := errors.Join(state.CheckID(id), ctx.Err()); err != nil {
		return fmt.Errorf("put state part %s: %w", id, err)
	}
	known, err := s.known(ctx, id)
	if err != nil {
		return fmt.Errorf("put state part %s: %w", id, err)
	}
	p := statePart{Partition: 1 + int32(hashOf(id)%uint32(s.data)), Bytes: len(body), Sum: crc32.Checksum(body, castagnoli)} //nolint:gosec // there are few partitions
	if known.written != nil {
		p.Partition = known.written.Partition
	}
	chunks := slices.Collect(slices.Chunk(body, storeChunk))
	if known.begun == nil && len(chunks) > 0 {
		begun := statePart{Partition: p.Partition, Chunks: len(chunks), At: time.Now().UnixMilli()}
		if err := s.write(ctx, begunRecord(s.topic, id, &begun)); err != nil {
			return fmt.Errorf("put state part %s: %w", id, err)
		}
	}
	records := make([]*kgo.Record, len(chunks))
	for i, c := range chunks {
		records[i] = &kgo.Record{Topic: s.topic, Partition: p.Partition, Key: chunkKey(id, i), Value: c}
	}
	if err := s.write(ctx, records...); err != nil {
		return fmt.Errorf("put state part %s: %w", id, err)
	}
	for _, r := range records {
		p.Offsets = append(p.Offsets, r.Offset)
	}
	if err := s.write(ctx, writtenRecord(s.topic, id, &p), begunRecord(s.topic, id, nil)); err != nil {
		return fmt.Errorf("put state part %s: %w", id, err)
	}
	return nil
}

// write returns when every record is acknowledged by all replicas that are in sync.
func (s *StateStore) write(ctx context.Context, records ...*kgo.Record) error {
	if len(records) == 0 {
		return nil
	}
	if err := s.cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return classed(fmt.Errorf("write to topic %q at %s: %w", s.topic, s.at, err))
	}
	return nil
}

// Get reads a part.
func (s *StateStore) Get(ctx context.Context, id string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get state part %s: %w", id, err)
	}
	for {
		known, err := s.known(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("get state part %s: %w", id, err)
		}
		if known.written == nil {
			return nil, fmt.Errorf("state part %s in %s: %w", id, s.Name(), state.ErrNoPart)
		}
		body, err := s.read(ctx, id, known.written)
		if err == nil {
			return body, nil
		}
		// It may have been written again, or deleted, since its name was read.
		again, lookErr := s.known(ctx, id)
		if lookErr != nil || again.written != nil && slices.Equal(again.written.Offsets, known.written.Offsets) {
			return nil, fmt.Errorf("get state part %s from %s: %w", id, s.Name(), errors.Join(err, lookErr))
		}
	}
}

// read fetches the chunks of a part and checks that they are what was written.
func (s *StateStore) read(ctx context.Context, id string, p *statePart) ([]byte, error) {
	body := make([]byte, 0, p.Bytes)
	if len(p.Offsets) > 0 {
		next := 0
		last := p.Offsets[len(p.Offsets)-1]
		err := s.scan(ctx, p.Partition, p.Offsets[0], last+1, func(r *kgo.Record) {
			if next < len(p.Offsets) && r.Offset == p.Offsets[next] && string(r.Key) == string(chunkKey(id, next)) {
				body = append(body, r.Value...)
				next++
			}
		})
		if err != nil {
			return nil, err
		}
		if next < len(p.Offsets) {
			return nil, fmt.Errorf("chunk %d of %d is not at offset %d of partition %d", next+1, len(p.Offsets), p.Offsets[next], p.Partition)
		}
	}
	if len(body) != p.Bytes || crc32.Checksum(body, castagnoli) != p.Sum {
		return nil, fmt.Errorf("it is damaged: %d bytes, of %d written", len(body), p.Bytes)
	}
	return body, nil
}

// Delete removes a part, its name last, so that a deletion that was cut short can be repeated.
func (s *StateStore) Delete(ctx context.Context, id string) error {
	known, err := s.known(ctx, id)
	if err != nil {
		return fmt.Errorf("delete state part %s: %w", id, err)
	}
	var gone []*kgo.Record
	for _, p := range []*statePart{known.written, known.begun} {
		for i := range p.chunks() {
			gone = append(gone, &kgo.Record{Topic: s.topic, Partition: p.Partition, Key: chunkKey(id, i)})
		}
	}
	if err := s.write(ctx, gone...); err != nil {
		return fmt.Errorf("delete state part %s: %w", id, err)
	}
	if known.written != nil || known.begun != nil {
		err = s.write(ctx, writtenRecord(s.topic, id, nil), begunRecord(s.topic, id, nil))
	}
	if err != nil {
		return fmt.Errorf("delete state part %s: %w", id, err)
	}
	return nil
}

// List returns the ids with a prefix, sorted. What was begun and not finished is not listed.
func (s *StateStore) List(ctx context.Context, prefix string) ([]string, error) {
	if err := s.catchUp(ctx); err != nil {
		return nil, fmt.Errorf("list state parts: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(s.names.parts)) {
		if s.names.parts[id].written != nil && strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// known is what the topic says of an id now.
func (s *StateStore) known(ctx context.Context, id string) (partEntry, error) {
	if err := s.catchUp(ctx); err != nil {
		return partEntry{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names.parts[id], nil
}

// catchUp reads the names that were written since it was last called, up to the end as it is now.
func (s *StateStore) catchUp(ctx context.Context) error {
	select {
	case s.tail <- struct{}{}:
		defer func() { <-s.tail }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	start, end, err := s.bounds(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.names.next > end { // the topic was made anew
		s.names = newNames()
	}
	from := max(s.names.next, start)
	s.mu.Unlock()
	var tail []*kgo.Record
	if err := s.scan(ctx, namesPartition, from, end, func(r *kgo.Record) { tail = append(tail, r) }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var bad error
	for _, r := range tail {
		bad = errors.Join(bad, s.names.apply(r))
	}
	if bad == nil {
		s.names.next = end
	}
	return bad
}

// bounds of the partition of names.
func (s *StateStore) bounds(ctx context.Context) (start, end int64, err error) {
	for _, side := range []struct {
		ask func(context.Context, ...string) (kadm.ListedOffsets, error)
		to  *int64
	}{{s.adm.ListStartOffsets, &start}, {s.adm.ListEndOffsets, &end}} {
		listed, err := side.ask(ctx, s.topic)
		o, found := listed.Lookup(s.topic, namesPartition)
		if err == nil && found {
			err = o.Err
		}
		if err != nil || !found {
			return 0, 0, classed(fmt.Errorf("ask %s how long topic %q is: %w", s.at, s.topic, errors.Join(err, ctx.Err())))
		}
		*side.to = o.Offset
	}
	return start, end, nil
}

func hashOf(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // a hash takes everything
	return h.Sum32()
}
