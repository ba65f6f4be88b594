package processor

import (
	"context"
	"fmt"
	"sort"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/veil"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/window"
)

// operator is the typed middle of a pipeline as the epoch loop sees it: once per batch, not once per record.
type operator interface {
	flow
	remembering
	counts() Counters
	// watermark of all splits together, and how many of them are idle.
	watermark() (w stream.Watermark, idle int)
}

// flow takes records in and results out.
type flow interface {
	// process takes a batch that came after the source was asked for waited milliseconds.
	process(ctx context.Context, b *stream.Batch, waited int64, out *outbox) error
	// silent: the source was asked for that many milliseconds and had nothing.
	silent(waited int64)
	// end: the source has ended, or is taken for ended.
	end()
	// fire writes what is due, in the order of the windows' ends, then of keys.
	fire(ctx context.Context, out *outbox) error
}

// windowing is what operators with windows have in common: event time, late records, results.
type windowing[T, A any] struct {
	intake[T]
	agg         Aggregate[T, A]
	fingerprint string
	keyGroups   uint32
	sinks       []output[A]
	late        *lateOutput[T]

	marks window.Marks
	// settled is the watermark up to which everything has fired, never MaxWatermark.
	settled stream.Watermark

	key    []byte    // used again for every record
	result Result[A] // and this for every result
}

func newWindowing[T, A any](w *Windowed[T, A], keyGroups uint32) windowing[T, A] {
	sinks := len(w.sinks)
	if w.late != nil {
		sinks++
	}
	return windowing[T, A]{
		intake: newIntake(w.in, sinks), agg: w.agg, fingerprint: w.operatorFingerprint(),
		keyGroups: keyGroups, sinks: w.sinks, late: w.late,
		marks: window.Marks{Disorder: w.disorder.Milliseconds(), IdleAfter: w.idleAfter.Milliseconds()},
	}
}

func (o *windowing[T, A]) resetTime(splits []stream.Split) {
	o.marks.Reset(splits, nil, stream.MinWatermark)
	o.count = Counters{}
	o.settled = stream.MinWatermark
}

// heard says whose batch comes, and returns the split's index.
func (o *windowing[T, A]) heard(b *stream.Batch, waited int64) int {
	split := o.marks.Add(b.Split)
	o.marks.Heard(split, b.HighWater > b.Next.Offset)
	o.marks.Waited(split, waited)
	return split
}

// due reads a record and reports whether it goes on to a window; else it was filtered out.
func (o *windowing[T, A]) due(split int, in *stream.Record) (bool, error) {
	what, err := o.read(in)
	if err != nil {
		return false, err
	}
	at := in.EventTime
	if at <= -maxEventTime || at >= maxEventTime {
		return false, &badRecord{fmt.Errorf("its event time %d ms is out of range", at)}
	}
	if what == keep {
		return true, nil
	}
	o.count.Filtered++
	if what == dropTimed || !o.in.timed {
		o.marks.Observe(split, at)
	}
	return false, nil
}

// tooLate sends a record to the late output, if there is one.
func (o *windowing[T, A]) tooLate(ctx context.Context, split int, in *stream.Record, out *outbox) error {
	if o.late != nil && !mutant.On("processor/late-output") {
		to := out.next(len(o.sinks))
		to.Partition = in.Partition
		if err := o.late.encode(in, &o.rec, to); err != nil {
			out.undo(len(o.sinks))
			return &badRecord{fmt.Errorf("encode late record for sink %q: %w", o.late.name, err)}
		}
		to.EventTime = in.EventTime
		if err := out.full(ctx, len(o.sinks)); err != nil {
			return err
		}
	}
	o.count.Late++
	o.marks.Observe(split, in.EventTime)
	return nil
}

