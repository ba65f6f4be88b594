package spec

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec/form"
)

const (
	defaultEpoch = time.Second
	minEpoch     = 20 * time.Millisecond
)

// The fields of each place, for messages; the schema says the same.
var (
	documentFields = []string{
		"pipeline", "version", "epoch", "key_groups", "state_dir", "state_store",
		"source", "where", "map", "key", "window", "on_error", "late", "sinks",
	}
	sourceFields = []string{"name", "format", "event_time", "disorder", "idle_after"}
	windowFields = []string{"id", "tumbling", "sliding", "session", "allowed_lateness", "aggregate"}
	sinkFields   = []string{"name", "format", "key", "fields", "value"}
	formats      = []string{string(FormatJSON), string(FormatBytes), string(FormatString)}
)

// Parse reads a specification and checks its form: fields, names, durations, and how the parts go
// together. Expressions and adapters' settings are not looked at; [Lint] does that. The error is
// [Mistakes], all that were found. File is for messages.
func Parse(file string, text []byte, env Env) (*Document, error) {
	root, mistakes := form.Load(file, text)
	if len(mistakes) > 0 {
		return nil, mistakes.Err()
	}
	p := parser{Reader: form.Reader{File: file}, env: env}
	d := p.document(root)
	p.together(d, len(p.Mistakes) == 0)
	if err := p.Mistakes.Err(); err != nil {
		return nil, err
	}
	return d, nil
}

type parser struct {
	form.Reader
	env Env
}

func (p *parser) document(root *form.Node) *Document {
	f := p.Fields(root, "", documentFields, nil)
	d := &Document{
		File:      p.File,
		Pipeline:  f.Need("pipeline", "the pipeline's name"),
		Version:   f.Text("version").Value,
		Epoch:     f.Duration("epoch", defaultEpoch, minEpoch),
		KeyGroups: p.keyGroups(f),
		Where:     f.Text("where"),
		Map:       f.List("map"),
		Key:       f.Text("key"),
		Late:      f.Text("late"),
	}
	p.Name(d.Pipeline, "pipeline", 40)
	d.StateDir = p.stateDir(f)
	p.stateStore(f, d)
	p.onError(f, d)
	p.source(f, d)
	p.window(f, d)
	p.sinks(f, d)
	for _, m := range d.Map {
		p.identifier(m, "map")
	}
	return d
}

func (p *parser) keyGroups(f form.Fields) uint32 {
	n, ok := f.Scalar("key_groups")
	if !ok {
		return processor.DefaultKeyGroups
	}
	v, err := strconv.ParseUint(n.Value, 10, 32)
	if err != nil || v == 0 || v > 1<<15 {
		p.Wrong(n.At, "key_groups", "%q is no number of key groups; give 1 to %d", n.Value, 1<<15)
	}
	return uint32(v) //nolint:gosec // bounded above, or a mistake
}

func (p *parser) stateDir(f form.Fields) string {
	n, ok := f.Scalar("state_dir")
	if !ok {
		return ""
	}
	dir, err := form.Expand(n.Value, p.lookup())
	if err != nil {
		p.Wrong(n.At, "state_dir", "%s", err)
	}
	return dir
}

// stateStore reads the adapter that keeps state in the place of a directory.
func (p *parser) stateStore(f form.Fields, d *Document) {
	n := f.Has["state_store"]
	if n == nil {
		return
	}
	k := kindOf{p: p, path: "state_store"}
	d.StateKind, d.StateSettings = k.settings(p.Fields(n, "state_store", nil, k.take))
	if d.StateDir != "" {
		p.Wrong(n.At, "state_store", "state lies in state_dir already; leave one of them")
	}
}

func (p *parser) lookup() func(string) (string, bool) {
	if p.env.Lookup != nil {
		return p.env.Lookup
	}
	return os.LookupEnv
}

