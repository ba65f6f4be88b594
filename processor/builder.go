package processor

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
)

// Stream is a pipeline under construction, up to its window: records of type T out of one source.
// Each method returns a new Stream. The functions given to it must be deterministic and see a T that is
// reused: they must not keep it, nor slices that point into the input record. They are called from one
// goroutine as long as one pipeline at a time runs of what was built on the same From.
type Stream[T any] struct {
	from  origin
	read  func(in *stream.Record, out *T) (verdict, error)
	key   func(dst []byte, rec *T) []byte
	timed bool // EventTime was called
	onBad onBad
	steps []string // for the fingerprint
}

type origin struct {
	name   string
	source Source
}

// onBad says what becomes of bad records: without either they end the generation.
type onBad struct {
	skip bool
	dead *namedSink
}

// verdict says what became of a record before the window.
type verdict uint8

const (
	verdictUnset verdict = iota
	// keep: on to the window.
	keep
	// drop: filtered out before its event time was known.
	drop
	// dropTimed: filtered out, and its event time counts for the watermark.
	dropTimed
)

// From begins a pipeline. Name is the source's resource name; decode fills out, which holds what an
// earlier record left in it, and may let it point into the input record.
func From[T any](name string, source Source, decode func(in *stream.Record, out *T) error) *Stream[T] {
	return &Stream[T]{
		from: origin{name, source},
		read: func(in *stream.Record, out *T) (verdict, error) {
			if err := decode(in, out); err != nil {
				return verdictUnset, fmt.Errorf("decode: %w", err)
			}
			return keep, nil
		},
		steps: []string{"from " + name},
	}
}

// EventTime takes the event time, Unix milliseconds, from a field; without it the source's timestamp
// counts. Called before Where, it lets records that Where drops move the watermark too, which is what
// one wants if few records pass.
func (s *Stream[T]) EventTime(at func(rec *T) int64) *Stream[T] {
	n := s.step("event time")
	n.timed = true
	n.read = func(in *stream.Record, out *T) (verdict, error) {
		v, err := s.read(in, out)
		if v == keep {
			in.EventTime = at(out)
		}
		return v, err
	}
	return n
}

// Where keeps the records for which it is true; the others are counted as filtered.
func (s *Stream[T]) Where(holds func(rec *T) bool) *Stream[T] {
	n := s.step("where")
	dropped := drop
	if s.timed {
		dropped = dropTimed
	}
	n.read = func(in *stream.Record, out *T) (verdict, error) {
		v, err := s.read(in, out)
		if v == keep && !holds(out) {
			v = dropped
		}
		return v, err
	}
	return n
}

// Key appends the key of a record to dst.
func (s *Stream[T]) Key(key func(dst []byte, rec *T) []byte) *Stream[T] {
	n := s.step("key")
	n.key = key
	return n
}

// SkipBad counts records that cannot be decoded, mapped or aggregated as skipped. Without it such a
// record ends the generation with an error that names its place, and halts the scope: it would be met
// again after every restart. An error that wraps participant.ErrRetry is none of the record: it is never
// skipped, and the generation is restored. A record that is skipped does not move the watermark.
func (s *Stream[T]) SkipBad() *Stream[T] {
	n := s.step("skip bad")
	n.onBad.skip = true
	return n
}

// DeadLetters sends records that cannot be decoded, mapped or aggregated to a sink, in the same decision
// as the results, instead of ending the generation. Name is the sink's resource name. Such a record goes
// there as it came, with its key, value, headers and timestamp and behind its own headers [HeaderReason]
// and [HeaderOrigin]; it does not move the watermark. It is given instead of SkipBad; called again it names another sink.
func (s *Stream[T]) DeadLetters(name string, sink Sink) *Stream[T] {
	n := s.step("dead letters")
	n.onBad.dead = &namedSink{name, sink}
	return n
}

// Map turns records of one type into another. Key must come after it.
func Map[T, U any](s *Stream[T], f func(in *T, out *U) error) *Stream[U] {
	var rec T
	return &Stream[U]{
		from: s.from,
		read: func(in *stream.Record, out *U) (verdict, error) {
			v, err := s.read(in, &rec)
			if v != keep || err != nil {
				return v, err
			}
			if err := f(&rec, out); err != nil {
				return verdictUnset, fmt.Errorf("map: %w", err)
			}
			return keep, nil
		},
		timed: s.timed,
		onBad: s.onBad,
		steps: append(s.steps[:len(s.steps):len(s.steps)], "map"),
	}
}

func (s *Stream[T]) mistakes() []error {
	var errs []error
	if s.from.source == nil {
		errs = append(errs, errors.New("the source is nil"))
	}
	if s.onBad.skip && s.onBad.dead != nil {
		errs = append(errs, fmt.Errorf("bad records cannot be skipped and go to sink %q too: give SkipBad or DeadLetters", s.onBad.dead.name))
	}
	return errs
}

func (s *Stream[T]) step(name string) *Stream[T] {
	n := *s
	n.steps = append(s.steps[:len(s.steps):len(s.steps)], name)
	return &n
}

// Option is a setting of a whole pipeline.
type Option func(*settings)

type settings struct {
	keyGroups uint32
	store     state.Store
	member    string
	version   string
}

// DefaultKeyGroups is the number of key groups of a pipeline.
const DefaultKeyGroups = 128

// KeyGroups sets the number of key groups, which stays what it was when the pipeline was created.
func KeyGroups(n uint32) Option { return func(s *settings) { s.keyGroups = n } }

// StateStore is where state lies that does not fit into a vote. Every process that may run the
// pipeline must reach it, and pipelines of two coordinator groups must not share it.
func StateStore(store state.Store) Option { return func(s *settings) { s.store = store } }

// MemberName names the one member that the pipeline is; default "main".
func MemberName(name string) Option { return func(s *settings) { s.member = name } }

// Version is a part of the fingerprint, for changes inside functions that the pipeline cannot see.
func Version(v string) Option { return func(s *settings) { s.version = v } }

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// middle is what a pipeline is made of, whatever stands between its source and its sinks.
type middle struct {
	from        origin
	steps       []string
	id          string
	sinks       []namedSink
	dead        *namedSink // of dead letters, behind all others; nil: none
	fingerprint string     // of the operator
	dropsLate   bool       // late records go nowhere
	mistakes    []error
	operator    func(keyGroups uint32) operator
}

// assemble makes the pipeline, or names every mistake.
func assemble(name string, opts []Option, m middle) (*Pipeline, error) {
	set := settings{keyGroups: DefaultKeyGroups, member: "main"}
	for _, o := range opts {
		o(&set)
	}
	if m.dead != nil {
		m.sinks = append(m.sinks, *m.dead)
	}
	p := &Pipeline{
		name: name, settings: set, sourceName: m.from.name, source: m.from.source, operatorID: m.id, sinks: m.sinks,
	}
	if err := errors.Join(append(m.mistakes, p.mistakes()...)...); err != nil {
		return nil, fmt.Errorf("pipeline %q: %w", name, err)
	}
	p.fingerprint = fingerprint(name, set.version, set.keyGroups, m.fingerprint, m.steps, p.sinks)
	p.newOperator = func() operator { return m.operator(set.keyGroups) }
	p.dropsLate = m.dropsLate
	return p, nil
}
