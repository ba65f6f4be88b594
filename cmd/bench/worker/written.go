package worker

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/adapters"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec"
)

// text is the specification of the job; JSON is YAML too, so that nothing in a name must be escaped by hand.
func (c Config) text() ([]byte, error) {
	type object = map[string]any
	to := object{"brokers": c.Brokers, "topic": c.To}
	if c.Compression != "" {
		to["compression"] = c.Compression
	}
	return json.Marshal(object{
		"pipeline": c.Name,
		"source": object{
			"name": sourceName, "kafka": object{"brokers": c.Brokers, "topics": []string{c.From}, "bounded": c.Bounded},
			"event_time": "rec.at", "idle_after": "never",
		},
		"key":    "rec.key",
		"window": object{"tumbling": WindowSize.String(), "aggregate": json.RawMessage(`{"sum":"sum(rec.amount)","count":"count()"}`)},
		"sinks":  []object{{"name": sinkName, "kafka": to}},
	})
}

// written builds the pipeline from its specification, as `run FILE` does, with clocks at both ends.
func (w *Worker) written() error {
	text, err := w.cfg.text()
	if err != nil {
		return fmt.Errorf("write the specification: %w", err)
	}
	env := spec.Env{Logger: w.cfg.Logger, Lookup: os.LookupEnv}
	doc, err := spec.Parse(w.cfg.Name+".yaml", text, env)
	if err != nil {
		return err
	}
	w.Pipeline, err = spec.Build(doc, []spec.Adapter{w.clocked(adapters.Kafka().Spec(doc))}, env)
	return err
}

// clocked puts the clocks around what an adapter makes.
func (w *Worker) clocked(a spec.Adapter) spec.Adapter {
	source, sink := a.Source, a.Sink
	a.Source = func(e spec.Env, name string, s spec.Settings) (processor.Source, error) {
		made, err := source(e, name, s)
		if err != nil {
			return nil, err
		}
		w.source = &clockedSource{Source: made.(*kafka.Source)} //nolint:forcetypeassert // it is the adapter of Kafka
		return w.source, nil
	}
	a.Sink = func(e spec.Env, name string, s spec.Settings) (processor.Sink, error) {
		made, err := sink(e, name, s)
		if err != nil {
			return nil, err
		}
		w.sink = newClockedSink(made.(*kafka.Sink)) //nolint:forcetypeassert // it is the adapter of Kafka
		return w.sink, nil
	}
	return a
}
