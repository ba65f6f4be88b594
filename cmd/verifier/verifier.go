package verifier

import (
	"context"
	"errors"
	"fmt"

	"github.com/unisink/unisink/cmd/adapters"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/verify"
	"github.com/unisink/unisink/processor/verify/fromspec"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Config is one verification.
type Config struct {
	Document *spec.Document
	Env      spec.Env
	Adapters []adapters.Adapter
	Ledger   Ledger
	// Progress is told now and then how much of what was read; nil: nobody asks.
	Progress func(what string, records int)
}

// Run verifies a pipeline up to its last proven epoch. It may be running, stopped or drained. An error
// says that something could not be read.
func Run(ctx context.Context, c Config) (_ verify.Report, err error) {
	v := &verification{Config: c}
	if v.program, err = program(c.Document); err != nil {
		return verify.Report{}, fmt.Errorf("%s: %w", c.Document.File, err)
	}
	defer func() { err = errors.Join(err, v.close()) }()
	source, err := v.source(ctx)
	if err != nil {
		return verify.Report{}, err
	}
	// In this order: what is proven is there, what is there is decided.
	proven, err := c.Ledger.ProvenCut(ctx, &unisinkv1.ProvenCutRequest{Pipeline: c.Document.Pipeline.Value})
	if err != nil {
		return verify.Report{}, err
	}
	if err := v.sameSource(proven); err != nil {
		return verify.Report{}, err
	}
	job := &verify.Job{Plan: v.program.Plan(), Source: source.SourceReader, Progress: c.Progress}
	if err := v.sinks(ctx, job); err != nil {
		return verify.Report{}, err
	}
	if job.Cut, err = CutOf(ctx, c.Ledger, proven, c.Document.Source.Name.Value, source.Splits); err != nil {
		return verify.Report{}, err
	}
	job.Doubts = v.doubts
	if source.Gone != "" {
		v.gone = append(v.gone, verify.Case{Key: c.Document.Source.Name.Value, Why: source.Gone})
	}
	if len(v.gone) > 0 {
		return verify.Unknowable(append(v.gone, v.doubts...)...), nil
	}
	job.Cut.Ended = source.Ended(job.Cut.Positions)
	// At the end of its source a pipeline fires all it has, in an epoch like any other.
	job.Cut.Final = job.Cut.Final || source.Bounded
	grown := source.Grows || source.Grown != nil && source.Grown(job.Cut.Newest)
	job.Plan.Idle = job.Plan.Idle || grown
	job.Cut.Behind = source.Behind != nil && source.Behind(job.Cut.Newest)
	return job.Run(ctx)
}

// verification is one Run.
type verification struct {
	Config
	program *fromspec.Program
	closers []func() error
	// doubts are sinks that cannot be compared, gone is what is there no more and without which nothing can.
	doubts, gone []verify.Case
}

func (v *verification) close() error {
	var errs []error
	for _, c := range v.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

func (v *verification) reading(kind string) (*adapters.Reading, error) {
	for _, a := range v.Adapters {
		if a.Kind == kind {
			if a.Reading == nil {
				return nil, fmt.Errorf("%s: what %q holds can't be read again, so nothing can be verified", v.Document.File, kind)
			}
			return a.Reading, nil
		}
	}
	return nil, fmt.Errorf("%s: there is no adapter %q", v.Document.File, kind)
}

func (v *verification) source(ctx context.Context) (*adapters.SourceReading, error) {
	s := &v.Document.Source
	r, err := v.reading(s.Kind.Value)
	if err != nil {
		return nil, err
	}
	out, err := r.Source(ctx, v.Env, adapters.Use{Name: s.Name.Value, Source: true, Settings: s.Settings, Document: v.Document})
	if err != nil {
		return nil, fmt.Errorf("source %q: %w", s.Name.Value, err)
	}
	v.closers = append(v.closers, out.Close)
	return out, nil
}

// sameSource refuses a specification whose source has another name than the one that was read: the
// pipeline would look as if it had read nothing.
func (v *verification) sameSource(proven *unisinkv1.ProvenCutResponse) error {
	name := v.Document.Source.Name.Value
	for _, s := range proven.GetScopes() {
		at := s.GetPositions()
		if len(at) > 0 && len(positionsOf(at, name)) == 0 {
			return fmt.Errorf("%s: the pipeline has read source %q, and the source of this specification is %q; is this the specification that runs?",
				v.Document.File, at[0].GetResource(), name)
		}
	}
	return nil
}

// sinks fixes the extent of every sink, and adds it to the job.
func (v *verification) sinks(ctx context.Context, job *verify.Job) error {
	for i := range v.Document.Sinks {
		s := &v.Document.Sinks[i]
		r, err := v.reading(s.Kind.Value)
		if err != nil {
			return err
		}
		use := v.Document.Use(i)
		out, err := r.Sink(ctx, v.Env, adapters.Use{Name: s.Name.Value, Settings: s.Settings, Document: v.Document}, use == spec.UseDeadLetter)
		if err != nil {
			return fmt.Errorf("sink %q: %w", s.Name.Value, err)
		}
		v.closers = append(v.closers, out.Close)
		if out.NoCopies != "" && (use != spec.UseResults || v.Document.Window == nil) {
			v.gone = append(v.gone, verify.Case{Sink: s.Name.Value, Why: out.NoCopies})
			continue
		}
		if out.Gone != "" {
			v.gone = append(v.gone, verify.Case{Sink: s.Name.Value, Why: out.Gone})
		}
		if err := v.add(job, s, use, out); err != nil {
			return fmt.Errorf("sink %q: %w", s.Name.Value, err)
		}
	}
	return nil
}

func (v *verification) add(job *verify.Job, s *spec.Sink, use spec.Use, out *adapters.SinkReading) error {
	plain := sinkOf(s, fromspec.Keeps{Key: out.Key, Headers: out.Headers, Time: out.Time, Stamps: out.Stamps})
	if use == spec.UseResults && v.Document.Window != nil {
		t, err := v.program.Target(plain, out)
		switch {
		case errors.Is(err, fromspec.ErrAnonymous):
			v.doubts = append(v.doubts, verify.Case{Sink: s.Name.Value, Why: err.Error()})
		case err != nil:
			return err
		default:
			job.Results = append(job.Results, t)
		}
		return nil
	}
	role := map[spec.Use]fromspec.Role{spec.UseResults: fromspec.Passed, spec.UseLate: fromspec.Late, spec.UseDeadLetter: fromspec.Dead}[use]
	x, err := v.program.Copies(plain, role, out)
	if err != nil {
		return err
	}
	switch role {
	case fromspec.Late:
		job.Late = &x
	case fromspec.Dead:
		job.Dead = &x
	case fromspec.Passed:
		job.Passed = append(job.Passed, x)
	}
	return nil
}
