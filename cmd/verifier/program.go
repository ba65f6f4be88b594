package verifier

import (
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/verify"
	"github.com/unisink/unisink/processor/verify/fromspec"
)

// program says in plain words what a document says.
func program(d *spec.Document) (*fromspec.Program, error) {
	s := fromspec.Spec{
		Format: string(d.Source.Format), EventTime: d.Source.EventTime.Value, Where: d.Where.Value, Key: d.Key.Value,
		Map: fields(d.Map), Window: verify.Window{Kind: verify.NoWindow},
		Disorder: d.Source.Disorder, Idle: d.Source.IdleAfter > 0, OnBad: verify.OnBad(d.OnError),
	}
	if w := d.Window; w != nil {
		s.Window = verify.Window{Kind: verify.WindowKind(w.Kind), Size: w.Size, Every: w.Every, Gap: w.Gap, Lateness: w.AllowedLateness}
		s.Aggregates = fields(w.Aggregates)
	}
	for i := range d.Sinks {
		if overSource(d, i) {
			x := &d.Sinks[i]
			s.Also = append(s.Also, x.Key.Value, x.Value.Value)
			for _, f := range x.Fields {
				s.Also = append(s.Also, f.Expr.Value)
			}
		}
	}
	return fromspec.New(s)
}

// overSource reports whether a sink's expressions are over records of the source.
func overSource(d *spec.Document, i int) bool {
	return d.Use(i) != spec.UseResults || d.Window == nil && len(d.Map) == 0
}

func fields(in []spec.Field) (out []fromspec.Field) {
	for _, f := range in {
		out = append(out, fromspec.Field{Name: f.Name, Expr: f.Expr.Value})
	}
	return out
}

// sinkOf says in plain words what a document says of a sink.
func sinkOf(s *spec.Sink, keeps fromspec.Keeps) fromspec.Sink {
	return fromspec.Sink{
		Name: s.Name.Value, Format: string(s.Format), Key: s.Key.Value, Value: s.Value.Value, Fields: fields(s.Fields), Keeps: keeps,
	}
}
