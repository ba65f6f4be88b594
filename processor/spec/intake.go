package spec

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"

	"github.com/unisink/unisink/processor/spec/expr"
	"github.com/unisink/unisink/processor/spec/fold"
	"github.com/unisink/unisink/processor/stream"
)

// intake takes records in: it reads their fields, and evaluates all that is asked of a record before its
// window, so that what fails is an error of the record. It is used by one goroutine.
type intake struct {
	plan   *plan
	source *expr.Frame
	// mapped is the frame behind map: source if there is none.
	mapped *expr.Frame
}

func newIntake(p *plan) *intake {
	in := &intake{plan: p, source: p.source.Frame()}
	in.mapped = in.source
	if p.mapped != p.source {
		in.mapped = p.mapped.Frame()
	}
	return in
}

// untimed is the event time of a record that was filtered out and has none: it moves no watermark.
const untimed = -1<<60 + 1

// record evaluates a record into a row. Where comes first: a record that it drops needs nothing else, and one
// whose event time cannot be told then moves no watermark.
func (n *intake) record(in *stream.Record, out *fold.Row) error {
	p := n.plan
	if err := n.source.Load(in); err != nil {
		return err
	}
	out.Keep = true
	if p.where != nil {
		v, err := p.where.Eval(n.source)
		switch {
		case err != nil:
			return fmt.Errorf("where: %w", err)
		case v.Kind != expr.Bool:
			return fmt.Errorf("where: it is %s, and must be a boolean", v.Describe())
		}
		out.Keep = v.Bool()
	}
	out.At = in.Time
	if p.eventTime != nil {
		at, err := n.eventTime()
		switch {
		case err == nil:
			out.At = at
		case !out.Keep:
			out.At = untimed
		default:
			return fmt.Errorf("event_time: %w", err)
		}
	}
	if !out.Keep {
		return nil
	}
	if err := n.mapping(in); err != nil {
		return err
	}
	if p.key != nil {
		v, err := p.key.Eval(n.mapped)
		if err == nil {
			out.Key, err = appendKey(out.Key[:0], v)
		}
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
	}
	return n.arguments(out)
}

func (n *intake) eventTime() (int64, error) {
	v, err := n.plan.eventTime.Eval(n.source)
	if err != nil {
		return 0, err
	}
	switch v.Kind {
	case expr.Int:
		return v.Int(), nil
	case expr.Other:
		if t, ok := v.Ref().(types.Timestamp); ok {
			return t.UnixMilli(), nil
		}
	case expr.Missing, expr.Null, expr.Bool, expr.Uint, expr.Double, expr.String, expr.Bytes, expr.JSON, expr.Broken:
	}
	return 0, fmt.Errorf("it is %s, and must be Unix milliseconds as an integer, or a timestamp", v.Describe())
}

func (n *intake) mapping(in *stream.Record) error {
	if n.mapped == n.source {
		return nil
	}
	for i, e := range n.plan.fields {
		v, err := e.Eval(n.source)
		if err != nil {
			return fmt.Errorf("map.%s: %w", n.plan.doc.Map[i].Name, err)
		}
		n.mapped.Set(i, v)
	}
	return n.mapped.Load(in)
}

// arguments evaluates what the aggregates are computed of.
func (n *intake) arguments(out *fold.Row) error {
	for i, c := range n.plan.calls {
		if c.Arg == nil {
			continue
		}
		v, err := c.Arg.Eval(n.mapped)
		if err != nil {
			return fmt.Errorf("aggregate.%s: %w", n.plan.doc.Window.Aggregates[i].Name, err)
		}
		v.Unwrap()
		out.Args[i] = *v
	}
	return nil
}

var errKeyText = errors.New("its bytes are not UTF-8, which a key must be; use base64.encode(...)")

// appendKey appends a key: strings and bytes as they are, integers in digits.
func appendKey(dst []byte, v *expr.Value) ([]byte, error) {
	switch v.Kind {
	case expr.String:
		return append(dst, v.Data...), nil
	case expr.Bytes:
		if !utf8.Valid(v.Data) {
			return dst, errKeyText
		}
		return append(dst, v.Data...), nil
	case expr.Int:
		return strconv.AppendInt(dst, v.Int(), 10), nil
	case expr.Uint:
		return strconv.AppendUint(dst, v.Uint(), 10), nil
	case expr.Bool:
		return strconv.AppendBool(dst, v.Bool()), nil
	case expr.Missing, expr.Null, expr.Double, expr.JSON, expr.Other, expr.Broken:
	}
	return dst, fmt.Errorf("it is %s, and must be a string, bytes, an integer or a boolean", v.Describe())
}
