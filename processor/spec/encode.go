package spec

import (
	"fmt"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec/expr"
	"github.com/unisink/unisink/processor/spec/fold"
	"github.com/unisink/unisink/processor/stream"
)

// shaper writes the records of one sink.
type shaper struct {
	output
	format Format
	names  [][]byte // of the fields, as JSON with what stands around them
	// first: it fills the frame, which the other sinks of a result read too.
	first bool
}

func newShaper(p *plan, i int) *shaper {
	s := &shaper{output: p.outputs[i], format: p.doc.Sinks[i].Format}
	for _, f := range s.fields {
		s.names = append(s.names, fieldName(f.name))
	}
	return s
}

// fieldName is `"name":`.
func fieldName(name string) []byte { return append(expr.AppendString(nil, []byte(name)), ':') }

// shaped reports whether the value is made anew.
func (s *shaper) shaped() bool { return len(s.fields) > 0 || s.value != nil }

// shape writes the value out of the frame.
func (s *shaper) shape(f *expr.Frame, out *stream.Record) (err error) {
	if s.value != nil {
		v, err := s.value.Eval(f)
		if err == nil {
			err = s.whole(v, out)
		}
		if err != nil {
			return fmt.Errorf("value: %w", err)
		}
		return nil
	}
	text := append(out.Value, '{')
	some := false
	for i := range s.fields {
		v, err := s.fields[i].expr.Eval(f)
		if err != nil {
			return fmt.Errorf("fields.%s: %w", s.fields[i].name, err)
		}
		if v.Absent() {
			continue
		}
		if some {
			text = append(text, ',')
		}
		some = true
		if text, err = v.AppendJSON(append(text, s.names[i]...)); err != nil {
			return fmt.Errorf("fields.%s: %w", s.fields[i].name, err)
		}
	}
	out.Value = append(text, '}')
	return nil
}

// whole writes the one value; null as bytes or string is a tombstone.
func (s *shaper) whole(v *expr.Value, out *stream.Record) (err error) {
	if s.format == FormatJSON {
		out.Value, err = v.AppendJSON(out.Value)
		return err
	}
	v.Unwrap()
	switch v.Kind {
	case expr.String, expr.Bytes:
		out.Value = append(out.Value, v.Data...)
		return nil
	case expr.Null:
		out.Value = nil
		return nil
	case expr.Missing, expr.Bool, expr.Int, expr.Uint, expr.Double, expr.JSON, expr.Other, expr.Broken:
	}
	if v.Absent() {
		out.Value = nil
		return nil
	}
	return fmt.Errorf("it is %s, and must be a string or bytes, or null for a tombstone", v.Describe())
}

// keyed writes the key that the sink asks for; ok is false if it asks for none.
func (s *shaper) keyed(f *expr.Frame, out *stream.Record) (ok bool, err error) {
	if s.key == nil {
		return false, nil
	}
	v, err := s.key.Eval(f)
	if err == nil {
		out.Key, err = appendKey(out.Key, v)
	}
	if err != nil {
		return true, fmt.Errorf("key: %w", err)
	}
	return true, nil
}

// copied copies src behind dst; nil, which is no key or a tombstone, stays nil.
func copied(dst, src []byte) []byte {
	if src == nil {
		return nil
	}
	return append(dst, src...)
}

// record writes a record of the source: passed on, or late. Key is that of the pipeline; nil: there is none.
func (s *shaper) record(f *expr.Frame, in *stream.Record, key []byte, made func(dst []byte) ([]byte, error), out *stream.Record) error {
	out.Time = in.Time
	out.Headers = append(out.Headers, in.Headers...)
	switch ok, err := s.keyed(f, out); {
	case err != nil:
		return err
	case ok:
	case key != nil:
		out.Key = append(out.Key, key...)
	default:
		out.Key = copied(out.Key, in.Key)
	}
	switch {
	case s.shaped():
		return s.shape(f, out)
	case made != nil:
		value, err := made(out.Value)
		out.Value = value
		return err
	}
	out.Value = copied(out.Value, in.Value)
	return nil
}

// results writes the results of windows.
type results[C any] struct {
	of    *fold.Composite[C]
	frame *expr.Frame
	names [][]byte // of the aggregates, in JSON
}

func newResults[C any](p *plan, of *fold.Composite[C]) *results[C] {
	r := &results[C]{of: of, frame: p.results.Frame()}
	for _, a := range p.doc.Window.Aggregates {
		r.names = append(r.names, append([]byte{','}, fieldName(a.Name)...))
	}
	return r
}

// load fills the frame.
func (r *results[C]) load(res *processor.Result[C]) error {
	r.frame.Column(0).SetData(expr.String, res.Key)
	r.frame.Column(1).SetInt(res.Window.Start)
	r.frame.Column(2).SetInt(res.Window.End)
	r.frame.Column(3).SetBool(res.Update)
	return r.of.Values(&res.Value, r.frame, len(resultColumns))
}

// encoder is that of one sink. The first sink's is called first for each result, and fills the frame for all.
func (r *results[C]) encoder(s *shaper) func(res *processor.Result[C], out *stream.Record) error {
	return func(res *processor.Result[C], out *stream.Record) error {
		if s.first {
			if err := r.load(res); err != nil {
				return err
			}
		}
		switch ok, err := s.keyed(r.frame, out); {
		case err != nil:
			return err
		case !ok:
			out.Key = append(out.Key, res.Key...)
		}
		if s.shaped() {
			return s.shape(r.frame, out)
		}
		return r.plain(res, out)
	}
}

var resultNames4 = [...][]byte{[]byte(`{"key":`), []byte(`,"window_start":`), []byte(`,"window_end":`), []byte(`,"update":true`)}

// plain is the result as JSON, with all that it has.
func (r *results[C]) plain(res *processor.Result[C], out *stream.Record) (err error) {
	text := out.Value
	for i := range 3 {
		if text, err = r.frame.Column(i).AppendJSON(append(text, resultNames4[i]...)); err != nil {
			return err
		}
	}
	for i, name := range r.names {
		if text, err = r.frame.Column(len(resultColumns) + i).AppendJSON(append(text, name...)); err != nil {
			return err
		}
	}
	if res.Update {
		text = append(text, resultNames4[3]...)
	}
	out.Value = append(text, '}')
	return nil
}
