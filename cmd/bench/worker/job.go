package worker

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
	// Pass copies every record.
	Pass = "pass-through"
	// Window sums and counts by key in tumbling windows of one second.
	Window = "window"
	// YAML is Window as a specification says it.
	YAML = "window-yaml"
	// Loop is the same work by hand, with no guarantee at all: what cannot be saved.
	Loop = "window-loop"
)

// WindowSize is that of all jobs with windows.
const WindowSize = time.Second

const (
	sourceName = "in"
	sinkName   = "out"
)

// Jobs lists them.
func Jobs() []string { return []string{Pass, Window, YAML, Loop} }

// Config says what the measured process reads and writes.
type Config struct {
	Job         string
	Brokers     []string
	From, To    string // topics
	Name        string // of the pipeline
	Bounded     bool   // end at what From holds when it is opened
	Compression string // of what is written; see kafka.Compression
	Logger      *slog.Logger
}

// Worker is the measured process.
type Worker struct {
	// Pipeline is nil for [Loop].
	Pipeline *processor.Pipeline
	cfg      Config
	source   *clockedSource
	sink     *clockedSink
	taken    uint64 // records, of the loop
}

// New builds the job; nothing is dialled.
func New(cfg Config) (*Worker, error) {
	w := &Worker{cfg: cfg}
	if cfg.Job == YAML {
		return w, w.written()
	}
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
	w.source, w.sink = &clockedSource{Source: source}, newClockedSink(plain)
	switch cfg.Job {
	case Pass:
		raw := processor.From(sourceName, w.source, func(*stream.Record, *struct{}) error { return nil })
		w.Pipeline, err = processor.PassThrough(raw).To(sinkName, w.sink, copied).Pipeline(cfg.Name)
	case Window:
		in := processor.From(sourceName, w.source, decoder()).
			EventTime(func(r *reading) int64 { return r.at }).
			Key(func(dst []byte, r *reading) []byte { return append(dst, r.key...) })
		sums := aggregate.Avg(func(r *reading) int64 { return r.amount })
		w.Pipeline, err = processor.Tumbling(in, WindowSize, sums).IdleAfter(0).To(sinkName, w.sink, encode).Pipeline(cfg.Name)
	case Loop:
	default:
		err = fmt.Errorf("no job %q; there is %v", cfg.Job, Jobs())
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (c Config) sink() kafka.SinkConfig {
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

func encode(r *processor.Result[aggregate.Mean], out *stream.Record) error {
	appendResult(out, r.Key, r.Window, &r.Value)
	return nil
}

// appendResult writes a result as a specification does by default. Keys here need no escaping.
func appendResult(out *stream.Record, key []byte, w stream.Window, m *aggregate.Mean) {
	out.Key = append(out.Key, key...)
	v := append(append(out.Value, `{"key":"`...), key...)
	v = strconv.AppendInt(append(v, `","window_start":`...), w.Start, 10)
	v = strconv.AppendInt(append(v, `,"window_end":`...), w.End, 10)
	v = strconv.AppendInt(append(v, `,"sum":`...), m.Sum, 10)
	v = strconv.AppendInt(append(v, `,"count":`...), m.Count, 10)
	out.Value = append(v, '}')
}

// Result is what a job with windows says of one key in one window.
type Result struct {
	Key               []byte // until the next Read
	Start, Sum, Count int64
}

// ResultReader reads results back. One goroutine uses it at a time.
type ResultReader struct {
	fields *jsonfield.Reader
	values [4]jsonfield.Value
	text   []byte
}

// NewResultReader returns one.
func NewResultReader() *ResultReader {
	return &ResultReader{fields: jsonfield.For("key", "window_start", "sum", "count")}
}

// Read reads one.
func (r *ResultReader) Read(value []byte) (out Result, err error) {
	fail := func(err error) (Result, error) {
		return Result{}, fmt.Errorf("%q is no result of a window: %w", value, err)
	}
	if err = r.fields.Read(value, r.values[:]); err != nil {
		return fail(err)
	}
	if out.Key, err = r.values[0].Text(&r.text); err != nil {
		return fail(err)
	}
	for i, to := range []*int64{&out.Start, &out.Sum, &out.Count} {
		if *to, err = r.values[i+1].Int(); err != nil {
			return fail(err)
		}
	}
	return out, nil
}
