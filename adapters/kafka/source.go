package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Source reads topics, committed records only, from positions that its caller keeps. One
// goroutine uses it at a time; Close may come from another.
type Source struct {
	cfg SourceConfig
	at  endpoint

	mu     sync.Mutex // guards client, lag and closed; never held across I/O
	client *kgo.Client
	lag    *lag // nil without a group
	closed bool

	parts   []*part
	byName  map[string]map[int32]*part
	pending []fetched // of the last fetch, not yet handed out
	open    int       // parts that have not ended
	due     []*part   // to be handed out without a fetch: new ones, and bounded ones that hold nothing
	looked  time.Time // when new partitions were last looked for

	slabs slabPool
	buf   buffers
}

// buffers are what a batch is made of, again and again.
type buffers struct {
	batch   stream.Batch
	records []stream.Record
	headers []stream.Header
}

// part is one partition while it is read.
type part struct {
	split   stream.Split
	topic   string
	number  int32
	topicID []byte // kept in positions: a topic made again under the same name is another one
	mark    []byte // what positions carry: the topic's id, and what has become of the partition
	flags   byte
	next    int64
	epoch   int32
	end     int64 // bounded: stop here; else -1
	high    int64 // the log's end when the partition was taken in
	ended   bool
}

// fetched is what one fetch brought for one partition.
type fetched struct {
	part *part
	data kgo.FetchPartition
}

// NewSource checks the settings; nothing is dialled before Describe or Open.
func NewSource(cfg SourceConfig) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	at, err := newEndpoint(cfg.Brokers, cfg.ClientID, cfg.Security, cfg.Options, cfg.Logger)
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, at: at}, nil
}

// Describe asks the cluster who it is.
func (s *Source) Describe(ctx context.Context) (participant.Description, error) {
	cl, err := s.at.client()
	if err != nil {
		return participant.Description{}, err
	}
	defer cl.Close()
	if err := s.at.reach(ctx, cl); err != nil {
		return participant.Description{}, err
	}
	id, _, err := metadata(ctx, cl)
	if err != nil {
		return participant.Description{}, classed(fmt.Errorf("ask %s for its cluster id: %w", s.at, err))
	}
	return participant.Description{
		Kind:     Kind,
		Identity: id,
		Text:     fmt.Sprintf("topics %s at %s", strings.Join(s.cfg.Topics, ", "), s.at),
	}, nil
}

// Open starts reading at the positions, with a client of its own: whatever an earlier one had
// fetched is gone with it. Partitions without a position start where the settings say.
func (s *Source) Open(ctx context.Context, from []stream.Position) error {
	s.drop()
	probe, err := s.at.client()
	if err != nil {
		return err
	}
	defer probe.Close()
	if err := s.at.reach(ctx, probe); err != nil {
		return err
	}
	if err := s.resolve(ctx, probe, from); err != nil {
		return err
	}

	assign := make(map[string]map[int32]kgo.Offset, len(s.byName))
	for _, p := range s.parts {
		if p.ended {
			continue
		}
		if assign[p.topic] == nil {
			assign[p.topic] = make(map[int32]kgo.Offset)
		}
		assign[p.topic][p.number] = kgo.NewOffset().At(p.next).WithEpoch(p.epoch)
	}
	cl, err := s.at.client(
		kgo.ConsumePartitions(assign),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a position behind the last marker, or the end is never reached
		kgo.FetchMaxBytes(int32(s.cfg.MaxPollBytes)),
		kgo.FetchMaxWait(max(s.cfg.PollWait, 10*time.Millisecond)),
		kgo.WithPools(&s.slabs),
	)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		cl.Close()
		return fmt.Errorf("kafka source %s: closed", s.cfg.Name)
	}
	s.client, s.looked = cl, time.Now()
	if s.cfg.Group != "" {
		s.lag = newLag(s.at, cl, s.cfg.Group) //nolint:contextcheck // it outlives the call that opens it, and ends by stop
	}
	return nil
}

// Splits lists the partitions; known after Open. Between two calls of Poll it may grow, by
// partitions that were added to a topic; the next batches are theirs, empty, with their positions.
func (s *Source) Splits() []stream.Split {
	out := make([]stream.Split, len(s.parts))
	for i, p := range s.parts {
		out[i] = p.split
	}
	return out
}

// Poll hands out what was fetched, one partition at a time, and fetches when nothing is left.
// The batch is valid until the next Poll.
func (s *Source) Poll(ctx context.Context) (*stream.Batch, error) {
	s.mu.Lock()
	cl := s.client
	s.mu.Unlock()
	if cl == nil {
		return nil, fmt.Errorf("kafka source %s: %w: Poll before Open", s.cfg.Name, participant.ErrBug)
	}
	if err := s.grow(ctx, cl); err != nil {
		return nil, err
	}
	if n := len(s.due); n > 0 {
		p := s.due[n-1]
		s.due = s.due[:n-1]
		return s.say(cl, p), nil
	}
	for {
		for len(s.pending) > 0 {
			f := s.pending[0]
			s.pending = s.pending[1:]
			if b := s.hand(cl, f.part, f.data); b != nil {
				return b, nil
			}
		}
		if s.open == 0 {
			return nil, io.EOF
		}
		if came, err := s.fetch(ctx, cl); err != nil || !came {
			return nil, err
		}
	}
}

