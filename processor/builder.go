package processor

import (
	"errors"
	"fmt"
	"regexp"
	"time"

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
	skip  bool
	steps []string // for the fingerprint
}

type origin struct {
	name   string
	source Source
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
// record ends the generation with an error that names its place.
func (s *Stream[T]) SkipBad() *Stream[T] {
	n := s.step("skip bad")
	n.skip = true
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
		skip:  s.skip,
		steps: append(s.steps[:len(s.steps):len(s.steps)], "map"),
	}
}

func (s *Stream[T]) step(name string) *Stream[T] {
	n := *s
	n.steps = append(s.steps[:len(s.steps):len(s.steps)], name)
	return &n
}

// Result is what a window owes for one key.
type Result[A any] struct {
	Key    []byte // good until encode returns
	Window stream.Window
	Value  A
}

// Windowed is a pipeline under construction, from its window on. Each method returns a new Windowed.
type Windowed[T, A any] struct {
	in        *Stream[T]
	size      time.Duration
	agg       Aggregate[T, A]
	id        string
	disorder  time.Duration
	idleAfter time.Duration
	sinks     []output[A]
	late      *lateOutput[T]
}

type output[A any] struct {
	name   string
	sink   Sink
	encode func(r *Result[A], out *stream.Record) error
}

type lateOutput[T any] struct {
	name   string
	sink   Sink
	encode func(in *stream.Record, rec *T, out *stream.Record) error
}

// DefaultIdleAfter is how long a split may be silent before it holds windows back no longer.
const DefaultIdleAfter = time.Minute

// Tumbling aggregates records by key in windows [k*size, (k+1)*size) of event time.
func Tumbling[T, A any](s *Stream[T], size time.Duration, agg Aggregate[T, A]) *Windowed[T, A] {
	return &Windowed[T, A]{in: s, size: size, agg: agg, id: "window", idleAfter: DefaultIdleAfter}
}

// ID names the operator, by which its state is kept; default "window".
func (w *Windowed[T, A]) ID(id string) *Windowed[T, A] {
	n := *w
	n.id = id
	return &n
}

// Disorder is how far a record's event time may be behind the newest of its split; default 0. A
// window fires when every split is further than its end by that much.
func (w *Windowed[T, A]) Disorder(d time.Duration) *Windowed[T, A] {
	n := *w
	n.disorder = d
	return &n
}

// IdleAfter sets how long a split may be silent, while the source is being asked and knows of no
// more, before it holds windows back no longer; 0 means that it holds them back for ever. A split
// that speaks again may then have late records.
func (w *Windowed[T, A]) IdleAfter(d time.Duration) *Windowed[T, A] {
	n := *w
	n.idleAfter = d
	return &n
}

// To sends every result to a sink as well. Name is the sink's resource name. Encode appends to out's
// Key and Value, which come empty, and may set Headers and Time; the pipeline sets EventTime.
func (w *Windowed[T, A]) To(name string, sink Sink, encode func(r *Result[A], out *stream.Record) error) *Windowed[T, A] {
	n := *w
	n.sinks = append(w.sinks[:len(w.sinks):len(w.sinks)], output[A]{name, sink, encode})
	return &n
}

// Late sends records that come after their window has fired to a sink, in the same decision as the
// results. Without it they are only counted. Encode is as in To.
func (w *Windowed[T, A]) Late(name string, sink Sink, encode func(in *stream.Record, rec *T, out *stream.Record) error) *Windowed[T, A] {
	n := *w
	n.late = &lateOutput[T]{name, sink, encode}
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

// Pipeline ends the construction. The error names every mistake.
func (w *Windowed[T, A]) Pipeline(name string, opts ...Option) (*Pipeline, error) {
	var sinks []namedSink
	for _, o := range w.sinks {
		sinks = append(sinks, namedSink{o.name, o.sink})
	}
	if w.late != nil {
		sinks = append(sinks, namedSink{w.late.name, w.late.sink})
	}
	return assemble(name, opts, middle{
		from: w.in.from, steps: w.in.steps, id: w.id, sinks: sinks, fingerprint: w.operatorFingerprint(), mistakes: w.mistakes(),
		dropsLate: w.late == nil,
		operator:  func(keyGroups uint32) operator { return newWindowOperator(w, keyGroups) },
	})
}

// middle is what a pipeline is made of, whatever stands between its source and its sinks.
type middle struct {
	from        origin
	steps       []string
	id          string
	sinks       []namedSink
	fingerprint string // of the operator
	dropsLate   bool   // late records go nowhere
	mistakes    []error
	operator    func(keyGroups uint32) operator
}

// assemble makes the pipeline, or names every mistake.
func assemble(name string, opts []Option, m middle) (*Pipeline, error) {
	set := settings{keyGroups: DefaultKeyGroups, member: "main"}
	for _, o := range opts {
		o(&set)
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

func (w *Windowed[T, A]) mistakes() []error {
	var errs []error
	if w.in.from.source == nil {
		errs = append(errs, errors.New("the source is nil"))
	}
	if w.in.key == nil {
		errs = append(errs, errors.New("no Key was given (after Map, it must be given again)"))
	}
	if w.size < time.Millisecond || w.size%time.Millisecond != 0 {
		errs = append(errs, fmt.Errorf("window size %v: give whole milliseconds, more than none", w.size))
	}
	if w.disorder < 0 || w.disorder%time.Millisecond != 0 {
		errs = append(errs, fmt.Errorf("disorder %v: give whole milliseconds", w.disorder))
	}
	if w.idleAfter < 0 {
		errs = append(errs, fmt.Errorf("idle time %v is negative", w.idleAfter))
	}
	if w.agg == nil {
		errs = append(errs, errors.New("the aggregate is nil"))
	}
	if len(w.sinks) == 0 {
		errs = append(errs, errors.New("no sink was given; call To"))
	}
	return errs
}

// operatorFingerprint says what the operator's state depends on.
func (w *Windowed[T, A]) operatorFingerprint() string {
	return fmt.Sprintf("tumbling/1 size=%dms aggregate=%s", w.size.Milliseconds(), w.agg.Name())
}
