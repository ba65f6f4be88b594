package spec

import (
	"fmt"
	"strings"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec/expr"
)

// Explain tells people what a document does: what is read, what becomes of each record, where the results
// go. Settings are shown as they are written, secrets as what names them. Nothing is opened, and no environment
// variable is read. The adapters say which sinks share a branch; one that is missing says nothing. The error is [Mistakes].
func Explain(d *Document, adapters []Adapter) (string, error) {
	p, fingerprint, err := described(d)
	if err != nil {
		return "", err
	}
	x := &explainer{plan: p, adapters: adapters}
	x.line(0, "pipeline %s", d.Pipeline.Value)
	x.row("fingerprint", "%s", fingerprint)
	x.row("epoch", "%s", d.Epoch)
	if d.Window != nil {
		where := "in the votes alone; past some ten thousand keys it needs a state_dir or a state_store"
		switch {
		case d.StateDir != "":
			where = "in the votes, and what does not fit in " + d.StateDir
		case d.StateKind.Value != "":
			where = "in the votes, and what does not fit in " + d.StateKind.Value
		}
		x.row("state", "%s; %d key groups", where, d.KeyGroups)
	}
	x.source()
	x.middle()
	x.fates()
	x.sinks()
	return x.b.String(), nil
}

// Fingerprint is that of the pipeline that Build makes of a document. Nothing is opened, and no environment
// variable is read. The error is [Mistakes].
func Fingerprint(d *Document) (string, error) {
	_, fingerprint, err := described(d)
	return fingerprint, err
}

func described(d *Document) (*plan, string, error) {
	p, err := compile(d)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", d.File, err)
	}
	if err := p.mistakes.Err(); err != nil {
		return nil, "", err
	}
	fingerprint, err := p.fingerprint()
	return p, fingerprint, err
}

// nothing stands for sources and sinks, which the fingerprint does not depend on.
type (
	noSource struct{ processor.Source }
	noSink   struct{ processor.Sink }
)

// fingerprint is that of the pipeline that Build makes.
func (p *plan) fingerprint() (string, error) {
	sinks := make([]processor.Sink, len(p.doc.Sinks))
	for i := range sinks {
		sinks[i] = noSink{}
	}
	made, err := p.assemble(noSource{}, sinks, nil)
	if err != nil {
		return "", err
	}
	return made.Fingerprint(), nil
}

type explainer struct {
	plan     *plan
	adapters []Adapter
	b        strings.Builder
}

func (x *explainer) line(indent int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	x.b.WriteString(strings.Repeat("  ", indent) + strings.TrimRight(text, " ") + "\n")
}

// row is a line of a part: what, and its text.
func (x *explainer) row(what, format string, args ...any) {
	x.line(1, "%-14s %s", what, fmt.Sprintf(format, args...))
}

// how is an expression and how it runs.
func how(e *expr.Expr) string {
	if e.Direct {
		return e.Text + "   (direct)"
	}
	return e.Text + "   (CEL)"
}

func (x *explainer) source() {
	p, s := x.plan, &x.plan.doc.Source
	x.line(0, "")
	x.line(0, "source %s: %s %s", s.Name.Value, s.Kind.Value, s.Settings.Show())
	switch reads := p.source.Reads(); {
	case s.Format != FormatJSON:
		x.row("records", "%s", s.Format)
	case p.source.Whole():
		x.row("records", "JSON; all of each is read")
	case len(reads) == 0:
		x.row("records", "JSON; nothing of them is read")
	default:
		x.row("records", "JSON; read of each: %s", strings.Join(reads, ", "))
	}
	if p.eventTime == nil {
		x.row("event time", "the record's timestamp")
	} else {
		x.row("event time", "%s", how(p.eventTime))
	}
	if p.doc.Window == nil {
		return
	}
	idle := "a split that is silent holds windows back for ever"
	if s.IdleAfter > 0 {
		idle = fmt.Sprintf("a split holds windows back until it was silent for %s", s.IdleAfter)
	}
	x.row("watermark", "%s behind the newest record of each split; %s", s.Disorder, idle)
}

