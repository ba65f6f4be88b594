package spec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec/expr"
	"github.com/unisink/unisink/processor/spec/form"
)

// Lint checks a document as Build does, expressions, types and settings, and opens nothing. The error is
// [Mistakes].
func Lint(d *Document, adapters []Adapter, e Env) error {
	p, err := compile(d)
	if err != nil {
		return fmt.Errorf("%s: %w", d.File, err)
	}
	source, sinks := p.connect(adapters, e)
	p.store(adapters, e)
	err = release(source, sinks)
	if mistakes := p.mistakes.Err(); mistakes != nil {
		return mistakes
	}
	return err
}

// release closes what was made.
func release(source processor.Source, sinks []processor.Sink) error {
	var errs []error
	if source != nil {
		errs = append(errs, source.Close())
	}
	for _, s := range sinks {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// adapter finds the one of a kind that can do what is asked.
func (p *plan) adapter(adapters []Adapter, path string, kind Text, can func(a *Adapter) bool) *Adapter {
	var kinds []string
	for i := range adapters {
		a := &adapters[i]
		if can(a) {
			if a.Kind == kind.Value {
				return a
			}
			kinds = append(kinds, a.Kind)
		}
	}
	p.wrong(kind.At, path, "there is no adapter %q for it%s", kind.Value, form.Meant(kind.Value, kinds))
	return nil
}

// failed takes in what an adapter said of its settings.
func (p *plan) failed(s Settings, err error) {
	var m Mistakes
	if errors.As(err, &m) {
		p.mistakes = append(p.mistakes, m...)
		return
	}
	p.wrong(s.At, s.Path(), "%s", err)
}

// cycles finds sinks that write where the source reads, or where another sink writes.
func (p *plan) cycles(adapters []Adapter, e Env) {
	d := p.doc
	taken := map[string]string{}
	places := func(kind Text, source bool, s Settings) []string {
		for _, a := range adapters {
			if a.Kind == kind.Value && a.Places != nil {
				return a.Places(e, source, s)
			}
		}
		return nil
	}
	for _, at := range places(d.Source.Kind, true, d.Source.Settings) {
		taken[at] = "the source reads"
	}
	for i, s := range d.Sinks {
		for _, at := range places(s.Kind, false, s.Settings) {
			if who, twice := taken[at]; twice {
				why := "its records would come twice"
				if strings.HasPrefix(who, "the source") {
					why = "it would read what it has written, for ever"
				}
				p.wrong(s.Settings.At, fmt.Sprintf("sinks[%d]", i), "it writes to %s, which %s: %s; choose another place", at, who, why)
				break
			}
		}
		for _, at := range places(s.Kind, false, s.Settings) {
			if _, twice := taken[at]; !twice {
				taken[at] = fmt.Sprintf("sink %q writes to", s.Name.Value)
			}
		}
	}
}

func newArgs(n int) []expr.Value { return make([]expr.Value, n) }
