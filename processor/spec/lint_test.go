package spec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/spec"
)

func parsed(t testing.TB, file string, text []byte) *spec.Document {
	t.Helper()
	d, err := spec.Parse(file, text, spec.Env{Lookup: func(name string) (string, bool) { return "value-of-" + name, true }})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestLintTellsMistakesWithTheirPlace: and Build says the same.
func TestLintTellsMistakesWithTheirPlace(t *testing.T) {
	each(t, "testdata/lint/*.yaml", func(t *testing.T, file string, text []byte) string {
		d, err := spec.Parse(file, text, env)
		if err != nil {
			t.Fatal(err)
		}
		err = spec.Lint(d, newWorld().adapters(), env)
		if _, build := spec.Build(d, newWorld().adapters(), env); (err == nil) != (build == nil) || err != nil && err.Error() != build.Error() {
			t.Errorf("Lint says %v and Build %v", err, build)
		}
		if err == nil {
			return "no mistake\n"
		}
		var m spec.Mistakes
		if !errors.As(err, &m) {
			t.Errorf("not Mistakes: %v", err)
		}
		return err.Error() + "\n"
	})
}

func TestExplainTellsWhatHappens(t *testing.T) {
	each(t, "testdata/explain/*.yaml", func(t *testing.T, file string, text []byte) string {
		d, err := spec.Parse(file, text, spec.Env{Lookup: func(string) (string, bool) { return "resolved", true }})
		if err != nil {
			t.Fatal(err)
		}
		shown, err := spec.Explain(d, newWorld().adapters())
		if err != nil {
			t.Fatal(err)
		}
		return shown
	})
}

// TestTheFingerprintIsOfTheMeaning: what does not change what comes out does not change it.
func TestTheFingerprintIsOfTheMeaning(t *testing.T) {
	text, err := os.ReadFile("testdata/explain/window.yaml")
	if err != nil {
		t.Fatal(err)
	}
	of := func(text string) string {
		shown, err := spec.Explain(parsed(t, "x.yaml", []byte(text)), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(shown, "fingerprint")
		line, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(line)
	}
	was := of(string(text))
	for what, c := range map[string]struct {
		old, new string
		same     bool
	}{
		"comment":          {"epoch: 100ms", "# hello\nepoch:   100ms", true},
		"epoch":            {"epoch: 100ms", "epoch: 1s", true},
		"address":          {"topic: orders", "topic: elsewhere", true},
		"spaces":           {"rec.cents > 0 &&", "rec.cents>0   &&", true},
		"order of sinks":   {"  - {name: bad, mem: {}}\n  - {name: files, mem: {}}\n", "  - {name: files, mem: {}}\n  - {name: bad, mem: {}}\n", true},
		"state directory":  {"${STATE}/orders", "/elsewhere", true},
		"where":            {"rec.cents > 0", "rec.cents >= 0", false},
		"window":           {"size: 1m", "size: 2m", false},
		"aggregate":        {"sum(rec.cents)", "max(rec.cents)", false},
		"argument":         {"sum(rec.cents)", "sum(rec.cents * 2)", false},
		"name":             {"aggregate: {count:", "aggregate: {n:", false},
		"map":              {"cents: rec.cents,", "cents: rec.cents + 0,", false},
		"key":              {"key: rec.id", "key: rec.id + '!'", false},
		"event time":       {"timestamp(rec.at)", "rec.at", false},
		"disorder":         {"disorder: 500ms", "disorder: 600ms", false},
		"lateness":         {"allowed_lateness: 5s", "allowed_lateness: 6s", false},
		"bad records":      {"on_error: {dead_letter: bad}", "on_error: skip", false},
		"late records":     {"late: too-late\n", "", false},
		"fields of a sink": {"key: key + '!'", "key: key", false},
		"a sink's name":    {"name: files", "name: data", false},
		"version":          {"epoch: 100ms", "version: 2", false},
	} {
		t.Run(what, func(t *testing.T) {
			changed := strings.Replace(string(text), c.old, c.new, 1)
			if changed == string(text) {
				t.Fatal("nothing was changed")
			}
			if now := of(changed); (now == was) != c.same {
				t.Errorf("the fingerprint was %s and is %s", was, now)
			}
		})
	}
}

func TestTheFingerprintExplainedIsThePipelines(t *testing.T) {
	d := parsed(t, "x.yaml", []byte(window))
	p, err := spec.Build(d, newWorld().adapters(), env)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := spec.Explain(d, newWorld().adapters())
	if alone, err := spec.Fingerprint(d); err != nil || alone != p.Fingerprint() {
		t.Errorf("alone it is %s, %v", alone, err)
	}
	if err != nil || !strings.Contains(shown, p.Fingerprint()) {
		t.Errorf("%s is not in\n%s (%v)", p.Fingerprint(), shown, err)
	}
}

// schemaOf compiles a JSON schema.
func schemaOf(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate holds YAML against a schema.
func validate(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return err
	}
	asJSON, err := json.Marshal(v)
	if err != nil {
		return err
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(instance)
}

// TestTheSchemaKnowsTheForm: what Parse takes it takes, and what is wrong in form it refuses.
func TestTheSchemaKnowsTheForm(t *testing.T) {
	mem := newWorld().adapters()[0]
	text := spec.Schema([]spec.Adapter{
		{Kind: "mem", Source: mem.Source, Sink: mem.Sink},
		{Kind: "kafka", Source: mem.Source, Sink: mem.Sink, SinkSchema: spec.SchemaOf(settings{})},
		{Kind: "file", Sink: mem.Sink},
	})
	golden(t, "testdata/schema.golden", string(text))
	schema := schemaOf(t, text)
	for _, pattern := range []string{"testdata/explain/*.yaml", "testdata/lint/fine.yaml", "testdata/lint/types.yaml", "testdata/lint/cycle.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s", pattern)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(t, schema, text); err != nil {
				t.Errorf("%s is refused: %v", path, err)
			}
		}
	}
	for _, name := range []string{"misspelt", "several", "duplicate", "two-windows", "a-list", "empty-values", "bomb"} {
		text, err := os.ReadFile("testdata/parse/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if validate(t, schema, text) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestTheSchemaOfSettings(t *testing.T) {
	schema := schemaOf(t, []byte(spec.SchemaOf(&settings{})))
	for text, ok := range map[string]bool{
		`{brokers: b, topic: t, max_bytes: 12, wait: 5s, fast: true, level: high, sasl: {password: {env: P}}, extra: {x: y}}`: true,
		`{brokers: [b, c], max_bytes: "${N}", fast: "${F:-true}", wait: "${W}"}`:                                              true,
		`{topic: t}`:                         false,
		`{brokers: b, topik: t}`:             false,
		`{brokers: b, max_bytes: many}`:      false,
		`{brokers: b, wait: 5}`:              false,
		`{brokers: b, sasl: {password: p}}`:  false,
		`{brokers: b, sasl: {user: p}}`:      false,
		`{brokers: b, hidden: x}`:            false,
		`{brokers: b, extra: {x: {y: z}}}`:   false,
		`{brokers: b, sasl: {password: {}}}`: false,
	} {
		if err := validate(t, schema, []byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// closing counts what is closed.
type closing struct {
	processor.Source
	closed *int
}

func (c *closing) Close() error {
	*c.closed++
	return nil
}

// TestWhatWasMadeIsClosed: Lint closes the sources and sinks that it makes, and so does Build if something is wrong.
func TestWhatWasMadeIsClosed(t *testing.T) {
	d := parsed(t, "p.yaml", []byte("pipeline: p\nsource: {mem: {}}\nsinks: [{name: out, broken: {}}]\n"))
	closed := 0
	adapters := []spec.Adapter{
		{Kind: "mem", Source: func(spec.Env, string, spec.Settings) (processor.Source, error) { return &closing{closed: &closed}, nil }},
		{Kind: "broken", Sink: func(spec.Env, string, spec.Settings) (processor.Sink, error) {
			var none *processortest.Sink
			return none, errors.New("it is broken")
		}},
	}
	const want = "p.yaml:3:21: sinks[0].broken: it is broken"
	if err := spec.Lint(d, adapters, env); err == nil || err.Error() != want || closed != 1 {
		t.Errorf("Lint: %v, and %d closed", err, closed)
	}
	if _, err := spec.Build(d, adapters, env); err == nil || err.Error() != want || closed != 2 {
		t.Errorf("Build: %v, and %d closed", err, closed)
	}
}

// TestAPipelineClosesWhatItWasBuiltOf: who builds from a specification has nothing else to close it by.
func TestAPipelineClosesWhatItWasBuiltOf(t *testing.T) {
	closed := 0
	adapters := []spec.Adapter{{
		Kind:   "mem",
		Source: func(spec.Env, string, spec.Settings) (processor.Source, error) { return &closing{closed: &closed}, nil },
		Sink: func(_ spec.Env, name string, _ spec.Settings) (processor.Sink, error) {
			return &closingSink{Sink: processortest.NewSink(name), closed: &closed}, nil
		},
	}}
	d, err := spec.Parse("p.yaml", []byte("{pipeline: p, on_error: {dead_letter: b}, source: {mem: {}}, sinks: [{name: a, mem: {}}, {name: b, mem: {}}]}"), env)
	if err != nil {
		t.Fatal(err)
	}
	p, err := spec.Build(d, adapters, env)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Close()
	if closed != 3 || err == nil || !strings.HasPrefix(err.Error(), `close pipeline "p": `) || strings.Count(err.Error(), "will not") != 2 {
		t.Errorf("%d closed, want 3; got %v", closed, err)
	}
}

// closingSink counts too, and cannot be closed well.
type closingSink struct {
	*processortest.Sink
	closed *int
}

func (c *closingSink) Close() error {
	*c.closed++
	return errors.New("it will not")
}
