package bench

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/jsonfield"
	"github.com/unisink/unisink/processor/stream"
)

// The jobs that are measured.
const (
	// JobPass copies every record.
	JobPass = "pass-through"
	// JobWindow sums and counts by key in tumbling windows of one second.
	JobWindow = "window"
)

const (
	sourceName = "in"
	sinkName   = "out"
	windowSize = time.Second
)

// Jobs lists them.
func Jobs() []string { return []string{JobPass, JobWindow} }

// WorkerConfig says what the measured process reads and writes.
type WorkerConfig struct {
	Job         string
	Brokers     []string
	From, To    string // topics
	Name        string // of the pipeline
	Bounded     bool   // end at what From holds when it is opened
	Compression string // of what is written; see kafka.Compression
	Logger      *slog.Logger
}

// Worker is the measured process's pipeline.
type Worker struct {
	Pipeline *processor.Pipeline
	cfg      WorkerConfig
	source   *clockedSource
	sink     *clockedSink
}

// NewWorker builds the pipeline; nothing is dialled.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	source, err := kafka.NewSource(kafka.SourceConfig{
		Name: sourceName, Brokers: cfg.Brokers, Topics: []string{cfg.From}, Bounded: cfg.Bounded, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	plain, err := kafka.NewSink(cfg.sink())
	if err != nil {
		return nil, err
	}
	sink := newClockedSink(plain)
	w := &Worker{cfg: cfg, source: &clockedSource{Source: source}, sink: sink}
	switch cfg.Job {
	case JobPass:
		raw := processor.From(sourceName, w.source, func(*stream.Record, *struct{}) error { return nil })
		w.Pipeline, err = processor.PassThrough(raw).To(sinkName, sink, copied).Pipeline(cfg.Name)
	case JobWindow:
		in := processor.From(sourceName, w.source, decoder()).
			EventTime(func(r *reading) int64 { return r.at }).
			Key(func(dst []byte, r *reading) []byte { return append(dst, r.key...) })
		sums := aggregate.Avg(func(r *reading) int64 { return r.amount })
		w.Pipeline, err = processor.Tumbling(in, windowSize, sums).IdleAfter(0).To(sinkName, sink, encode).Pipeline(cfg.Name)
	default:
		err = fmt.Errorf("no job %q; there is %v", cfg.Job, Jobs())
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (c WorkerConfig) sink() kafka.SinkConfig {
	return kafka.SinkConfig{Brokers: c.Brokers, Topic: c.To, Compression: kafka.Compression(c.Compression), Logger: c.Logger}
}

// reading is what the window job needs of a record.
type reading struct {
	key    []byte
	amount int64
	at     int64
}

func decoder() func(in *stream.Record, out *reading) error {
	fields := jsonfield.For("key", "amount", "at")
	var v [3]jsonfield.Value
	var text []byte
	return func(in *stream.Record, out *reading) (err error) {
		if err = fields.Read(in.Value, v[:]); err != nil {
			return err
		}
		if out.key, err = v[0].Text(&text); err != nil {
			return err
		}
		if out.amount, err = v[1].Int(); err != nil {
			return err
		}
		out.at, err = v[2].Int()
		return err
	}
}

func copied(in *stream.Record, _ *struct{}, out *stream.Record) error {
	out.Key, out.Value, out.Time = append(out.Key, in.Key...), append(out.Value, in.Value...), in.Time
	return nil
}

// encode writes `k-0001 1760000000000 SUM COUNT`: the check reads millions of them.
func encode(r *processor.Result[aggregate.Mean], out *stream.Record) error {
	out.Key = append(out.Key, r.Key...)
	v := append(append(out.Value, r.Key...), ' ')
	v = append(strconv.AppendInt(v, r.Window.Start, 10), ' ')
	v = append(strconv.AppendInt(v, r.Value.Sum, 10), ' ')
	out.Value = strconv.AppendInt(v, r.Value.Count, 10)
	return nil
}
