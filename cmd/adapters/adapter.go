package adapters

import (
	"context"
	"errors"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/spec"
)

var (
	// ErrUnreachable is wrapped when nothing answers at the addresses of a source or sink.
	ErrUnreachable = errors.New("nothing answers")
	// ErrNotFound is wrapped when what is to be read or written does not exist.
	ErrNotFound = errors.New("it does not exist")
)

// marked is an error in its own words that also is a sentinel.
type marked struct{ sentinel, err error }

func (m *marked) Error() string   { return m.err.Error() }
func (m *marked) Unwrap() []error { return []error{m.sentinel, m.err} }

// Adapter is one kind of sources and sinks, as a specification names it.
type Adapter struct {
	// Kind is the key in the specification: "kafka".
	Kind string
	// Spec is the adapter for the sources and sinks of one document, which may be nil where none was
	// read: for the schema.
	Spec func(doc *spec.Document) spec.Adapter
	// Check looks at what a pipeline will use, and changes nothing. It is called before the coordinator
	// hears of the pipeline: a mistake that is found later halts the scope. Its error is about one
	// thing that a person can mend. Nil: there is nothing to look at.
	Check func(ctx context.Context, e spec.Env, uses []Use) error
	// Reading lets verify read its sources and sinks again; nil: it cannot.
	Reading *Reading
	// Finisher reaches what an entry of this kind in a resolver's file names, to end what is prepared
	// there and never to write to it. Nil: resolvers leave its handles to others.
	Finisher func(ctx context.Context, e spec.Env, s spec.Settings) (participant.Finisher, error)
}

// Use is a source or a sink of a document.
type Use struct {
	Name     string
	Source   bool
	Settings spec.Settings
	// Document that it is a part of.
	Document *spec.Document
}

// Uses lists the sources and sinks of a kind, the source first.
func Uses(doc *spec.Document, kind string) []Use {
	var out []Use
	if doc.Source.Kind.Value == kind {
		out = append(out, Use{doc.Source.Name.Value, true, doc.Source.Settings, doc})
	}
	for _, s := range doc.Sinks {
		if s.Kind.Value == kind {
			out = append(out, Use{s.Name.Value, false, s.Settings, doc})
		}
	}
	return out
}

// Specs are the adapters for one document.
func Specs(all []Adapter, doc *spec.Document) []spec.Adapter {
	out := make([]spec.Adapter, len(all))
	for i, a := range all {
		out[i] = a.Spec(doc)
	}
	return out
}

// Check lets every adapter look at what a document uses of it.
func Check(ctx context.Context, all []Adapter, e spec.Env, doc *spec.Document) error {
	for _, a := range all {
		uses := Uses(doc, a.Kind)
		if a.Check == nil || len(uses) == 0 {
			continue
		}
		if err := a.Check(ctx, e, uses); err != nil {
			return err
		}
	}
	return nil
}
