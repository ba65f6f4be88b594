package main

import (
	"log/slog"
	"strings"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/state"
)

// pipeline is orders.yaml in Go. Sources and sinks live as long as the process.
func pipeline(c config, log *slog.Logger) (*processor.Pipeline, error) {
	brokers := strings.Split(c.brokers, ",")
	in, err := kafka.NewSource(kafka.SourceConfig{Name: "in", Brokers: brokers, Topics: []string{c.from}})
	if err != nil {
		return nil, err
	}
	totals, err := kafka.NewSink(kafka.SinkConfig{Brokers: brokers, Topic: c.to, Logger: log})
	if err != nil {
		return nil, err
	}
	files, err := file.NewSink(file.SinkConfig{Dir: c.dir, Logger: log})
	if err != nil {
		return nil, err
	}
	// A dead letter is kept with its headers, whatever its bytes are.
	bad, err := file.NewSink(file.SinkConfig{Dir: c.bad, Lines: file.LineRecord, Logger: log})
	if err != nil {
		return nil, err
	}
	late, err := file.NewSink(file.SinkConfig{Dir: c.late, Logger: log})
	if err != nil {
		return nil, err
	}
	var opts []processor.Option
	if c.state != "" {
		store, err := state.OpenDir(c.state)
		if err != nil {
			return nil, err
		}
		opts = append(opts, processor.StateStore(store))
	}

	orders := processor.From("in", in, decoder()).
		DeadLetters("bad", bad).
		EventTime(func(o *order) int64 { return o.at }).
		Key(func(dst []byte, o *order) []byte { return append(dst, o.customer...) })
	return processor.Tumbling(orders, time.Second, aggregate.Avg(func(o *order) int64 { return o.cents })).
		Disorder(500*time.Millisecond).
		IdleAfter(0). // every partition speaks; one that is silent holds windows back
		To("totals", totals, encode).
		To("files", files, encode).
		Late("late", late, encodeLate).
		Pipeline("orders", opts...)
}
