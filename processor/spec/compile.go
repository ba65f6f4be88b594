package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unisink/unisink/processor/spec/expr"
	"github.com/unisink/unisink/processor/spec/fold"
	"github.com/unisink/unisink/processor/spec/form"
)

// plan is a document whose expressions are compiled.
type plan struct {
	doc *Document

	// source is where records come in, mapped what they are behind map: the same if there is none.
	source, mapped *expr.Scope
	results        *expr.Scope // nil without a window

	eventTime, where, key *expr.Expr
	fields                []*expr.Expr // of map
	calls                 []*expr.Call // of the aggregates
	columns               fold.Columns
	outputs               []output // one for each sink

	mistakes Mistakes
}

// output is how a sink's records are made.
type output struct {
	key    *expr.Expr // nil: the key as it is
	fields []named
	value  *expr.Expr
}

type named struct {
	name string
	expr *expr.Expr
}

// resultColumns is how many columns a result has before its aggregates.
var resultColumns = []expr.Column{
	{Name: "key", Type: expr.TypeString},
	{Name: "window_start", Type: expr.TypeInt},
	{Name: "window_end", Type: expr.TypeInt},
	{Name: "update", Type: expr.TypeBool},
}

// compile compiles all expressions. The plan is of use only if it has no mistakes.
func compile(d *Document) (*plan, error) {
	p := &plan{doc: d}
	var err error
	if p.source, err = expr.Records(string(d.Source.Format)); err != nil {
		return nil, err
	}
	p.eventTime = p.expr(p.source, "source.event_time", d.Source.EventTime, "Unix milliseconds or a timestamp", expr.TypeInt, expr.TypeTimestamp)
	p.where = p.expr(p.source, "where", d.Where, "a boolean", expr.TypeBool)
	if err := p.mapping(); err != nil {
		return nil, err
	}
	p.key = p.expr(p.mapped, "key", d.Key, "a string, bytes, an integer or a boolean", keyTypes...)
	if d.Window != nil {
		if err := p.aggregates(); err != nil {
			return nil, err
		}
	}
	for i := range d.Sinks {
		p.outputs = append(p.outputs, p.output(i))
	}
	return p, nil
}

var keyTypes = []*expr.Type{expr.TypeString, expr.TypeBytes, expr.TypeInt, expr.TypeUint, expr.TypeBool}

// expr compiles one expression; nil if there is none or it is wrong. What it must be is for people.
func (p *plan) expr(s *expr.Scope, path string, t Text, must string, allowed ...*expr.Type) *expr.Expr {
	if t.Value == "" || s == nil {
		return nil
	}
	e, issues := s.Compile(t.Value)
	if issues != nil {
		p.tell(s, path, t, issues)
		return nil
	}
	if len(allowed) > 0 && !expr.Is(e.Type, allowed...) {
		p.wrong(t.At, path, "it is %s, and must be %s", typeName(e.Type), must)
		return nil
	}
	return e
}

func (p *plan) wrong(at Pos, path, format string, args ...any) {
	p.mistakes = append(p.mistakes, Mistake{File: p.doc.File, At: at, Path: path, Text: fmt.Sprintf(format, args...)})
}

// tell turns what is wrong with an expression into mistakes at their places in the file.
func (p *plan) tell(s *expr.Scope, path string, t Text, issues []expr.Issue) {
	for _, i := range issues {
		at := t.At
		if i.Offset >= 0 {
			at = t.Place(i.Offset)
		}
		text := i.Text
		if i.Unknown != "" {
			names := s.Names()
			if i.Field {
				names = s.Fields()
			}
			text += form.Meant(i.Unknown, names)
		}
		p.wrong(at, path, "%s", text)
	}
}

// typeName is a type for people.
func typeName(t *expr.Type) string {
	switch {
	case t.IsExactType(expr.TypeString):
		return "a string"
	case t.IsExactType(expr.TypeBool):
		return "a boolean"
	case t.IsExactType(expr.TypeInt):
		return "an integer"
	case t.IsExactType(expr.TypeDouble):
		return "a double"
	case t.IsExactType(expr.TypeBytes):
		return "bytes"
	}
	return "a " + t.String()
}

func (p *plan) mapping() error {
	p.mapped = p.source
	if len(p.doc.Map) == 0 {
		return nil
	}
	columns := make([]expr.Column, len(p.doc.Map))
	for i, f := range p.doc.Map {
		e := p.expr(p.source, form.Under("map", f.Name), f.Expr, "")
		p.fields = append(p.fields, e)
		columns[i] = expr.Column{Name: f.Name, Type: expr.TypeDyn}
		if e != nil {
			columns[i].Type = e.Type
		}
	}
	var err error
	p.mapped, err = expr.Mapped(columns)
	return err
}

