package orders

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/jsonfield"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
)

// What the pipeline, its generator and its verification share.
const (
	Name        = "orders"
	Text        = "orders, summed by customer over 1 s windows, into a topic and a directory in one decision"
	SourceAlias = "in"
	TopicAlias  = "totals"
	FilesAlias  = "files"
	WindowSize  = time.Second
	MaxDisorder = 500 * time.Millisecond
	Partitions  = 4

	fieldCustomer = "customer"
	fieldCents    = "cents"
	fieldAt       = "at"
	fieldStart    = "window_start"
	fieldEnd      = "window_end"
	fieldCount    = "count"
	fieldSum      = "sum_cents"
)

// Config says where the pipeline reads and writes.
type Config struct {
	Brokers []string
	// From and To are topics, Dir is a directory.
	From, To, Dir string
	// State is a directory for window state that does not fit into a vote; empty: none.
	State  string
	Logger *slog.Logger
}

// Order is what the pipeline needs of one record of the source.
type Order struct {
	Customer []byte
	Cents    int64
	At       int64 // Unix milliseconds
}

// New builds the pipeline. Source and sinks live as long as the process.
func New(c Config) (*processor.Pipeline, error) {
	source, err := kafka.NewSource(kafka.SourceConfig{Name: SourceAlias, Brokers: c.Brokers, Topics: []string{c.From}})
	if err != nil {
		return nil, err
	}
	topic, err := kafka.NewSink(kafka.SinkConfig{Brokers: c.Brokers, Topic: c.To, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	files, err := file.NewSink(file.SinkConfig{Dir: c.Dir, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	var opts []processor.Option
	if c.State != "" {
		store, err := state.OpenDir(c.State)
		if err != nil {
			return nil, err
		}
		opts = append(opts, processor.StateStore(store))
	}
	s := processor.From(SourceAlias, source, decoder()).
		EventTime(func(o *Order) int64 { return o.At }).
		Key(func(dst []byte, o *Order) []byte { return append(dst, o.Customer...) })
	return processor.Tumbling(s, WindowSize, aggregate.Avg(func(o *Order) int64 { return o.Cents })).
		Disorder(MaxDisorder).
		IdleAfter(0). // every partition speaks; what is silent holds windows back
		To(TopicAlias, topic, encode).
		To(FilesAlias, files, encode).
		Pipeline(Name, opts...)
}

// decoder reads the three fields that are used, and no others.
func decoder() func(in *stream.Record, out *Order) error {
	fields := jsonfield.For(fieldCustomer, fieldCents, fieldAt)
	var v [3]jsonfield.Value
	var text []byte
	return func(in *stream.Record, out *Order) (err error) {
		if err = fields.Read(in.Value, v[:]); err != nil {
			return err
		}
		if out.Customer, err = v[0].Text(&text); err != nil {
			return fmt.Errorf("field %q: %w", fieldCustomer, err)
		}
		if out.Cents, err = v[1].Int(); err != nil {
			return fmt.Errorf("field %q: %w", fieldCents, err)
		}
		if out.At, err = v[2].Int(); err != nil {
			return fmt.Errorf("field %q: %w", fieldAt, err)
		}
		return nil
	}
}

// encode writes one customer's window. Customers are numbers with a prefix and need no escaping.
func encode(r *processor.Result[aggregate.Mean], out *stream.Record) error {
	out.Key = append(out.Key, r.Key...)
	b := append(out.Value, `{"customer":"`...)
	b = append(b, r.Key...)
	b = append(b, `","window_start":`...)
	b = strconv.AppendInt(b, r.Window.Start, 10)
	b = append(b, `,"window_end":`...)
	b = strconv.AppendInt(b, r.Window.End, 10)
	b = append(b, `,"count":`...)
	b = strconv.AppendInt(b, r.Value.Count, 10)
	b = append(b, `,"sum_cents":`...)
	b = strconv.AppendInt(b, r.Value.Sum, 10)
	out.Value = append(b, '}')
	out.Time = r.Window.End
	return nil
}
