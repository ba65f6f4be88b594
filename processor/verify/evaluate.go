package verify

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify/fold"
)

// windowID names a window of a key.
type windowID struct {
	start int64
	// end of a session, else 0. Two sessions of a key may begin at the same time, if the first has fired
	// before a record came that reaches back to its beginning.
	end int64
	key string
}

// want is what a window must hold.
type want struct {
	end   int64
	total fold.Total // of the records up to the cut that are in it for certain
	// maybe are records that may be in it or may have been late; further ones beyond maxMaybe are counted.
	maybe []*fold.Piece
	more  int
	// after are records of it behind the cut.
	after []*fold.Piece
	// before counts the records that came before it fired, for certain.
	before int
	// unsure says why its content cannot be known at all; "": it can.
	unsure string
}

// maxMaybe is of how many records it is tried out whether they are in a window.
const maxMaybe = 8

// most is how many records can be in it.
func (w *want) most() int { return w.total.N + len(w.maybe) + w.more }

// track is what is known of one split after a replay of its records so far.
type track struct {
	index int
	last  progress
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

// spans are a plan's durations, in milliseconds.
type spans struct{ size, every, gap, lateness, disorder int64 }

// marks: windows that end at or before low have fired at the cut, those that end after high have not; those that
// end after newest had not fired when the newest epoch was decided.
type marks struct{ low, high, newest int64 }

// evaluator replays the source, split by split.
type evaluator struct {
	job *Job
	p   *Plan
	spans

	splits   map[stream.Split]*track
	windows  map[windowID]*want
	sessions map[string]*sessions
	// lateIn are the late records that the late output holds, by the windows they would have been in.
	lateIn map[windowID][]*fold.Piece
	// deadIn are dead letters that were fine but for what they were to be added to.
	deadIn []*deadPiece

	late, dead *side
	passed     []*side
	report     Report

	line line
	marks
}

func newEvaluator(j *Job) *evaluator {
	e := &evaluator{
		job: j, p: &j.Plan,
		spans: spans{
			size: j.Plan.Window.Size.Milliseconds(), every: j.Plan.Window.Every.Milliseconds(), gap: j.Plan.Window.Gap.Milliseconds(),
			lateness: j.Plan.Window.Lateness.Milliseconds(), disorder: j.Plan.Disorder.Milliseconds(),
		},
		splits: map[stream.Split]*track{}, windows: map[windowID]*want{}, sessions: map[string]*sessions{},
		lateIn: map[windowID][]*fold.Piece{}, report: newReport(),
		line: lineOf(j.Cut.Proven, j.Cut.Rewinds, j.Cut.Forgotten),
	}
	if j.Plan.Window.Kind == Tumbling {
		e.every = e.size
	}
	for _, at := range j.Cut.Positions {
		e.splits[at.Split] = &track{index: len(e.splits), at: at.Offset, ended: slices.Contains(j.Cut.Ended, at.Split)}
	}
	for _, at := range j.Cut.newest() {
		if e.splits[at.Split] == nil { // new since the cut
			e.splits[at.Split] = &track{index: len(e.splits)}
		}
	}
	return e
}

// ordered: the order of all records is known, and with it what was late.
func (e *evaluator) ordered() bool { return len(e.splits) == 1 && !e.job.Cut.Behind }

// loose: silent splits, or an end of event time before, may have made any record late.
func (e *evaluator) loose() bool { return (e.p.Idle || e.job.Cut.Behind) && !e.ordered() }

// blind: what was late is neither known nor read.
func (e *evaluator) blind() bool { return e.loose() && e.late == nil }

func (e *evaluator) windowed() bool { return e.p.Window.Kind != NoWindow }

// arrival is a record as it came.
type arrival struct {
	r      *stream.Record
	origin string
	seen   Seen
	mark   int64 // the split's own watermark before it
	split  int
	inCut  bool
}

func (a *arrival) piece() *fold.Piece {
	return &fold.Piece{Split: a.split, At: a.seen.At, Seq: a.r.Offset, Origin: a.origin, Values: a.seen.Values}
}

// Origin says where a record of a source stood.
func Origin(r *stream.Record) string {
	b := make([]byte, 0, len(r.Topic)+24)
	b = append(append(b, r.Topic...), '/')
	b = strconv.AppendInt(b, int64(r.Partition), 10)
	return string(strconv.AppendInt(append(b, '/'), r.Offset, 10))
}

// maxEventTime is the event time from which on a record is bad.
const maxEventTime = 1 << 60

func (e *evaluator) record(split stream.Split, r *stream.Record) error {
	t := e.splits[split]
	if t == nil {
		return fmt.Errorf("a record of split %q, which the cut does not name", split.ID)
	}
	a := &arrival{r: r, origin: Origin(r), split: t.index, mark: t.last.watermark(e.disorder), inCut: r.Offset < t.at}
	var err error
	a.seen, err = e.p.Read(r)
	if err == nil && a.seen.Timed && (a.seen.At <= -maxEventTime || a.seen.At >= maxEventTime) {
		a.seen.Timed = false
		err = fmt.Errorf("its event time %d ms is out of range", a.seen.At)
	}
	var refused error
	if err == nil && a.seen.Keep && e.windowed() {
		refused = e.accepts(a.seen.Values)
	}
	if a.inCut {
		e.report.Records++
	}
	observed := err == nil && refused == nil
	switch {
	case err != nil:
		e.bad(a, err)
	case refused != nil:
		e.refused(a, refused)
	case !a.seen.Keep:
		e.filtered(a)
	case !e.windowed():
		e.passOn(a)
	default:
		observed = e.keyed(a)
	}
	if observed && a.seen.Timed {
		if !t.last.spoken || a.seen.At > t.last.newest {
			t.last.newest = a.seen.At
		}
		t.last.spoken = true
	}
	if a.inCut {
		t.cut = t.last
	}
	return nil
}

func (e *evaluator) accepts(values []any) error {
	for i, f := range e.p.Folds {
		var v any
		if i < len(values) {
			v = values[i]
		}
		if err := f.Accepts(v); err != nil {
			return fmt.Errorf("aggregate %d (%s): %w", i+1, f.Kind, err)
		}
	}
	return nil
}

// filtered takes a record that is to be nowhere.
func (e *evaluator) filtered(a *arrival) {
	if a.inCut {
		e.report.Filtered++
	}
	e.unwanted(a, "was filtered out", append(slices.Clone(e.passed), e.late, e.dead)...)
}

// refused takes a record that an aggregate cannot take. It is bad unless it was late before.
func (e *evaluator) refused(a *arrival, err error) {
	over := e.overFor(e.lastEnd(a.seen.At), a.mark)
	if e.ordered() && e.p.Window.Kind == Session {
		over = over && !e.touchesOpen(a)
	}
	switch {
	case !over:
		e.bad(a, err)
	case e.late != nil && e.late.has(a.r, a.origin) != nil:
		e.sameAs(e.late, e.late.take(a.r, a.origin), a)
		e.count(a, &e.report.Late)
	case e.late != nil && e.ordered():
		e.lostLate(a)
	case e.late == nil && (e.ordered() || e.dead != nil && e.dead.has(a.r, a.origin) == nil):
		e.unwanted(a, "was late", e.dead)
		e.count(a, &e.report.Late)
	default:
		e.bad(a, err)
	}
}

// bad takes a record that cannot be read, mapped or keyed, or that an aggregate cannot take.
func (e *evaluator) bad(a *arrival, err error) {
	e.unwanted(a, "can't be read: "+err.Error(), append(slices.Clone(e.passed), e.late)...)
	switch e.p.OnBad {
	case BadSkipped:
		e.count(a, &e.report.Skipped)
	case BadKept:
		e.deadLetter(a, err)
	case BadFails:
		e.count(a, &e.report.Skipped)
		e.undeterminable(Case{Key: a.origin, Why: "the record can't be decoded, and the pipeline went past it: " + err.Error()})
	}
}

func (e *evaluator) count(a *arrival, n *int) {
	if a.inCut {
		*n++
	}
}

func (e *evaluator) undeterminable(c Case) {
	e.report.Undeterminable = append(e.report.Undeterminable, c)
}

// overFor reports whether a window that ends at end may have been closed when a record came before which
// its split had come to mark.
func (e *evaluator) overFor(end, mark int64) bool {
	return e.fires(end)+e.lateness <= mark || e.loose()
}

// fires is the watermark at which a window with that end fires. A session takes records that touch its end,
// so the watermark must be past it.
func (e *evaluator) fires(end int64) int64 {
	if e.p.Window.Kind == Session {
		return end + 1
	}
	return end
}

func (e *evaluator) lastEnd(at int64) int64 {
	if e.p.Window.Kind == Session {
		return at + e.gap
	}
	return floor(at, e.every) + e.size
}

// keyed takes a record that goes into windows, unless it came too late. It reports whether the record
// moved the watermark.
func (e *evaluator) keyed(a *arrival) bool {
	if e.dead != nil {
		x := e.dead.byOrigin[a.origin]
		if x != nil && a.inCut && !(e.late != nil && e.late.refuses(a.r) != nil) {
			e.fineAndDead(a, x)
			return false
		}
		e.unwanted(a, "is fine", e.dead)
	}
	if e.p.Window.Kind == Session {
		e.inSession(a)
		return true
	}
	end := e.lastEnd(a.seen.At)
	over := e.overFor(end, a.mark)
	if over && e.lateAndBad(a) {
		return true
	}
	if e.late == nil {
		if over && e.ordered() {
			e.count(a, &e.report.Late)
			return true
		}
		e.place(a, false)
		return true
	}
	switch {
	case over && e.late.has(a.r, a.origin) != nil:
		e.fromLate(a)
	case !over && e.late.byOrigin[a.origin] != nil:
		e.late.take(a.r, a.origin)
		e.onTimeAndLate(a, end)
	case over && e.ordered():
		e.lostLate(a)
	default:
		e.unwanted(a, "was on time for certain", e.late)
		e.place(a, true)
	}
	return true
}

// lateAndBad takes a record that was late, as far as is known, and that the late output cannot take.
func (e *evaluator) lateAndBad(a *arrival) bool {
	if e.late == nil {
		return false
	}
	err := e.late.refuses(a.r)
	if err == nil || !e.ordered() && (e.dead == nil || e.dead.has(a.r, a.origin) == nil) {
		return false
	}
	e.bad(a, err)
	return true
}

// place adds a record to its windows. Counted: it is not late, so it is in one of them at least.
func (e *evaluator) place(a *arrival, counted bool) {
	p := a.piece()
	last := floor(a.seen.At, e.every)
	for start := last; start+e.size > a.seen.At; start -= e.every {
		closed := e.overFor(start+e.size, a.mark) && !e.blind()
		if closed && e.ordered() {
			return // and so are all before it
		}
		w := e.at(windowID{start: start, key: a.seen.Key})
		switch {
		case !a.inCut:
			w.after = append(w.after, p)
		case closed && (!counted || start != last):
			e.may(w, p)
		default:
			w.total.Add(p)
			if start+e.size > a.mark && !e.loose() {
				w.before++
			}
		}
	}
}

func (e *evaluator) may(w *want, p *fold.Piece) {
	if len(w.maybe) < maxMaybe {
		w.maybe = append(w.maybe, p)
	} else {
		w.more++
	}
}

func (e *evaluator) at(id windowID) *want {
	w := e.windows[id]
	if w == nil {
		w = &want{end: id.start + e.size, total: fold.New(e.p.Folds)}
		e.windows[id] = w
	}
	return w
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
		mark := of(t).watermark(e.disorder)
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

func (e *evaluator) due(end int64) due {
	switch at := e.fires(end); {
	case at <= e.low:
		return mustFire
	case at <= e.high:
		return mayFire
	case at <= e.newest:
		return mayFireLater
	}
	return mustNotFire
}

func floor(at, size int64) int64 {
	k := at / size
	if at%size < 0 {
		k--
	}
	return k * size
}

// interval shows a window to people.
func interval(start, end int64) string {
	const form = "2006-01-02T15:04:05.000Z"
	return time.UnixMilli(start).UTC().Format(form) + "/" + time.UnixMilli(end).UTC().Format(form)
}

// check refuses a job that makes no sense.
func (j *Job) check() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	whole := func(what string, d time.Duration, least time.Duration) {
		if d < least || d%time.Millisecond != 0 {
			refuse("%s is %v; give whole milliseconds, at least %v", what, d, least)
		}
	}
	w := j.Plan.Window
	whole("the disorder", j.Plan.Disorder, 0)
	whole("the allowed lateness", w.Lateness, 0)
	switch w.Kind {
	case NoWindow:
	case Tumbling:
		whole("window size", w.Size, time.Millisecond)
	case Sliding:
		whole("window size", w.Size, time.Millisecond)
		whole("the time between windows", w.Every, time.Millisecond)
		if w.Every > 0 && w.Size%w.Every != 0 {
			refuse("window size %v is no multiple of %v", w.Size, w.Every)
		}
	case Session:
		whole("session gap", w.Gap, time.Millisecond)
		if w.Lateness != 0 {
			refuse("sessions have no allowed lateness")
		}
	default:
		refuse("there are no windows of kind %q", w.Kind)
	}
	if (w.Kind == NoWindow) != (len(j.Results) == 0) && len(j.Results) != 0 {
		refuse("results without a window")
	}
	if w.Kind != NoWindow && len(j.Passed) != 0 {
		refuse("records pass through a window")
	}
	for _, f := range j.Plan.Folds {
		if err := f.Check(); err != nil {
			errs = append(errs, err)
		}
	}
	if (j.Dead != nil) != (j.Plan.OnBad == BadKept) {
		refuse("dead letters need an output, and only they have one")
	}
	return errors.Join(errs...)
}