// aggregates compiles what a window computes, and makes the scope of its results.
func (p *plan) aggregates() error {
	if err := p.mapped.WithCalls(fold.Forms()); err != nil {
		return err
	}
	columns := slices.Clone(resultColumns)
	for _, a := range p.doc.Window.Aggregates {
		path := form.Under("window.aggregate", a.Name)
		typ := expr.TypeDyn
		call, issues := p.mapped.Call(a.Expr.Value)
		if issues != nil {
			p.tell(p.mapped, path, a.Expr, withFunctions(issues))
		} else {
			typ = p.aggregate(path, a, call)
		}
		p.calls = append(p.calls, call)
		columns = append(columns, expr.Column{Name: a.Name, Type: typ})
	}
	var err error
	p.results, err = expr.Results(columns)
	return err
}

// withFunctions says of an unknown function which one may be meant.
func withFunctions(issues []expr.Issue) []expr.Issue {
	for i := range issues {
		if n := form.Nearest(issues[i].Unknown, fold.Names()); n != "" && issues[i].Unknown != "" {
			issues[i].Text += fmt.Sprintf(", did you mean %q?", n)
			issues[i].Unknown = ""
		}
	}
	return issues
}

// aggregate adds one to the columns and returns the type of its result.
func (p *plan) aggregate(path string, a Field, call *expr.Call) *expr.Type {
	c := fold.Call{Func: fold.Func(call.Form.Name), Exact: call.Exact}
	if err := c.SetNumbers(call.Numbers); err != nil {
		p.wrong(a.Expr.At, path, "%s", err)
		return expr.TypeDyn
	}
	arg := expr.TypeDyn
	if call.Arg != nil {
		arg = call.Arg.Type
		if what, ok := c.Takes(arg); !ok {
			p.wrong(a.Expr.Place(call.ArgOffset), path, "%s of %s: it takes %s", c.Func, typeName(arg), what)
			return expr.TypeDyn
		}
	}
	if err := p.columns.Add(a.Name, c); err != nil {
		p.wrong(a.Expr.At, path, "%s", err)
	}
	return c.Result(arg)
}

// output compiles the expressions of a sink, over results, records, or the source's records.
func (p *plan) output(i int) output {
	s, path := &p.doc.Sinks[i], fmt.Sprintf("sinks[%d]", i)
	scope := p.mapped
	switch {
	case p.doc.Use(i) != UseResults:
		scope = p.source
	case p.doc.Window != nil:
		scope = p.results
	}
	o := output{key: p.expr(scope, path+".key", s.Key, "a string, bytes, an integer or a boolean", keyTypes...)}
	seen := map[string]bool{}
	for _, f := range s.Fields {
		if seen[f.Name] {
			p.wrong(f.Expr.At, path+".fields", "the name %q is there twice", f.Name)
		}
		seen[f.Name] = true
		o.fields = append(o.fields, named{f.Name, p.expr(scope, path+".fields."+f.Name, f.Expr, "")})
	}
	switch s.Format {
	case FormatBytes, FormatString:
		o.value = p.expr(scope, path+".value", s.Value, "a string or bytes, or null for a tombstone", expr.TypeString, expr.TypeBytes)
	case FormatJSON:
		o.value = p.expr(scope, path+".value", s.Value, "")
	}
	return o
}

// normal is what the pipeline computes, in one way of writing it: the part of the fingerprint that expressions
// and settings are. Whatever is not here may change freely.
func (p *plan) normal() string {
	var b strings.Builder
	d := p.doc
	line := func(name string, args ...any) { fmt.Fprintln(&b, append([]any{name}, args...)...) }
	text := func(e *expr.Expr) string {
		if e == nil {
			return "-"
		}
		return e.Text
	}
	line("source", d.Source.Kind.Value, d.Source.Format, d.Source.Disorder, d.Source.IdleAfter, text(p.eventTime))
	line("where", text(p.where))
	for i, f := range d.Map {
		line("map", f.Name, text(p.fields[i]))
	}
	line("key", text(p.key))
	for i, c := range p.calls {
		line("aggregate", d.Window.Aggregates[i].Name, c.Text)
	}
	if d.Window != nil {
		line("lateness", d.Window.AllowedLateness)
	}
	line("on_error", d.OnError, d.DeadLetter.Value, "late", d.Late.Value)
	order := p.sinkOrder()
	for _, i := range order {
		o := p.outputs[i]
		line("sink", d.Sinks[i].Name.Value, d.Sinks[i].Kind.Value, d.Sinks[i].Format, text(o.key), text(o.value))
		for _, f := range o.fields {
			line("field", f.name, text(f.expr))
		}
	}
	return b.String()
}

// sinkOrder lists the sinks by name: in which order the file has them means nothing.
func (p *plan) sinkOrder() []int {
	order := make([]int, len(p.doc.Sinks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(p.doc.Sinks[a].Name.Value, p.doc.Sinks[b].Name.Value) })
	return order
}