func (p *parser) onError(f form.Fields, d *Document) {
	d.OnError = OnErrorFail
	n := f.Has["on_error"]
	switch {
	case n == nil:
	case n.Kind == form.Mapping:
		g := p.Fields(n, "on_error", []string{"dead_letter"}, nil)
		d.OnError, d.DeadLetter = OnErrorDeadLetter, g.Need("dead_letter", "the sink that takes the bad records")
	case n.Kind == form.Scalar && (n.Value == string(OnErrorFail) || n.Value == string(OnErrorSkip)):
		d.OnError = OnError(n.Value)
	case n.Kind == form.Scalar && n.Value == string(OnErrorDeadLetter):
		p.Wrong(n.At, "on_error", "name the sink that takes the bad records: {dead_letter: SINK}")
	default:
		p.Wrong(n.At, "on_error", "%q is no way to treat bad records%s", n.Value, form.Meant(n.Value, []string{"fail", "skip", "{dead_letter: SINK}"}))
	}
}

func (p *parser) source(f form.Fields, d *Document) {
	s := &d.Source
	n := f.Has["source"]
	if n == nil {
		f.Miss("source", "where the records come from")
		return
	}
	k := kindOf{p: p, path: "source", known: sourceFields}
	g := p.Fields(n, "source", sourceFields, k.take)
	s.Kind, s.Settings = k.settings(g)
	s.Name, s.Format, s.EventTime = g.Text("name"), p.format(g), g.Text("event_time")
	if g.Has["name"] == nil {
		s.Name = Text{Value: "source", At: n.At}
	}
	p.Name(s.Name, "source.name", 32)
	s.Disorder = g.Duration("disorder", 0, 0)
	s.IdleAfter = processor.DefaultIdleAfter
	if idle := g.Has["idle_after"]; idle != nil && idle.Kind == form.Scalar && idle.Value == "never" {
		s.IdleAfter = 0
	} else {
		s.IdleAfter = g.Duration("idle_after", processor.DefaultIdleAfter, time.Millisecond)
	}
}

func (p *parser) format(f form.Fields) Format {
	n, ok := f.Scalar("format")
	if !ok {
		return FormatJSON
	}
	if !slices.Contains(formats, n.Value) {
		p.Wrong(n.At, form.Under(f.Path, "format"), "%q is no format%s", n.Value, form.Meant(n.Value, formats))
	}
	return Format(n.Value)
}

// kindOf finds which adapter a source or sink names: the one field that is not ours.
type kindOf struct {
	p     *parser
	path  string
	known []string
	keys  []*form.Node
	items []*form.Node
}

// take takes a field that may name an adapter; one that looks like a misspelt field of ours is none.
func (k *kindOf) take(key, value *form.Node) bool {
	if value.Kind == form.Scalar || value.Kind == form.Sequence || form.Within(key.Value, k.known, 1) != "" {
		return false
	}
	k.keys, k.items = append(k.keys, key), append(k.items, value)
	return true
}

func (k *kindOf) settings(f form.Fields) (Text, Settings) {
	switch {
	case len(k.keys) == 0 && f.At != (Pos{}):
		k.p.Wrong(f.At, k.path, "it names no adapter; add one with its settings, for example kafka: {...}")
	case len(k.keys) > 1:
		k.p.Wrong(k.keys[1].At, k.path, "it names two adapters, %q and %q; leave one", k.keys[0].Value, k.keys[1].Value)
	}
	if len(k.keys) == 0 {
		return Text{}, Settings{}
	}
	kind, n := k.keys[0], k.items[0]
	return kind.Text(), form.NewSettings(k.p.File, kind, n, form.Under(k.path, kind.Value), k.p.lookup())
}

