package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec/fold"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
)

// Build makes the pipeline that a document describes, with sources and sinks of the adapters. Nothing is
// connected to before the pipeline runs, but the state's directory is made. The error is [Mistakes] if the
// document is wrong. The pipeline is good for one Run at a time, and its Close closes what the adapters made.
func Build(d *Document, adapters []Adapter, e Env) (*processor.Pipeline, error) {
	p, err := compile(d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.File, err)
	}
	source, sinks := p.connect(adapters, e)
	store := p.store(adapters, e)
	made, err := p.finish(source, sinks, store)
	if err != nil {
		return nil, errors.Join(err, release(source, sinks))
	}
	return made, nil
}

// store is the adapter's that keeps the state; nil if there is none. It has connected to nothing.
func (p *plan) store(adapters []Adapter, e Env) state.Store {
	d := p.doc
	if d.StateKind.Value == "" {
		return nil
	}
	a := p.adapter(adapters, "state_store", d.StateKind, func(a *Adapter) bool { return a.Store != nil })
	if a == nil {
		return nil
	}
	store, err := a.Store(e, d.StateSettings)
	if err != nil {
		p.failed(d.StateSettings, err)
		return nil
	}
	return store
}

// finish is Build once the source, the sinks and the store are made.
func (p *plan) finish(source processor.Source, sinks []processor.Sink, store state.Store) (*processor.Pipeline, error) {
	if err := p.mistakes.Err(); err != nil {
		return nil, err
	}
	if p.doc.StateDir == "" {
		return p.assemble(source, sinks, store)
	}
	dir, err := state.OpenDir(p.doc.StateDir)
	if err != nil {
		return nil, fmt.Errorf("%s: state_dir: %w", p.doc.File, err)
	}
	return p.assemble(source, sinks, dir)
}

// assemble puts the pipeline together; store may be nil.
func (p *plan) assemble(source processor.Source, sinks []processor.Sink, store state.Store) (*processor.Pipeline, error) {
	d := p.doc
	b := &builder{plan: p, sinks: sinks, in: newIntake(p)}
	b.opts = []processor.Option{processor.KeyGroups(d.KeyGroups), processor.Version(p.version())}
	if store != nil {
		b.opts = append(b.opts, processor.StateStore(store))
	}
	b.stream = processor.From(d.Source.Name.Value, source, b.decode)
	if p.eventTime != nil {
		b.stream = b.stream.EventTime(func(r *fold.Row) int64 { return r.At })
	}
	if p.where != nil {
		b.stream = b.stream.Where(func(r *fold.Row) bool { return r.Keep })
	}
	if p.key != nil {
		b.stream = b.stream.Key(func(dst []byte, r *fold.Row) []byte { return append(dst, r.Key...) })
	}
	switch d.OnError {
	case OnErrorSkip:
		b.stream = b.stream.SkipBad()
	case OnErrorDeadLetter:
		b.stream = b.stream.DeadLetters(d.DeadLetter.Value, sinks[p.sink(d.DeadLetter.Value)])
	case OnErrorFail:
	}
	if d.Window == nil {
		return b.pass()
	}
	p.columns.Visit(b)
	return b.made, b.err
}

// version is a part of the fingerprint: all that the pipeline's builder cannot see.
func (p *plan) version() string {
	sum := sha256.Sum256([]byte(p.normal()))
	return "spec/1 " + hex.EncodeToString(sum[:16]) + " " + p.doc.Version
}

func (p *plan) sink(name string) int {
	for i, s := range p.doc.Sinks {
		if s.Name.Value == name {
			return i
		}
	}
	return -1
}

// connect makes the source and the sinks; what is wrong with their settings is among the mistakes.
func (p *plan) connect(adapters []Adapter, e Env) (processor.Source, []processor.Sink) {
	var source processor.Source
	d := p.doc
	if a := p.adapter(adapters, "source", d.Source.Kind, func(a *Adapter) bool { return a.Source != nil }); a != nil {
		var err error
		if source, err = a.Source(e, d.Source.Name.Value, d.Source.Settings); err != nil {
			source = nil // an adapter may return a nil pointer of its own type
			p.failed(d.Source.Settings, err)
		}
	}
	sinks := make([]processor.Sink, len(d.Sinks))
	for i, s := range d.Sinks {
		path := fmt.Sprintf("sinks[%d]", i)
		if a := p.adapter(adapters, path, s.Kind, func(a *Adapter) bool { return a.Sink != nil }); a != nil {
			var err error
			if sinks[i], err = a.Sink(e, s.Name.Value, s.Settings); err != nil {
				sinks[i] = nil
				p.failed(s.Settings, err)
			}
		}
	}
	p.cycles(adapters, e)
	return source, sinks
}

