package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/processor/stream"
)

// PlainWriter writes records without transactions: what a load generator needs, and what the sink is
// measured against. Its client, its batching and its copying of records are the sink's. Records are
// visible once they are acknowledged, and nothing undoes them. One goroutine uses it at a time.
type PlainWriter struct {
	at    endpoint
	cl    *kgo.Client
	topic string
	slabs sync.Pool      // of *plainSlab
	out   sync.WaitGroup // slabs that are not acknowledged

	mu     sync.Mutex // guards failed
	failed error      // the first
}

// plainSlab is records with their bytes, used again once all are acknowledged.
type plainSlab struct {
	records []kgo.Record
	arena   []byte
	mu      sync.Mutex // guards left
	left    int
	done    func(*kgo.Record, error)
}

// NewPlainWriter checks the settings; nothing is dialled before the first Write. Of them it uses Brokers,
// Topic, Partitioning, Compression, MaxBufferedBytes, ClientID, Options and Logger. Linger
// is how long a batch waits for company; negative: as long as the sink's. The caller closes it.
func NewPlainWriter(cfg SinkConfig, linger time.Duration) (*PlainWriter, error) {
	sink, err := NewSink(cfg) // dials nothing
	if err != nil {
		return nil, err
	}
	w := &PlainWriter{at: sink.at, topic: cfg.Topic}
	w.slabs.New = func() any { return w.newSlab() }
	opts := append([]kgo.Opt{
		kgo.MaxBufferedRecords(1 << 24), kgo.MaxBufferedBytes(cfg.bufferedBytes(0)),
	}, sink.producing...)
	if linger >= 0 {
		opts = append(opts, kgo.ProducerLinger(linger))
	}
	if w.cl, err = w.at.client(opts...); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *PlainWriter) newSlab() *plainSlab {
	s := &plainSlab{}
	s.done = func(r *kgo.Record, err error) {
		if err != nil {
			w.fail(classed(fmt.Errorf("produce to %q at %s: %w", r.Topic, w.at, err)))
		}
		s.mu.Lock()
		s.left--
		last := s.left == 0
		s.mu.Unlock()
		if last {
			w.slabs.Put(s)
			w.out.Done()
		}
	}
	return s
}

func (w *PlainWriter) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = err
	}
}

func (w *PlainWriter) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// Write hands records over and waits only while too much is not acknowledged. Records' slices are the
// caller's again when it returns; headers are not written. The first failure is returned by every later call.
func (w *PlainWriter) Write(ctx context.Context, records []stream.Record) error {
	// The records outlive the call, so its end must not fail them.
	ctx = context.WithoutCancel(ctx)
	for len(records) > 0 {
		if err := w.failure(); err != nil {
			return err
		}
		n := min(len(records), chunkRecords)
		s := w.slabs.Get().(*plainSlab) //nolint:forcetypeassert // the pool makes nothing else
		s.fill(w.topic, records[:n])
		w.out.Add(1)
		for i := range s.records {
			w.cl.Produce(ctx, &s.records[i], s.done)
		}
		records = records[n:]
	}
	return w.failure()
}

// fill copies records in.
func (s *plainSlab) fill(topic string, records []stream.Record) {
	size := 0
	for i := range records {
		size += len(records[i].Key) + len(records[i].Value)
	}
	if cap(s.arena) < size {
		s.arena = make([]byte, 0, size+size/4)
	}
	s.arena, s.records, s.left = s.arena[:0], s.records[:0], len(records)
	copied := func(p []byte) []byte {
		if p == nil {
			return nil
		}
		from := len(s.arena)
		s.arena = append(s.arena, p...)
		return s.arena[from:len(s.arena):len(s.arena)]
	}
	for i := range records {
		r := &records[i]
		out := kgo.Record{Topic: topic, Key: copied(r.Key), Value: copied(r.Value), Partition: r.Partition, Timestamp: time.UnixMilli(r.Time)}
		if topic == "" {
			out.Topic = r.Topic
		}
		if r.Time == 0 {
			out.Timestamp = time.Now()
		}
		s.records = append(s.records, out)
	}
}

// Flush waits until all that was written is acknowledged.
func (w *PlainWriter) Flush(ctx context.Context) error {
	if err := w.cl.Flush(ctx); err != nil {
		return fmt.Errorf("flush to %s: %w", w.at, err)
	}
	w.out.Wait() // a flush waits for no record that was refused before it was buffered
	return w.failure()
}

// Close ends the client. What is not acknowledged is dropped; Flush first.
func (w *PlainWriter) Close() { w.cl.Close() }
