package processor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/unisink/unisink/processor/stream"
)

// Pipeline is a pipeline that can be declared and run. It is made by [Windowed.Pipeline] or [Passed.Pipeline] and is good
// for one Run at a time.
type Pipeline struct {
	name        string
	settings    settings
	sourceName  string
	source      Source
	operatorID  string
	sinks       []namedSink
	fingerprint string
	newOperator func() operator
	// dropsLate: late records are counted and go nowhere.
	dropsLate bool

	status atomic.Pointer[Status]
}

type namedSink struct {
	name string
	sink Sink
}

// Spec is what the coordinator is told of a pipeline.
type Spec struct {
	Name        string
	Members     []MemberSpec
	KeyGroups   uint32
	Fingerprint string
}

// MemberSpec declares a member.
type MemberSpec struct {
	Name string
	// Source: barriers are ordered from it.
	Source    bool
	Resources []ResourceSpec
}

// ResourceSpec declares a resource that a member writes to.
type ResourceSpec struct {
	Name string
	Kind string
}

// Counters say what became of the records. Every record that was read counts once in Records and
// once in one of the others but Fired. They are a part of the state: a restart sets them back to the
// restore point.
type Counters struct {
	Records  uint64
	Windowed uint64
	Late     uint64
	Filtered uint64
	Skipped  uint64
	// Passed: sent on without a window.
	Passed uint64
	// DeadLettered: bad, and sent to the sink of dead letters.
	DeadLettered uint64
	// Fired counts results: keys of fired windows, and updates of them.
	Fired uint64
}

// Name of the pipeline.
func (p *Pipeline) Name() string { return p.name }

// Member is the name of the one member that the pipeline is.
func (p *Pipeline) Member() string { return p.settings.member }

// Fingerprint changes when the specification does: names, steps and their order, window, aggregate,
// key groups, version. What is inside functions it cannot see; see [Version].
func (p *Pipeline) Fingerprint() string { return p.fingerprint }

// Close closes the source, the sinks and a store that has a Close, and publishes nothing (S2). Call it when no Run is on its way any
// more, and only if nobody else closes them: a pipeline that was built from a specification is the only one that
// knows them. The pipeline cannot run again.
func (p *Pipeline) Close() error {
	errs := []error{p.source.Close()}
	for _, s := range p.sinks {
		errs = append(errs, s.sink.Close())
	}
	if store, ok := p.settings.store.(io.Closer); ok {
		errs = append(errs, store.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close pipeline %q: %w", p.name, err)
	}
	return nil
}

// Status is what a pipeline knows of itself, for tools and metrics.
type Status struct {
	Counters Counters
	// Watermark of all splits together.
	Watermark stream.Watermark
	// Idle counts the splits that hold no window back because they are silent.
	Idle int
	// Lag is how many records are left to read, -1 when that is not known of every split.
	Lag int64
	// Ended: the source has no more.
	Ended bool
	// EndIn is the epoch that holds all that the source had, nil before it was voted for. Not until it is decided may
	// the pipeline be drained because its source has ended: else a generation that begins anew would be drained
	// wherever it stands.
	EndIn *EndIn
}

// EndIn is an epoch; N is 0 where the generation's restore point holds everything.
type EndIn struct{ Generation, N uint64 }

// Status is that after the last step of the loop; all zero before the first restore. It may be called at any time.
func (p *Pipeline) Status() Status {
	if s := p.status.Load(); s != nil {
		return *s
	}
	return Status{}
}

// Counters are a part of Status.
func (p *Pipeline) Counters() Counters { return p.Status().Counters }

// Spec asks the sinks what they are, and declares the pipeline for the coordinator. Sinks that cannot be used side by side
// are an error here already; see [Sharer].
func (p *Pipeline) Spec(ctx context.Context) (Spec, error) {
	m := MemberSpec{Name: p.settings.member, Source: true}
	for _, s := range p.sinks {
		d, err := s.sink.Describe(ctx)
		if err != nil {
			return Spec{}, fmt.Errorf("sink %q of pipeline %q: %w", s.name, p.name, err)
		}
		m.Resources = append(m.Resources, ResourceSpec{Name: s.name, Kind: d.Kind})
	}
	if _, err := carriers(ctx, p.sinks); err != nil {
		return Spec{}, fmt.Errorf("pipeline %q: %w", p.name, err)
	}
	return Spec{Name: p.name, Members: []MemberSpec{m}, KeyGroups: p.settings.keyGroups, Fingerprint: p.fingerprint}, nil
}

func (p *Pipeline) mistakes() []error {
	var errs []error
	name := func(what, n string, longest int) {
		if !namePattern.MatchString(n) || len(n) > longest {
			errs = append(errs, fmt.Errorf("%q is no name of a %s: use letters, digits, '-' and '_', at most %d, and begin with a letter or digit", n, what, longest))
		}
	}
	name("pipeline", p.name, 40)
	name("member", p.settings.member, 32)
	name("source", p.sourceName, 32)
	name("operator", p.operatorID, 32)
	if p.settings.keyGroups == 0 || p.settings.keyGroups > 1<<15 {
		errs = append(errs, fmt.Errorf("%d key groups: give 1 to %d", p.settings.keyGroups, 1<<15))
	}
	seen := map[string]bool{p.sourceName: true}
	for _, s := range p.sinks {
		name("sink", s.name, 32)
		if seen[s.name] {
			errs = append(errs, fmt.Errorf("the name %q is used twice", s.name))
		}
		seen[s.name] = true
		if s.sink == nil {
			errs = append(errs, fmt.Errorf("sink %q is nil", s.name))
		}
	}
	return errs
}

func fingerprint(name, version string, keyGroups uint32, op string, steps []string, sinks []namedSink) string {
	h := sha256.New()
	names := make([]string, 0, len(sinks))
	for _, s := range sinks {
		names = append(names, s.name)
	}
	fmt.Fprintf(h, "1\n%s\n%s\n%d\n%s\n%s\n%s\n", name, version, keyGroups, op, strings.Join(steps, ","), strings.Join(names, ","))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

var errNoWriter = errors.New("its branches can't be written to: they have no Write")
