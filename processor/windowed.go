package processor

import (
	"errors"
	"fmt"
	"time"

	"github.com/unisink/unisink/processor/stream"
)

// Result is what a window owes for one key.
type Result[A any] struct {
	Key    []byte // good until encode returns
	Window stream.Window
	Value  A
	// Update: a result of this key and window was sent before, and this one takes its place. It happens
	// with AllowedLateness only.
	Update bool
}

// Windowed is a pipeline under construction, from its window on. Each method returns a new Windowed.
type Windowed[T, A any] struct {
	in        *Stream[T]
	shape     shape
	agg       Aggregate[T, A]
	id        string
	disorder  time.Duration
	lateness  time.Duration
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
	return windowed(s, shape{kind: tumbling, size: size, every: size}, agg)
}

// Sliding aggregates records by key in windows [k*every, k*every+size) of event time. Size is a multiple
// of every, and each record is in size/every windows, which are 1,000 at most: work and state grow with
// their number.
func Sliding[T, A any](s *Stream[T], size, every time.Duration, agg Aggregate[T, A]) *Windowed[T, A] {
	return windowed(s, shape{kind: sliding, size: size, every: every}, agg)
}

// Session aggregates records by key in sessions of event time: a record at t makes [t, t+gap), and what
// overlaps or touches is one session. It fires when the watermark is past its end, since a record that is
// on time may touch it until then. A record that is not on time, but by less than gap, may begin a session
// beside one that has fired, and that one may grow back over the other: a result is named by key, start and
// end, not by key and start.
func Session[T, A any](s *Stream[T], gap time.Duration, agg Aggregate[T, A]) *Windowed[T, A] {
	return windowed(s, shape{kind: session, size: gap}, agg)
}

func windowed[T, A any](s *Stream[T], sh shape, agg Aggregate[T, A]) *Windowed[T, A] {
	return &Windowed[T, A]{in: s, shape: sh, agg: agg, id: "window", idleAfter: DefaultIdleAfter}
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

// AllowedLateness keeps the state of windows that have fired until the watermark is past their end by d;
// default 0. A record that comes in between is added to its window, and the result of its key is sent
// again at once: see [Result.Update]. Only then are records late. Which results are sent, and in which
// order, depends on the records and their order alone. A drain and the end of the source end the
// lateness too. It does not go with sessions.
func (w *Windowed[T, A]) AllowedLateness(d time.Duration) *Windowed[T, A] {
	n := *w
	n.lateness = d
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

// Late sends records that come when all their windows are past to a sink, in the same decision as the
// results. Without it they are only counted. Encode is as in To, and out has the source's Partition.
func (w *Windowed[T, A]) Late(name string, sink Sink, encode func(in *stream.Record, rec *T, out *stream.Record) error) *Windowed[T, A] {
	n := *w
	n.late = &lateOutput[T]{name, sink, encode}
	return &n
}

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
		from: w.in.from, steps: w.in.steps, id: w.id, sinks: sinks, dead: w.in.onBad.dead,
		fingerprint: w.operatorFingerprint(), mistakes: w.mistakes(), dropsLate: w.late == nil,
		operator: func(keyGroups uint32) operator {
			if w.shape.kind == session {
				return newSessionOperator(w, keyGroups)
			}
			return newWindowOperator(w, keyGroups)
		},
	})
}

func (w *Windowed[T, A]) mistakes() []error {
	errs := append(w.in.mistakes(), w.shape.mistakes()...)
	if w.in.key == nil {
		errs = append(errs, errors.New("no Key was given (after Map, it must be given again)"))
	}
	if w.disorder < 0 || w.disorder%time.Millisecond != 0 {
		errs = append(errs, fmt.Errorf("disorder %v: give whole milliseconds", w.disorder))
	}
	if w.lateness < 0 || w.lateness%time.Millisecond != 0 {
		errs = append(errs, fmt.Errorf("allowed lateness %v: give whole milliseconds", w.lateness))
	}
	if w.lateness > 0 && w.shape.kind == session {
		errs = append(errs, fmt.Errorf("allowed lateness %v: sessions have none, since a session that grows would have to take a result back; give more Disorder", w.lateness))
	}
	if w.idleAfter < 0 {
		errs = append(errs, fmt.Errorf("idle time %v is negative", w.idleAfter))
	}
	if w.agg == nil {
		errs = append(errs, errors.New("the aggregate is nil"))
	} else if v, ok := w.agg.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("aggregate %s: %w", w.agg.Name(), err))
		}
	}
	if len(w.sinks) == 0 {
		errs = append(errs, errors.New("no sink was given; call To"))
	}
	return errs
}

// operatorFingerprint says what the operator's state depends on. Disorder and lateness may change: the
// state says what is fired and what is closed.
func (w *Windowed[T, A]) operatorFingerprint() string {
	name := ""
	if w.agg != nil {
		name = w.agg.Name()
	}
	return w.shape.fingerprint() + " aggregate=" + name
}

// shape is how windows are laid over event time.
type shape struct {
	kind        shapeKind
	size, every time.Duration // of a session, size is the gap
}

type shapeKind uint8

const (
	shapeUnset shapeKind = iota
	tumbling
	sliding
	session
)

// maxOverlap is how many sliding windows a record may be in.
const maxOverlap = 1000

func (s shape) mistakes() []error {
	odd := func(d time.Duration) bool { return d < time.Millisecond || d%time.Millisecond != 0 }
	var errs []error
	if odd(s.size) && s.kind == session {
		errs = append(errs, fmt.Errorf("session gap %v: give whole milliseconds, more than none", s.size))
	} else if odd(s.size) {
		errs = append(errs, fmt.Errorf("window size %v: give whole milliseconds, more than none", s.size))
	}
	if s.kind != sliding {
		return errs
	}
	switch {
	case odd(s.every):
		errs = append(errs, fmt.Errorf("windows every %v: give whole milliseconds, more than none", s.every))
	case s.size%s.every != 0:
		errs = append(errs, fmt.Errorf("windows of %v every %v: the size must be a multiple", s.size, s.every))
	case s.size/s.every > maxOverlap:
		errs = append(errs, fmt.Errorf("windows of %v every %v: each record would be in %d windows, and %d is the most", s.size, s.every, s.size/s.every, maxOverlap))
	}
	return errs
}

func (s shape) fingerprint() string {
	switch s.kind {
	case sliding:
		return fmt.Sprintf("sliding/1 size=%dms every=%dms", s.size.Milliseconds(), s.every.Milliseconds())
	case session:
		return fmt.Sprintf("session/1 gap=%dms", s.size.Milliseconds())
	case tumbling, shapeUnset:
	}
	return fmt.Sprintf("tumbling/1 size=%dms", s.size.Milliseconds())
}