// fetch waits for records and queues them by partition. False: nothing came in time. What came is kept, and what went wrong
// is told, also when ctx has ended meanwhile: the client gives and tells neither again.
func (s *Source) fetch(ctx context.Context, cl *kgo.Client) (bool, error) {
	wait, cancel := context.WithTimeout(ctx, s.cfg.PollWait)
	defer cancel()
	fetches := cl.PollRecords(wait, s.cfg.MaxPollRecords)
	s.pending = s.pending[:0]
	var failed error
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		if fp.Err != nil {
			over := errors.Is(fp.Err, context.DeadlineExceeded) || ctx.Err() != nil && isAny(fp.Err, context.Canceled, kgo.ErrClientClosed)
			if failed == nil && !over {
				failed = s.explain(fp.Topic, fp.Partition, fp.Err)
			}
			return
		}
		if p := s.byName[fp.Topic][fp.Partition]; p != nil && !p.ended {
			s.pending = append(s.pending, fetched{p, fp.FetchPartition})
		}
	})
	if ctx.Err() != nil && len(s.pending) == 0 && (failed == nil || mutant.On("kafka/cancelled-poll-tells")) {
		failed = context.Cause(ctx)
	}
	return len(s.pending) > 0, failed
}

// explain turns an error of a fetch into a sentence.
func (s *Source) explain(topic string, partition int32, err error) error {
	var lost *kgo.ErrDataLoss
	id := splitID(topic, partition)
	switch {
	case errors.Is(err, kgo.ErrClientClosed):
		return fmt.Errorf("kafka source %s: closed: %w", s.cfg.Name, err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		next := int64(-1)
		if p := s.byName[topic][partition]; p != nil {
			next = p.next
		}
		return fmt.Errorf("%w: position %d of %s fell off the log while it was read: its retention deletes faster than the pipeline reads; lengthen it, and rewind the pipeline or start it anew: %w", participant.ErrMisconfigured, next, id, err)
	case errors.As(err, &lost):
		return fmt.Errorf("%w: %s was cut off at %d by a change of leader, behind position %d: records that were read are gone from the topic; rewind the pipeline, or start it anew: %w", participant.ErrMisconfigured, id, lost.ResetTo, lost.ConsumedTo, err)
	}
	return classed(fmt.Errorf("fetch %s from %s: %w", id, s.at, err))
}

// hand makes a batch of what was fetched; nil if it holds nothing to say.
func (s *Source) hand(cl *kgo.Client, p *part, data kgo.FetchPartition) *stream.Batch {
	before := p.next
	s.buf.records, s.buf.headers = s.buf.records[:0], s.buf.headers[:0]
	for _, r := range data.Records {
		if p.end >= 0 && r.Offset >= p.end {
			r.Recycle()
			continue
		}
		p.next, p.epoch = r.Offset+1, r.LeaderEpoch
		if !r.Attrs.IsControl() {
			s.buf.records = append(s.buf.records, stream.Record{
				Key: r.Key, Value: r.Value, Headers: s.headersOf(r), Time: r.Timestamp.UnixMilli(),
				Topic: p.topic, Partition: p.number, Offset: r.Offset,
			})
		}
		r.Recycle()
	}
	if p.next == before && (p.end < 0 || p.next < p.end) {
		return nil
	}
	p.high = data.HighWatermark
	return s.say(cl, p)
}

// say makes a batch of the records in the buffer and of where the partition stands.
func (s *Source) say(cl *kgo.Client, p *part) *stream.Batch {
	ended := p.end >= 0 && p.next >= p.end
	if ended && !p.ended {
		p.ended = true
		p.flag(flagEnded)
		s.open--
		cl.PauseFetchPartitions(map[string][]int32{p.topic: {p.number}})
	}
	s.mu.Lock()
	lag := s.lag
	s.mu.Unlock()
	if lag != nil {
		lag.reached(p)
	}
	s.buf.batch = stream.Batch{
		Split:   p.split,
		Records: s.buf.records,
		Next: stream.Position{
			Split: p.split, Offset: p.next, LeaderEpoch: p.epoch, Opaque: p.mark,
		},
		Ended:     ended,
		HighWater: p.high,
	}
	s.buf.records = s.buf.records[:0]
	return &s.buf.batch
}

// headersOf copies a record's headers into the batch's own slab.
func (s *Source) headersOf(r *kgo.Record) []stream.Header {
	if len(r.Headers) == 0 {
		return nil
	}
	from := len(s.buf.headers)
	for _, h := range r.Headers {
		s.buf.headers = append(s.buf.headers, stream.Header{Key: h.Key, Value: h.Value})
	}
	return s.buf.headers[from:len(s.buf.headers):len(s.buf.headers)]
}

// drop ends the client and forgets what it had fetched.
func (s *Source) drop() {
	s.mu.Lock()
	cl, lag := s.client, s.lag
	s.client, s.lag = nil, nil
	s.mu.Unlock()
	if lag != nil {
		lag.stop()
	}
	if cl != nil {
		cl.Close()
	}
	s.pending, s.due = nil, nil
}

// Close ends reading and its goroutines. A Poll that waits returns an error.
func (s *Source) Close() error {
	s.mu.Lock()
	cl, lag := s.client, s.lag
	s.client, s.lag, s.closed = nil, nil, true
	s.mu.Unlock()
	if lag != nil {
		lag.stop()
	}
	if cl != nil {
		cl.Close()
	}
	return nil
}

// splitID names a partition: "orders/3".
func splitID(topic string, partition int32) string {
	return topic + "/" + strconv.FormatInt(int64(partition), 10)
}

// slabPool gives the client library slices of records to decode into, again and again.
type slabPool struct{ free sync.Pool }

// GetRecords returns a slice for n records.
func (p *slabPool) GetRecords(n int) []kgo.Record {
	if s, ok := p.free.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return (*s)[:n]
	}
	return make([]kgo.Record, n)
}

// PutRecords takes one back.
func (p *slabPool) PutRecords(s []kgo.Record) { p.free.Put(&s) }