// emit writes one result, of the window in o.result, to every sink.
func (o *windowing[T, A]) emit(ctx context.Context, key []byte, acc *A, update bool, out *outbox) error {
	o.count.Fired++
	r := &o.result
	r.Key, r.Value, r.Update = key, *acc, update
	for i := range o.sinks {
		to := out.next(i)
		if err := o.sinks[i].encode(r, to); err != nil {
			return lasting(fmt.Errorf("encode the result of %s in window %d for sink %q: %w", veil.Key(key), r.Window.Start, o.sinks[i].name, err),
				"write its output so that it cannot fail")
		}
		to.EventTime = r.Window.End - 1
		if err := out.full(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (o *windowing[T, A]) silent(waited int64) { o.marks.Waited(-1, waited) }

func (o *windowing[T, A]) end() { o.marks.EndAll() }

func (o *windowing[T, A]) counts() Counters { return o.count }

func (o *windowing[T, A]) watermark() (stream.Watermark, int) {
	return o.marks.Combined(), o.marks.Idle()
}

// windowOperator keeps a table of accumulators per tumbling or sliding window.
type windowOperator[T, A any] struct {
	windowing[T, A]
	windows  window.Sliding
	lateness window.Lateness
	open     state.Windows[A]
	view     state.Keyed
	together together[T, A]
	touched  []touched[A] // used again for every record
}

// touched is an accumulator that a record is added to.
type touched[A any] struct {
	start int64
	acc   *A
	made  bool // by this record
}

func newWindowOperator[T, A any](w *Windowed[T, A], keyGroups uint32) *windowOperator[T, A] {
	o := &windowOperator[T, A]{
		windowing: newWindowing(w, keyGroups),
		windows:   window.Sliding{Size: w.shape.size.Milliseconds(), Every: w.shape.every.Milliseconds()},
		lateness:  window.Lateness{Allowed: w.lateness.Milliseconds()},
		together:  newTogether(w.agg),
	}
	o.view = state.OfWindows(&o.open, keyGroups, o.agg.Encode, o.agg.Decode)
	return o
}

func (o *windowOperator[T, A]) reset(splits []stream.Split) {
	o.resetTime(splits)
	o.open.Reset()
	o.lateness.Reset(stream.MinWatermark)
}

func (o *windowOperator[T, A]) process(ctx context.Context, b *stream.Batch, waited int64, out *outbox) error {
	split := o.heard(b, waited)
	if err := o.each(ctx, b, out, func(in *stream.Record) error { return o.record(ctx, split, in, out) }); err != nil {
		return err
	}
	if b.Ended {
		o.marks.End(split)
	}
	return nil
}

// record takes one record to exactly one of windows, late, filtered or an error, which leaves all as it was.
func (o *windowOperator[T, A]) record(ctx context.Context, split int, in *stream.Record, out *outbox) error {
	if ok, err := o.due(split, in); !ok {
		return err
	}
	now := o.marks.Combined()
	first, last, ok := o.windows.Open(in.EventTime, o.lateness.Closed(now))
	if !ok {
		return o.tooLate(ctx, split, in, out)
	}
	if o.windows.Fired(first, now) {
		// The record comes after the watermark has passed the end of that window, though the batch has not
		// ended yet: what is due must go out without it.
		if err := o.fireDue(ctx, now, out); err != nil {
			return err
		}
	}
	o.key = o.in.key(o.key[:0], &o.rec)
	if err := o.add(first, last); err != nil {
		return err
	}
	o.count.Windowed++
	o.marks.Observe(split, in.EventTime)
	for _, t := range o.touched {
		if !o.windows.Fired(t.start, now) {
			break
		}
		o.result.Window = o.windows.Window(t.start)
		if err := o.emit(ctx, o.key, t.acc, !t.made, out); err != nil {
			return err
		}
	}
	return nil
}

// add adds the record to the windows from first to last, or to none.
func (o *windowOperator[T, A]) add(first, last int64) error {
	hash := state.Hash(o.key)
	o.touched = o.touched[:0]
	for start := first; start <= last; start += o.windows.Every {
		t := touched[A]{start: start}
		if t.acc, t.made = o.open.At(start).Upsert(hash, o.key); t.made {
			o.agg.Init(t.acc)
		}
		o.touched = append(o.touched, t)
	}
	refused, err := o.together.add(o.touched, &o.rec)
	if err == nil {
		return nil
	}
	for _, t := range o.touched {
		if !t.made {
			continue
		}
		table := o.open.At(t.start)
		if table.Undo(); table.Len() == 0 {
			// A window that nothing is in must not fire at the end of time: it would make records late.
			o.open.Drop(t.start)
		}
	}
	return fmt.Errorf("%s, window %d: %w", veil.Key(o.key), o.touched[refused].start, err)
}

func (o *windowOperator[T, A]) fire(ctx context.Context, out *outbox) error {
	now := o.marks.Combined()
	if err := o.fireDue(ctx, now, out); err != nil {
		return err
	}
	if now == stream.MaxWatermark {
		// The end of time is the end of lateness too: nothing is kept. What comes behind it is late where
		// something has fired, and nowhere else.
		o.lateness.Close(o.settled)
	}
	closed := o.lateness.Closed(o.settled)
	for {
		start, ok := o.open.First()
		if !ok || !o.windows.Fired(start, closed) {
			break
		}
		o.open.Drop(start)
	}
	o.marks.Settle(o.settled)
	return nil
}

// fireDue writes the results of the windows whose end the watermark has passed since the last time.
func (o *windowOperator[T, A]) fireDue(ctx context.Context, now stream.Watermark, out *outbox) error {
	starts := o.open.Starts()
	next := sort.Search(len(starts), func(i int) bool { return !o.windows.Fired(starts[i], o.settled) })
	for ; next < len(starts) && o.windows.Fired(starts[next], now); next++ {
		o.result.Window = o.windows.Window(starts[next])
		err := o.open.At(starts[next]).Sorted(func(key []byte, acc *A) error { return o.emit(ctx, key, acc, false, out) })
		if err != nil {
			return err
		}
		o.settled = max(o.settled, stream.Watermark(o.result.Window.End))
	}
	if now != stream.MaxWatermark {
		o.settled = max(o.settled, now)
	}
	return nil
}