// origin says where a late record stood in the source, as that of a dead letter does.
func origin(in *stream.Record) []byte {
	return fmt.Appendf(nil, "%s/%d/%d", in.Topic, in.Partition, in.Offset)
}

// builder puts the parts together. Its methods Of1 to OfN differ in the type of the accumulators alone.
type builder struct {
	plan   *plan
	sinks  []processor.Sink
	opts   []processor.Option
	in     *intake
	stream *processor.Stream[fold.Row]

	made *processor.Pipeline
	err  error
}

var _ fold.Visitor = (*builder)(nil)

func (b *builder) Of1(a *fold.Composite[fold.Cells1]) { windowed(b, a) }
func (b *builder) Of2(a *fold.Composite[fold.Cells2]) { windowed(b, a) }
func (b *builder) Of3(a *fold.Composite[fold.Cells3]) { windowed(b, a) }
func (b *builder) Of4(a *fold.Composite[fold.Cells4]) { windowed(b, a) }
func (b *builder) Of6(a *fold.Composite[fold.Cells6]) { windowed(b, a) }
func (b *builder) Of8(a *fold.Composite[fold.Cells8]) { windowed(b, a) }
func (b *builder) OfN(a *fold.Composite[fold.CellsN]) { windowed(b, a) }

func (b *builder) decode(in *stream.Record, out *fold.Row) error {
	if out.Args == nil {
		out.Args = newArgs(len(b.plan.calls))
	}
	return b.in.record(in, out)
}

// pass is the pipeline without a window.
func (b *builder) pass() (*processor.Pipeline, error) {
	p := b.plan
	var mapped func(dst []byte) ([]byte, error)
	if p.mapped != p.source {
		mapped = b.in.mapped.AppendColumns
	}
	out := processor.PassThrough(b.stream)
	for _, i := range p.sinkOrder() {
		if p.doc.Use(i) != UseResults {
			continue
		}
		s := newShaper(p, i)
		out = out.To(p.doc.Sinks[i].Name.Value, b.sinks[i], func(in *stream.Record, r *fold.Row, to *stream.Record) error {
			var key []byte
			if p.key != nil {
				key = r.Key
			}
			return s.record(b.in.mapped, in, key, mapped, to)
		})
	}
	return out.Pipeline(p.doc.Pipeline.Value, b.opts...)
}

// windowed is the pipeline with one.
func windowed[C any](b *builder, agg *fold.Composite[C]) {
	p, w := b.plan, b.plan.doc.Window
	var out *processor.Windowed[fold.Row, C]
	switch w.Kind {
	case WindowTumbling:
		out = processor.Tumbling(b.stream, w.Size, agg)
	case WindowSliding:
		out = processor.Sliding(b.stream, w.Size, w.Every, agg)
	case WindowSession:
		out = processor.Session(b.stream, w.Gap, agg)
	default:
		b.err = fmt.Errorf("%s: the window is none of tumbling, sliding, session", p.doc.File)
		return
	}
	out = out.ID(w.ID.Value).Disorder(p.doc.Source.Disorder).IdleAfter(p.doc.Source.IdleAfter)
	if w.AllowedLateness > 0 {
		out = out.AllowedLateness(w.AllowedLateness)
	}
	res := newResults(p, agg)
	first := true
	for _, i := range p.sinkOrder() {
		s, name := newShaper(p, i), p.doc.Sinks[i].Name.Value
		switch p.doc.Use(i) {
		case UseResults:
			s.first, first = first, false
			out = out.To(name, b.sinks[i], res.encoder(s))
		case UseLate:
			out = out.Late(name, b.sinks[i], func(in *stream.Record, _ *fold.Row, to *stream.Record) error {
				if err := s.record(b.in.source, in, nil, nil, to); err != nil {
					return err
				}
				to.Headers = append(to.Headers, stream.Header{Key: processor.HeaderOrigin, Value: origin(in)})
				return nil
			})
		case UseDeadLetter:
		}
	}
	b.made, b.err = out.Pipeline(p.doc.Pipeline.Value, b.opts...)
}