func (x *explainer) middle() {
	p, d := x.plan, x.plan.doc
	x.line(0, "")
	x.line(0, "each record")
	if p.where != nil {
		x.row("where", "%s", how(p.where))
	}
	for i, f := range d.Map {
		x.row("map", "%s = %s", f.Name, how(p.fields[i]))
	}
	if p.key != nil {
		x.row("key", "%s", how(p.key))
	}
	if d.Window == nil {
		x.row("then", "passes on by itself, in order within its split")
		return
	}
	x.line(0, "")
	x.line(0, "window %s: %s", d.Window.ID.Value, d.Window.shape())
	for i, c := range p.calls {
		text := c.Text
		if c.Arg != nil && !c.Arg.Direct {
			text += "   (CEL)"
		}
		x.row(d.Window.Aggregates[i].Name, "%s", text)
	}
	if l := d.Window.AllowedLateness; l > 0 {
		x.row("fires", "when the watermark passes its end, and for %s of event time again with each record that still comes", l)
	} else {
		x.row("fires", "once, when the watermark passes its end")
	}
}

func (w *Window) shape() string {
	switch w.Kind {
	case WindowSliding:
		return fmt.Sprintf("sliding, %s long, one begins every %s: each record is in %d", w.Size, w.Every, w.Size/w.Every)
	case WindowSession:
		return fmt.Sprintf("session, ends after %s without a record of its key", w.Gap)
	case WindowTumbling:
	}
	return fmt.Sprintf("tumbling, %s long", w.Size)
}

// fates tells what becomes of the records that reach no window.
func (x *explainer) fates() {
	d := x.plan.doc
	x.line(0, "")
	x.line(0, "other records")
	if x.plan.where != nil {
		x.row("filtered", "counted")
	}
	if d.Window != nil {
		if d.Late.Value == "" {
			x.row("late", "counted and dropped")
		} else {
			x.row("late", "to sink %s, counted", d.Late.Value)
		}
	}
	switch d.OnError {
	case OnErrorSkip:
		x.row("bad", "counted and dropped")
	case OnErrorDeadLetter:
		x.row("bad", "to sink %s as they came, with the reason in a header, counted", d.DeadLetter.Value)
	case OnErrorFail:
		x.row("bad", "halt the pipeline: it stops there until it is changed")
	}
}

func (x *explainer) sinks() {
	p, d := x.plan, x.plan.doc
	x.line(0, "")
	x.line(0, "sinks, all in one decision")
	order := p.sinkOrder()
	carries := make([]bool, len(order)) // a branch of its own
	for at, i := range order {
		s, o := &d.Sinks[i], p.outputs[i]
		x.row(s.Name.Value, "%s: %s %s", d.Use(i), s.Kind.Value, s.Settings.Show())
		carries[at] = x.branch(order[:at], carries, s)
		if o.key != nil {
			x.line(2, "key = %s", how(o.key))
		}
		if o.value != nil {
			x.line(2, "value = %s", how(o.value))
		}
		for _, f := range o.fields {
			x.line(2, "%s = %s", f.name, how(f.expr))
		}
	}
}

// branch says of a sink whose branch its records go into, if that may be another's, and reports whether it has one of its own.
func (x *explainer) branch(before []int, carries []bool, s *Sink) bool {
	shares := x.shares(s.Kind.Value)
	if shares == nil {
		return true
	}
	var perhaps []string
	for at, i := range before {
		first := &x.plan.doc.Sinks[i]
		if first.Kind.Value != s.Kind.Value || !carries[at] {
			continue
		}
		switch shares(first.Settings, s.Settings) {
		case SharedBranch:
			x.line(2, "shares the branch of %s: what an epoch writes to one place is one transaction there", first.Name.Value)
			return false
		case MayShare:
			perhaps = append(perhaps, first.Name.Value)
		case OwnBranch:
		}
	}
	if len(perhaps) > 0 {
		x.line(2, "shares the branch of %s if it leads to the same place, which shows when it runs; else it has its own", strings.Join(perhaps, " or "))
	}
	return true
}

func (x *explainer) shares(kind string) func(a, b Settings) Sharing {
	for i := range x.adapters {
		if x.adapters[i].Kind == kind {
			return x.adapters[i].Shares
		}
	}
	return nil
}
