package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
)

// HeldConfig says what the process does whose state is measured.
type HeldConfig struct {
	Brokers  []string
	From, To string // topics
	Name     string // of the pipeline
	Bounded  bool   // end at what From holds when it is opened
	Window   time.Duration
	Disorder time.Duration
	Rate     int    // most records per second that are read; 0: as many as there are
	StateDir string // where the state lies
	Trace    string // file
	Logger   *slog.Logger
}

// Held is a pipeline that sums and counts by key in windows, and traces its state.
type Held struct {
	Pipeline *processor.Pipeline
	source   *tracedSource
	sink     *kafka.Sink
	trace    *trace
}

// counted counts the accumulators that are made and written.
type counted struct {
	aggregate.Of[reading, aggregate.Mean]
	made, encoded *atomic.Int64
}

func (c counted) Init(acc *aggregate.Mean) {
	c.made.Add(1)
	c.Of.Init(acc)
}

func (c counted) Encode(dst []byte, acc *aggregate.Mean) []byte {
	c.encoded.Add(1)
	return c.Of.Encode(dst, acc)
}

// NewHeld builds it; nothing is dialled.
func NewHeld(cfg HeldConfig) (*Held, error) {
	// At a bounded rate batches are small: a barrier waits for one.
	batch := 0
	if cfg.Rate > 0 {
		batch = max(100, min(cfg.Rate/50, 10_000))
	}
	source, err := kafka.NewSource(kafka.SourceConfig{
		Name: sourceName, Brokers: cfg.Brokers, Topics: []string{cfg.From}, Bounded: cfg.Bounded, MaxPollRecords: batch, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	h := &Held{}
	if h.sink, err = kafka.NewSink(kafka.SinkConfig{Brokers: cfg.Brokers, Topic: cfg.To, Compression: "none", Logger: cfg.Logger}); err != nil {
		return nil, err
	}
	dir, err := state.OpenDir(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	if h.trace, err = openTrace(cfg.Trace); err != nil {
		return nil, err
	}
	h.source = &tracedSource{Source: source, trace: h.trace, rate: cfg.Rate}
	agg := counted{aggregate.Avg(func(r *reading) int64 { return r.amount }), new(atomic.Int64), new(atomic.Int64)}
	store := &tracedStore{Store: dir, trace: h.trace, held: func() (int64, int64) {
		return agg.made.Load() - int64(h.Pipeline.Counters().Fired), agg.encoded.Load()
	}}
	in := processor.From(sourceName, h.source, decoder()).
		EventTime(func(r *reading) int64 { return r.at }).
		Key(func(dst []byte, r *reading) []byte { return append(dst, r.key...) })
	h.Pipeline, err = processor.Tumbling(in, cfg.Window, agg).Disorder(cfg.Disorder).IdleAfter(0).
		To(sinkName, h.sink, encode).Pipeline(cfg.Name, processor.StateStore(store))
	return h, err
}

// WriteReport writes the report of a run that has just ended.
func (h *Held) WriteReport(file string) error {
	text, err := json.Marshal(Report{Ended: time.Now().UnixNano(), Records: h.Pipeline.Counters().Records, PeakRSS: PeakRSS(os.Getpid())})
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return os.WriteFile(file, text, 0o600)
}

// Close ends the connections and the trace.
func (h *Held) Close() error {
	return errors.Join(h.source.Close(), h.sink.Close(), h.trace.file.Close())
}

// tracedSource tells where it is opened and what the first records are, and reads no faster than it shall.
type tracedSource struct {
	*kafka.Source
	trace *trace
	rate  int

	began time.Time // the first record since the source was opened
	read  int       // records since
	seen  map[stream.Split]bool
}

// Open tells from where.
func (s *tracedSource) Open(ctx context.Context, from []stream.Position) error {
	e := Event{What: Opened}
	for _, p := range from {
		e.Places = append(e.Places, Place{p.Split.ID, p.Offset})
	}
	s.began, s.read, s.seen = time.Time{}, 0, map[stream.Split]bool{}
	if err := s.trace.tell(e); err != nil {
		return err
	}
	return s.Source.Open(ctx, from)
}

// Poll waits until the next batch is due.
func (s *tracedSource) Poll(ctx context.Context) (*stream.Batch, error) {
	if s.rate > 0 && s.read > 0 {
		due := s.began.Add(time.Duration(float64(s.read) / float64(s.rate) * float64(time.Second)))
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	b, err := s.Source.Poll(ctx)
	if err != nil || b == nil || len(b.Records) == 0 {
		return b, err
	}
	if s.read == 0 {
		s.began = time.Now()
	}
	s.read += len(b.Records)
	if !s.seen[b.Split] {
		s.seen[b.Split] = true
		if err := s.trace.tell(Event{What: First, Places: []Place{{b.Split.ID, b.Records[0].Offset}}}); err != nil {
			return nil, err
		}
	}
	return b, nil
}
