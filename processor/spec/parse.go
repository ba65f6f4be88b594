package spec

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unisink/unisink/processor"
)

const (
	defaultEpoch = time.Second
	minEpoch     = 20 * time.Millisecond
)

// The fields of each place, for messages; the schema says the same.
var (
	documentFields = []string{
		"pipeline", "version", "epoch", "key_groups", "state_dir",
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
	root, mistakes := load(file, text)
	if len(mistakes) > 0 {
		return nil, mistakes.err()
	}
	p := parser{reader: reader{file: file}, env: env}
	d := p.document(root)
	p.together(d, len(p.mistakes) == 0)
	if err := p.mistakes.err(); err != nil {
		return nil, err
	}
	return d, nil
}

type parser struct {
	reader
	env Env
}

func (p *parser) document(root *node) *Document {
	f := p.fields(root, "", documentFields, nil)
	d := &Document{
		File:      p.file,
		Pipeline:  f.need("pipeline", "the pipeline's name"),
		Version:   f.text("version").Value,
		Epoch:     f.duration("epoch", defaultEpoch, minEpoch),
		KeyGroups: p.keyGroups(f),
		Where:     f.text("where"),
		Map:       f.list("map"),
		Key:       f.text("key"),
		Late:      f.text("late"),
	}
	p.name(d.Pipeline, "pipeline", 40)
	d.StateDir = p.stateDir(f)
	p.onError(f, d)
	p.source(f, d)
	p.window(f, d)
	p.sinks(f, d)
	for _, m := range d.Map {
		p.identifier(m, "map")
	}
	return d
}

func (p *parser) keyGroups(f fields) uint32 {
	n, ok := f.scalar("key_groups")
	if !ok {
		return processor.DefaultKeyGroups
	}
	v, err := strconv.ParseUint(n.value, 10, 32)
	if err != nil || v == 0 || v > 1<<15 {
		p.wrong(n.at, "key_groups", "%q is no number of key groups; give 1 to %d", n.value, 1<<15)
	}
	return uint32(v) //nolint:gosec // bounded above, or a mistake
}

func (p *parser) stateDir(f fields) string {
	n, ok := f.scalar("state_dir")
	if !ok {
		return ""
	}
	dir, err := expand(n.value, p.lookup())
	if err != nil {
		p.wrong(n.at, "state_dir", "%s", err)
	}
	return dir
}

func (p *parser) lookup() func(string) (string, bool) {
	if p.env.Lookup != nil {
		return p.env.Lookup
	}
	return os.LookupEnv
}

func (p *parser) onError(f fields, d *Document) {
	d.OnError = OnErrorFail
	n := f.has["on_error"]
	switch {
	case n == nil:
	case n.kind == mapping:
		g := p.fields(n, "on_error", []string{"dead_letter"}, nil)
		d.OnError, d.DeadLetter = OnErrorDeadLetter, g.need("dead_letter", "the sink that takes the bad records")
	case n.kind == scalar && (n.value == string(OnErrorFail) || n.value == string(OnErrorSkip)):
		d.OnError = OnError(n.value)
	case n.kind == scalar && n.value == string(OnErrorDeadLetter):
		p.wrong(n.at, "on_error", "name the sink that takes the bad records: {dead_letter: SINK}")
	default:
		p.wrong(n.at, "on_error", "%q is no way to treat bad records%s", n.value, meant(n.value, []string{"fail", "skip", "{dead_letter: SINK}"}))
	}
}

func (p *parser) source(f fields, d *Document) {
	s := &d.Source
	n := f.has["source"]
	if n == nil {
		f.miss("source", "where the records come from")
		return
	}
	k := kindOf{p: p, path: "source", known: sourceFields}
	g := p.fields(n, "source", sourceFields, k.take)
	s.Kind, s.Settings = k.settings(g)
	s.Name, s.Format, s.EventTime = g.text("name"), p.format(g), g.text("event_time")
	if g.has["name"] == nil {
		s.Name = Text{Value: "source", At: n.at}
	}
	p.name(s.Name, "source.name", 32)
	s.Disorder = g.duration("disorder", 0, 0)
	s.IdleAfter = processor.DefaultIdleAfter
	if idle := g.has["idle_after"]; idle != nil && idle.kind == scalar && idle.value == "never" {
		s.IdleAfter = 0
	} else {
		s.IdleAfter = g.duration("idle_after", processor.DefaultIdleAfter, time.Millisecond)
	}
}

func (p *parser) format(f fields) Format {
	n, ok := f.scalar("format")
	if !ok {
		return FormatJSON
	}
	if !slices.Contains(formats, n.value) {
		p.wrong(n.at, under(f.path, "format"), "%q is no format%s", n.value, meant(n.value, formats))
	}
	return Format(n.value)
}

// kindOf finds which adapter a source or sink names: the one field that is not ours.
type kindOf struct {
	p     *parser
	path  string
	known []string
	keys  []*node
	items []*node
}

// take takes a field that may name an adapter; one that looks like a misspelt field of ours is none.
func (k *kindOf) take(key, value *node) bool {
	if value.kind == scalar || value.kind == sequence || within(key.value, k.known, 1) != "" {
		return false
	}
	k.keys, k.items = append(k.keys, key), append(k.items, value)
	return true
}

func (k *kindOf) settings(f fields) (Text, Settings) {
	switch {
	case len(k.keys) == 0 && f.at != (Pos{}):
		k.p.wrong(f.at, k.path, "it names no adapter; add one with its settings, for example kafka: {...}")
	case len(k.keys) > 1:
		k.p.wrong(k.keys[1].at, k.path, "it names two adapters, %q and %q; leave one", k.keys[0].value, k.keys[1].value)
	}
	if len(k.keys) == 0 {
		return Text{}, Settings{}
	}
	kind, n := k.keys[0], k.items[0]
	if n.kind == null {
		n = &node{kind: mapping, at: kind.at, in: kind.in}
	}
	return kind.text(), Settings{File: k.p.file, At: kind.at, path: under(k.path, kind.value), node: n, lookup: k.p.lookup()}
}

func (p *parser) window(f fields, d *Document) {
	n := f.has["window"]
	if n == nil {
		return
	}
	g := p.fields(n, "window", windowFields, nil)
	w := &Window{ID: g.text("id"), Aggregates: g.list("aggregate")}
	d.Window = w
	if g.has["id"] == nil {
		w.ID = Text{Value: "window", At: n.at}
	}
	p.name(w.ID, "window.id", 32)
	p.windowKind(g, w)
	w.AllowedLateness = g.duration("allowed_lateness", 0, 0)
	if w.Kind == WindowSession && w.AllowedLateness > 0 {
		p.wrong(g.has["allowed_lateness"].at, "window.allowed_lateness", "sessions have none: a session that grows would have to take a result back; give the source more disorder")
	}
	g.miss("aggregate", "what is computed, for example {count: count()}")
	for _, a := range w.Aggregates {
		p.identifier(a, "window.aggregate")
		if slices.Contains(resultNames, a.Name) {
			p.wrong(a.Expr.At, under("window.aggregate", a.Name), "the name %q is taken: a result has %s by itself; choose another", a.Name, strings.Join(resultNames, ", "))
		}
	}
}

func (p *parser) windowKind(g fields, w *Window) {
	var kinds []string
	for _, k := range []WindowKind{WindowTumbling, WindowSliding, WindowSession} {
		if g.has[string(k)] != nil {
			kinds, w.Kind = append(kinds, string(k)), k
		}
	}
	switch {
	case len(kinds) == 0 && g.at != (Pos{}):
		p.wrong(g.at, "window", "say which: tumbling: SIZE, sliding: {size: SIZE, every: STEP} or session: GAP")
	case len(kinds) > 1:
		p.wrong(g.has[kinds[1]].at, "window", "it is %s at once; leave one", strings.Join(kinds, " and "))
	}
	switch w.Kind {
	case WindowTumbling:
		w.Size = g.duration("tumbling", 0, time.Millisecond)
	case WindowSession:
		w.Gap = g.duration("session", 0, time.Millisecond)
	case WindowSliding:
		s := p.fields(g.has["sliding"], "window.sliding", []string{"size", "every"}, nil)
		w.Size, w.Every = s.duration("size", 0, time.Millisecond), s.duration("every", 0, time.Millisecond)
		for _, name := range []string{"size", "every"} {
			s.miss(name, "write {size: SIZE, every: STEP}")
		}
		if w.Every > 0 && w.Size%w.Every != 0 {
			p.wrong(s.has["size"].at, "window.sliding.size", "the size %s is no multiple of every, %s", w.Size, w.Every)
		} else if w.Every > 0 && w.Size/w.Every > maxOverlap {
			p.wrong(s.has["size"].at, "window.sliding.size", "each record would be in %d windows, and at most %d are allowed", w.Size/w.Every, maxOverlap)
		}
	}
}

// maxOverlap is in how many sliding windows one record may be.
const maxOverlap = 1000

func (p *parser) sinks(f fields, d *Document) {
	n := f.has["sinks"]
	switch {
	case n == nil:
		f.miss("sinks", "where the results go")
		return
	case n.kind != sequence:
		p.wrong(n.at, "sinks", "a list of sinks belongs here, and this is %s; begin each with \"- name: ...\"", n.kind)
		return
	case len(n.items) == 0:
		p.wrong(n.at, "sinks", "the list is empty; the results must go somewhere")
	}
	for i, item := range n.items {
		path := fmt.Sprintf("sinks[%d]", i)
		k := kindOf{p: p, path: path, known: sinkFields}
		g := p.fields(item, path, sinkFields, k.take)
		s := Sink{
			Name: g.need("name", "the sink's name"), Key: g.text("key"), Format: p.format(g), Fields: g.list("fields"), Value: g.text("value"),
		}
		s.Kind, s.Settings = k.settings(g)
		s.formatAt = g.has["format"]
		p.name(s.Name, path+".name", 32)
		if len(s.Fields) > 0 && s.Value.Value != "" {
			p.wrong(s.Value.At, path+".value", "it has fields as well; leave one of the two")
		}
		d.Sinks = append(d.Sinks, s)
	}
}