func (p *parser) window(f form.Fields, d *Document) {
	n := f.Has["window"]
	if n == nil {
		return
	}
	g := p.Fields(n, "window", windowFields, nil)
	w := &Window{ID: g.Text("id"), Aggregates: g.List("aggregate")}
	d.Window = w
	if g.Has["id"] == nil {
		w.ID = Text{Value: "window", At: n.At}
	}
	p.Name(w.ID, "window.id", 32)
	p.windowKind(g, w)
	w.AllowedLateness = g.Duration("allowed_lateness", 0, 0)
	if w.Kind == WindowSession && w.AllowedLateness > 0 {
		p.Wrong(g.Has["allowed_lateness"].At, "window.allowed_lateness", "sessions have none: a session that grows would have to take a result back; give the source more disorder")
	}
	g.Miss("aggregate", "what is computed, for example {count: count()}")
	for _, a := range w.Aggregates {
		p.identifier(a, "window.aggregate")
		if slices.Contains(resultNames, a.Name) {
			p.Wrong(a.Expr.At, form.Under("window.aggregate", a.Name), "the name %q is taken: a result has %s by itself; choose another", a.Name, strings.Join(resultNames, ", "))
		}
	}
}

func (p *parser) windowKind(g form.Fields, w *Window) {
	var kinds []string
	for _, k := range []WindowKind{WindowTumbling, WindowSliding, WindowSession} {
		if g.Has[string(k)] != nil {
			kinds, w.Kind = append(kinds, string(k)), k
		}
	}
	switch {
	case len(kinds) == 0 && g.At != (Pos{}):
		p.Wrong(g.At, "window", "say which: tumbling: SIZE, sliding: {size: SIZE, every: STEP} or session: GAP")
	case len(kinds) > 1:
		p.Wrong(g.Has[kinds[1]].At, "window", "it is %s at once; leave one", strings.Join(kinds, " and "))
	}
	switch w.Kind {
	case WindowTumbling:
		w.Size = g.Duration("tumbling", 0, time.Millisecond)
	case WindowSession:
		w.Gap = g.Duration("session", 0, time.Millisecond)
	case WindowSliding:
		s := p.Fields(g.Has["sliding"], "window.sliding", []string{"size", "every"}, nil)
		w.Size, w.Every = s.Duration("size", 0, time.Millisecond), s.Duration("every", 0, time.Millisecond)
		for _, name := range []string{"size", "every"} {
			s.Miss(name, "write {size: SIZE, every: STEP}")
		}
		if w.Every > 0 && w.Size%w.Every != 0 {
			p.Wrong(s.Has["size"].At, "window.sliding.size", "the size %s is no multiple of every, %s", w.Size, w.Every)
		} else if w.Every > 0 && w.Size/w.Every > maxOverlap {
			p.Wrong(s.Has["size"].At, "window.sliding.size", "each record would be in %d windows, and at most %d are allowed", w.Size/w.Every, maxOverlap)
		}
	}
}

// maxOverlap is in how many sliding windows one record may be.
const maxOverlap = 1000

func (p *parser) sinks(f form.Fields, d *Document) {
	n := f.Has["sinks"]
	switch {
	case n == nil:
		f.Miss("sinks", "where the results go")
		return
	case n.Kind != form.Sequence:
		p.Wrong(n.At, "sinks", "a list of sinks belongs here, and this is %s; begin each with \"- name: ...\"", n.Kind)
		return
	case len(n.Items) == 0:
		p.Wrong(n.At, "sinks", "the list is empty; the results must go somewhere")
	}
	for i, item := range n.Items {
		path := fmt.Sprintf("sinks[%d]", i)
		k := kindOf{p: p, path: path, known: sinkFields}
		g := p.Fields(item, path, sinkFields, k.take)
		s := Sink{
			Name: g.Need("name", "the sink's name"), Key: g.Text("key"), Format: p.format(g), Fields: g.List("fields"), Value: g.Text("value"),
		}
		s.Kind, s.Settings = k.settings(g)
		s.formatAt = g.Has["format"]
		p.Name(s.Name, path+".name", 32)
		if len(s.Fields) > 0 && s.Value.Value != "" {
			p.Wrong(s.Value.At, path+".value", "it has fields as well; leave one of the two")
		}
		d.Sinks = append(d.Sinks, s)
	}
}
