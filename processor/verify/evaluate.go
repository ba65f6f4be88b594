package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/unisink/unisink/processor/stream"
)

// windowID names a window of a key.
type windowID struct {
	start int64
	key   string
}

// want is what a window must hold.
type want struct {
	count, sum, min, max int64
	// unsure says why the window cannot be known; "" if it can.
	unsure string
}

// track is what is known of one split after a replay of its records so far.
type track struct {
	last progress
	// cut is the progress at the cut, which stands before offset at.
	cut   progress
	at    int64
	ended bool
}

// progress is how far a split's event time has come.
type progress struct {
	spoken bool
	newest int64 // largest event time
}

func (p progress) watermark(disorder int64) int64 {
	if !p.spoken {
		return math.MinInt64
	}
	return p.newest - disorder
}

// evaluator replays the source, split by split.
type evaluator struct {
	p       Pipeline
	size    int64
	splits  map[stream.Split]*track
	windows map[windowID]*want
	unknown []Case

	records, filtered, late, skipped int
	// Windows that end at or before low have fired at the cut, those that end after high have not;
	// those that end after newest had not fired when the newest epoch was decided.
	low, high, newest int64
}

func newEvaluator(p Pipeline, cut Cut) *evaluator {
	e := &evaluator{p: p, size: p.Window.Milliseconds(), splits: map[stream.Split]*track{}, windows: map[windowID]*want{}}
	for _, at := range cut.Positions {
		e.splits[at.Split] = &track{at: at.Offset, ended: slices.Contains(cut.Ended, at.Split)}
	}
	for _, at := range cut.Newest {
		if e.splits[at.Split] == nil { // new since the cut
			e.splits[at.Split] = &track{}
		}
	}
	return e
}

func (e *evaluator) record(split stream.Split, r *stream.Record) error {
	t := e.splits[split]
	if t == nil {
		return fmt.Errorf("a record of split %q, which the cut does not name", split.ID)
	}
	if r.Offset < t.at {
		e.records++
		defer func() { t.cut = t.last }()
	}
	fields, at, err := e.decode(r)
	if err != nil {
		e.bad(r, err)
		return nil
	}
	pass := e.p.Where == nil || e.p.Where(fields)
	var key string
	var value int64
	if pass {
		key, value, err = e.parts(r, fields)
		if err != nil {
			e.bad(r, err)
			return nil
		}
	}
	mark := t.last.watermark(e.p.Disorder.Milliseconds())
	if pass || !e.p.WhereFirst {
		if !t.last.spoken || at > t.last.newest {
			t.last.newest = at
		}
		t.last.spoken = true
	}
	if !pass {
		e.filtered++
		return nil
	}
	e.add(key, at, value, mark)
	return nil
}

// add puts a record into its window, unless it came too late for certain.
func (e *evaluator) add(key string, at, value, mark int64) {
	id := windowID{start: floor(at, e.size), key: key}
	behind := id.start+e.size <= mark
	if behind && len(e.splits) == 1 && !e.p.Idle {
		e.late++
		return
	}
	w := e.windows[id]
	if w == nil {
		w = &want{min: math.MaxInt64, max: math.MinInt64}
		e.windows[id] = w
	}
	if behind {
		w.unsure = "a record of it may have been late"
	}
	total := w.sum + value
	if (value > 0 && total < w.sum) || (value < 0 && total > w.sum) {
		w.unsure = "its sum overflows"
	}
	w.sum = total
	w.count++
	w.min, w.max = min(w.min, value), max(w.max, value)
}

// bad takes a record that cannot be decoded.
func (e *evaluator) bad(r *stream.Record, err error) {
	e.skipped++
	if !e.p.SkipBad {
		e.unknown = append(e.unknown, Case{
			Key: fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset),
			Why: "the record can't be decoded, and the pipeline went past it: " + err.Error(),
		})
	}
}

// close takes the watermark at the cut and at the newest epoch. Without idle splits it is known
// while some split goes on; else it lies somewhere between the slowest split and the fastest.
func (e *evaluator) close(drained bool) {
	if drained {
		e.low, e.high, e.newest = math.MaxInt64, math.MaxInt64, math.MaxInt64
		return
	}
	e.low, e.high = e.bounds(func(t *track) progress { return t.cut })
	_, e.newest = e.bounds(func(t *track) progress { return t.last })
}

func (e *evaluator) bounds(of func(*track) progress) (low, high int64) {
	slowest, fastest, going := int64(math.MaxInt64), int64(math.MinInt64), int64(math.MaxInt64)
	for _, t := range e.splits {
		mark := of(t).watermark(e.p.Disorder.Milliseconds())
		slowest, fastest = min(slowest, mark), max(fastest, mark)
		if !t.ended {
			going = min(going, mark)
		}
	}
	switch {
	case len(e.splits) == 0:
		return math.MinInt64, math.MinInt64
	case !e.p.Idle && going < math.MaxInt64:
		return going, going
	default:
		return slowest, fastest
	}
}

type due uint8

const (
	mustFire due = iota + 1
	mayFire
	mayFireLater // not by the cut, but by the newest epoch
	mustNotFire
)

func (e *evaluator) due(id windowID) due {
	switch end := id.start + e.size; {
	case end <= e.low:
		return mustFire
	case end <= e.high:
		return mayFire
	case end <= e.newest:
		return mayFireLater
	}
	return mustNotFire
}

func (e *evaluator) decode(r *stream.Record) (fields map[string]any, at int64, err error) {
	if fields, err = object(r.Value); err != nil {
		return nil, 0, err
	}
	at = r.Time
	if e.p.EventTime != "" {
		at, err = integer(fields, e.p.EventTime)
	}
	return fields, at, err
}

func (e *evaluator) parts(r *stream.Record, fields map[string]any) (key string, value int64, err error) {
	key = string(r.Key)
	if e.p.Key != "" {
		if key, err = text(fields, e.p.Key); err != nil {
			return "", 0, err
		}
	}
	if e.p.Value != "" {
		value, err = integer(fields, e.p.Value)
	}
	return key, value, err
}

func object(doc []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	if fields == nil || d.More() {
		return nil, errors.New("not one JSON object")
	}
	return fields, nil
}

func integer(fields map[string]any, name string) (int64, error) {
	n, ok := fields[name].(json.Number)
	if !ok {
		return 0, fmt.Errorf("field %q is no number", name)
	}
	return n.Int64()
}

func text(fields map[string]any, name string) (string, error) {
	switch v := fields[name].(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", fmt.Errorf("field %q is no text", name)
}

func floor(at, size int64) int64 {
	k := at / size
	if at%size < 0 {
		k--
	}
	return k * size
}

// interval shows a window to people.
func interval(start, size int64) string {
	const form = "2006-01-02T15:04:05.000Z"
	return time.UnixMilli(start).UTC().Format(form) + "/" + time.UnixMilli(start+size).UTC().Format(form)
}
