package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unisink/unisink/processor/spec/form"
)

// resultNames are what a result has besides its aggregates.
var resultNames = []string{"key", "window_start", "window_end", "update"}

// celWords cannot be names of fields that expressions use.
var celWords = strings.Fields(`as break const continue else false for function if import in let loop null package namespace return
	true var void while int uint double string bytes bool list map type null_type dyn optional_type rec`)

// identifier checks a name that expressions use.
func (p *parser) identifier(f Field, path string) {
	switch {
	case !form.IdentifierPattern.MatchString(f.Name) || len(f.Name) > 64:
		p.Wrong(f.Expr.At, form.Under(path, f.Name), "%q is no name for expressions: use letters, digits and '_', at most 64, and begin with no digit", f.Name)
	case slices.Contains(celWords, f.Name):
		p.Wrong(f.Expr.At, form.Under(path, f.Name), "the name %q means something else in expressions; choose another", f.Name)
	}
}

// together checks how the parts of a specification go together; whole: nothing is wrong so far, so what
// is not there was not meant to be.
func (p *parser) together(d *Document, whole bool) {
	p.names(d)
	results := p.uses(d)
	switch {
	case !whole:
	case d.Window == nil && d.Late.Value != "":
		p.Wrong(d.Late.At, "late", "without a window no record is late; add a window or leave this out")
	case d.Window != nil && d.Key.Value == "":
		p.Wrong(d.Window.ID.At, "window", "the field \"key\" is missing beside it: by what its results are told apart, for example key: rec.customer")
	}
	if len(results) == 0 && len(d.Sinks) > 0 {
		p.Wrong(d.Sinks[0].Name.At, "sinks", "no sink takes the results: each is taken by late or on_error; add one")
	}
	for i := range d.Sinks {
		p.sinkFits(d, i)
	}
}

// names finds names that are used twice.
func (p *parser) names(d *Document) {
	first := map[string]string{d.Source.Name.Value: "the source"}
	for i, s := range d.Sinks {
		if what, twice := first[s.Name.Value]; twice && s.Name.Value != "" {
			p.Wrong(s.Name.At, fmt.Sprintf("sinks[%d].name", i), "the name %q is taken by %s; choose another", s.Name.Value, what)
			continue
		}
		first[s.Name.Value] = fmt.Sprintf("the sink in line %d", s.Name.At.Line)
	}
}

// uses finds which sinks take what, and returns those that take results.
func (p *parser) uses(d *Document) []int {
	names := make([]string, len(d.Sinks))
	for i, s := range d.Sinks {
		names[i] = s.Name.Value
	}
	for path, t := range map[string]Text{"on_error.dead_letter": d.DeadLetter, "late": d.Late} {
		if t.Value != "" && len(names) > 0 && !slices.Contains(names, t.Value) {
			p.Wrong(t.At, path, "there is no sink %q%s", t.Value, form.Meant(t.Value, names))
		}
	}
	if d.Late.Value != "" && d.Late.Value == d.DeadLetter.Value {
		p.Wrong(d.Late.At, "late", "the sink %q takes the bad records already; give late records one of their own", d.Late.Value)
	}
	var results []int
	for i := range d.Sinks {
		if d.Use(i) == UseResults {
			results = append(results, i)
		}
	}
	return results
}

// Use says what a sink of a document takes.
type Use string

// The uses of a sink.
const (
	UseResults    Use = "results"
	UseLate       Use = "late records"
	UseDeadLetter Use = "dead letters"
)

// Use says what the i-th sink takes: it follows from Late and DeadLetter; all others take the results.
func (d *Document) Use(i int) Use {
	switch name := d.Sinks[i].Name.Value; {
	case name == "":
	case name == d.DeadLetter.Value && d.OnError == OnErrorDeadLetter:
		return UseDeadLetter
	case name == d.Late.Value:
		return UseLate
	}
	return UseResults
}

// sinkFits checks that a sink's form fits what it takes.
func (p *parser) sinkFits(d *Document, i int) {
	s, path := &d.Sinks[i], fmt.Sprintf("sinks[%d]", i)
	shaped := len(s.Fields) > 0 || s.Value.Value != ""
	switch use := d.Use(i); {
	case use == UseDeadLetter && (shaped || s.Key.Value != "" || s.formatAt != nil):
		p.Wrong(s.Name.At, path, "it takes dead letters, which are the source's records unchanged; leave out format, key, fields and value")
	case use == UseResults && d.Window != nil && s.Format != FormatJSON && s.Value.Value == "":
		p.Wrong(s.formatAt.At, path+".format", "%s needs an expression for the whole value: add value: ...", s.Format)
	case s.Format != FormatJSON && len(s.Fields) > 0:
		p.Wrong(s.formatAt.At, path+".format", "fields are written as json; leave format out, or give value instead of fields")
	case use == UseResults && d.Window == nil && len(d.Map) > 0 && s.Format != FormatJSON && s.Value.Value == "":
		p.Wrong(s.formatAt.At, path+".format", "a mapped record is written as json; leave format out, or add value: ...")
	}
}
