package spec_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
)

// Example runs a pipeline that is written down, here between a source and a sink in memory.
func Example() {
	text := `
pipeline: totals
source:
  memory: {}
  event_time: rec.at
where: rec.cents > 0
key: rec.customer
window:
  tumbling: 1s
  aggregate: {count: count(), cents: sum(rec.cents)}
sinks:
  - {name: out, memory: {}}
`
	source, sink := processortest.NewSource("source", "0"), processortest.NewSink("out")
	memory := spec.Adapter{
		Kind:   "memory",
		Source: func(spec.Env, string, spec.Settings) (processor.Source, error) { return source, nil },
		Sink:   func(spec.Env, string, spec.Settings) (processor.Sink, error) { return sink, nil },
	}
	env := spec.Env{Lookup: os.LookupEnv}
	d, err := spec.Parse("totals.yaml", []byte(text), env)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := spec.Build(d, []spec.Adapter{memory}, env)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, cents := range []int{5, 7, -1, 2} {
		source.Append("0", stream.Record{Value: fmt.Appendf(nil, `{"customer":"ada","cents":%d,"at":%d}`, cents, i*400)})
	}
	w := &world{source: source, sinks: map[string]*processortest.Sink{"out": sink}}
	if err := w.run(p); err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range sink.Committed() {
		fmt.Printf("%s\n", c.Record.Value)
	}
	// Output:
	// {"key":"ada","window_start":0,"window_end":1000,"count":2,"cents":12}
	// {"key":"ada","window_start":1000,"window_end":2000,"count":1,"cents":2}
}

// ExampleParse shows what is said of mistakes.
func ExampleParse() {
	_, err := spec.Parse("orders.yaml", []byte(`
pipeline: orders
source: {kafka: {topics: [in]}}
widnow: {tumbling: 1s}
late: too-late
sinks: [{name: out, kafka: {topic: out}}]
`), spec.Env{})
	var mistakes spec.Mistakes
	if errors.As(err, &mistakes) {
		for _, m := range mistakes {
			fmt.Printf("line %d: %s\n", m.At.Line, m.Text)
		}
	}
	// Output:
	// line 4: unknown field "widnow", did you mean "window"?
	// line 5: there is no sink "too-late"; there is out
}

// TestTheExampleOfThePackageIsFine: the one in its documentation.
func TestTheExampleOfThePackageIsFine(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(doc)) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok {
			text.WriteString(code)
		}
	}
	d := parsed(t, "doc.yaml", []byte(text.String()))
	w := newWorld()
	adapters := []spec.Adapter{w.adapters()[0], w.adapters()[0]}
	for i, kind := range []string{"kafka", "file"} {
		adapters[i].Kind, adapters[i].Places = kind, nil
		adapters[i].Source = func(spec.Env, string, spec.Settings) (processor.Source, error) { return w.source, nil }
		adapters[i].Sink = func(_ spec.Env, name string, _ spec.Settings) (processor.Sink, error) {
			return processortest.NewSink(name), nil
		}
	}
	if err := spec.Lint(d, adapters, env); err != nil {
		t.Error(err)
	}
}
