package spec_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a source and sinks in memory, under the adapter "mem".
type world struct {
	source *processortest.Source
	sinks  map[string]*processortest.Sink
}

func newWorld() *world {
	return &world{source: processortest.NewSource("source", "0"), sinks: map[string]*processortest.Sink{}}
}

type memSettings struct {
	Topic string
}

func (w *world) adapters() []spec.Adapter {
	return []spec.Adapter{{
		Kind: "mem",
		Source: func(_ spec.Env, _ string, s spec.Settings) (processor.Source, error) {
			if err := s.Decode(&memSettings{}); err != nil {
				return nil, err
			}
			return w.source, nil
		},
		Sink: func(_ spec.Env, name string, s spec.Settings) (processor.Sink, error) {
			if err := s.Decode(&memSettings{}); err != nil {
				return nil, err
			}
			if w.sinks[name] == nil {
				w.sinks[name] = processortest.NewSink(name)
			}
			return w.sinks[name], nil
		},
		Places: func(_ spec.Env, _ bool, s spec.Settings) []string {
			var m memSettings
			if s.Decode(&m) != nil || m.Topic == "" {
				return nil
			}
			return []string{"topic " + m.Topic}
		},
		Shares: func(a, b spec.Settings) spec.Sharing {
			switch {
			case a.Same(b, "store"):
				return spec.SharedBranch
			case strings.Contains(a.Show(), "store:") && strings.Contains(b.Show(), "store:"):
				return spec.MayShare
			}
			return spec.OwnBranch
		},
		SourceSchema: spec.SchemaOf(memSettings{}), SinkSchema: spec.SchemaOf(memSettings{}),
	}}
}

// build parses and builds, or fails the test.
func (w *world) build(t testing.TB, text string) *processor.Pipeline {
	t.Helper()
	d, err := spec.Parse("p.yaml", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	p, err := spec.Build(d, w.adapters(), env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) value(time int64, values ...string) {
	for _, v := range values {
		w.source.Append("0", stream.Record{Value: []byte(v), Time: time})
	}
}

// run takes the pipeline to the end of its source, in one epoch.
func (w *world) run(p *processor.Pipeline) error {
	w.source.End()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resources := map[string]participant.Resource{}
	for name, s := range w.sinks {
		resources[name] = s
	}
	scope := processortest.NewScope(resources)
	task := p.Task(0, nil)
	run, err := scope.Begin(ctx, task)
	if err != nil {
		return err
	}
	if err := run.Await(ctx, func(_, ended bool, _ int64) bool { return ended }); err != nil {
		return err
	}
	if err := task.Barrier(ctx, participant.Barrier{Generation: 1, N: 1, Final: true, Drain: true}); err != nil {
		return err
	}
	if err := scope.Decide(ctx); err != nil {
		return err
	}
	if err := task.Halted(ctx, "drained"); err != nil {
		return err
	}
	return scope.Close(ctx)
}

// must runs a specification over the source's records and returns what the sink "out" holds.
func (w *world) must(t testing.TB, text string) []string {
	t.Helper()
	p := w.build(t, text)
	if err := w.run(p); err != nil {
		t.Fatal(err)
	}
	c := p.Counters()
	if c.Records != c.Windowed+c.Late+c.Filtered+c.Skipped+c.DeadLettered+c.Passed {
		t.Errorf("the counters do not add up: %+v", c)
	}
	return w.lines("out")
}

func (w *world) lines(sink string) []string {
	var out []string
	for _, c := range w.sinks[sink].Committed() {
		out = append(out, show(&c.Record))
	}
	return out
}

// show is a record as text; nil and empty differ.
func show(r *stream.Record) string {
	part := func(b []byte) string {
		if b == nil {
			return "nil"
		}
		return string(b)
	}
	s := part(r.Key) + " " + part(r.Value)
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %s=%s", h.Key, h.Value)
	}
	return s
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
