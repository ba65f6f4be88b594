package processor

import (
	"context"
	"errors"
	"fmt"

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

const (
	// maxEventTime bounds event times so that no sum of them overflows; about 36 million years.
	maxEventTime = 1 << 60
)

type windowOperator[T, A any] struct {
	in          *Stream[T]
	agg         Aggregate[T, A]
	fingerprint string
	windows     window.Tumbling
	keyGroups   uint32
	sinks       []output[A]
	late        *lateOutput[T]

	marks   window.Marks
	open    state.Windows[A]
	encoder state.Encoder[A]
	count   Counters
	// settled is the watermark up to which everything has fired, never MaxWatermark.
	settled stream.Watermark
	dirty   bool

	scratch scratch[T, A]
}

// scratch is used again for every record and result.
type scratch[T, A any] struct {
	rec    T
	key    []byte
	result Result[A]
}

func newWindowOperator[T, A any](w *Windowed[T, A], keyGroups uint32) *windowOperator[T, A] {
	return &windowOperator[T, A]{
		in: w.in, agg: w.agg, fingerprint: w.operatorFingerprint(),
		windows:   window.Tumbling{Size: w.size.Milliseconds()},
		keyGroups: keyGroups, sinks: w.sinks, late: w.late,
		marks: window.Marks{Disorder: w.disorder.Milliseconds(), IdleAfter: w.idleAfter.Milliseconds()},
	}
}

func (o *windowOperator[T, A]) reset(splits []stream.Split) {
	o.marks.Reset(splits, nil, stream.MinWatermark)
	o.open.Reset()
	o.count = Counters{}
	o.settled = stream.MinWatermark
	o.dirty = true
}

func (o *windowOperator[T, A]) process(ctx context.Context, b *stream.Batch, waited int64, out *outbox) error {
	split := o.marks.Add(b.Split)
	o.marks.Heard(split, b.HighWater > b.Next.Offset)
	o.marks.Waited(split, waited)
	for i := range b.Records {
		in := &b.Records[i]
		o.count.Records++
		err := o.record(ctx, split, in, out)
		switch {
		case err == nil:
		case o.in.skip && !errors.Is(err, errOutbox):
			o.count.Skipped++
		default:
			return fmt.Errorf("record of topic %q, partition %d, offset %d: %w", in.Topic, in.Partition, in.Offset, err)
		}
	}
	if b.Ended {
		o.marks.End(split)
	}
	return nil
}

// record takes one record to exactly one of windows, late, filtered or an error.
func (o *windowOperator[T, A]) record(ctx context.Context, split int, in *stream.Record, out *outbox) error {
	in.EventTime = in.Time
	what, err := o.in.read(in, &o.scratch.rec)
	if err != nil {
		return err
	}
	at := in.EventTime
	if at <= -maxEventTime || at >= maxEventTime {
		return fmt.Errorf("its event time %d ms is out of range", at)
	}
	if what != keep {
		o.count.Filtered++
		if what == dropTimed || !o.in.timed {
			o.marks.Observe(split, at)
		}
		return nil
	}
	start := o.windows.Start(at)
	if o.windows.Fired(start, o.marks.Combined()) {
		if err := o.tooLate(ctx, in, out); err != nil {
			return err
		}
		o.count.Late++
		o.marks.Observe(split, at)
		return nil
	}
	key := o.in.key(o.scratch.key[:0], &o.scratch.rec)
	o.scratch.key = key
	table := o.open.At(start)
	acc, made := table.Upsert(state.Hash(key), key)
	if made {
		o.agg.Init(acc)
	}
	if err := o.agg.Add(acc, &o.scratch.rec); err != nil {
		if made {
			table.Undo()
		}
		return fmt.Errorf("key %q, window %d: %w", key, start, err)
	}
	o.dirty = true
	o.count.Windowed++
	o.marks.Observe(split, at)
	return nil
}

func (o *windowOperator[T, A]) tooLate(ctx context.Context, in *stream.Record, out *outbox) error {
	if o.late == nil {
		return nil
	}
	to := out.next(len(o.sinks))
	if err := o.late.encode(in, &o.scratch.rec, to); err != nil {
		out.undo(len(o.sinks))
		return fmt.Errorf("encode late record for sink %q: %w", o.late.name, err)
	}
	to.EventTime = in.EventTime
	return out.full(ctx, len(o.sinks))
}

func (o *windowOperator[T, A]) silent(waited int64) { o.marks.Waited(-1, waited) }

func (o *windowOperator[T, A]) end() { o.marks.EndAll() }

func (o *windowOperator[T, A]) fire(ctx context.Context, out *outbox) error {
	now := o.marks.Combined()
	for {
		start, ok := o.open.First()
		if !ok || !o.windows.Fired(start, now) {
			break
		}
		o.scratch.result.Window = o.windows.Window(start)
		if err := o.open.At(start).Sorted(func(key []byte, acc *A) error { return o.emit(ctx, key, acc, out) }); err != nil {
			return err
		}
		o.open.Drop(start)
		o.dirty = true
		o.settled = max(o.settled, stream.Watermark(o.scratch.result.Window.End))
	}
	if now != stream.MaxWatermark {
		o.settled = max(o.settled, now)
	}
	o.marks.Settle(o.settled)
	return nil
}

// emit writes one result to every sink.
func (o *windowOperator[T, A]) emit(ctx context.Context, key []byte, acc *A, out *outbox) error {
	o.count.Fired++
	r := &o.scratch.result
	r.Key, r.Value = key, *acc
	for i := range o.sinks {
		to := out.next(i)
		if err := o.sinks[i].encode(r, to); err != nil {
			return fmt.Errorf("encode key %q of window %d for sink %q: %w", key, r.Window.Start, o.sinks[i].name, err)
		}
		to.EventTime = r.Window.End - 1
		if err := out.full(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (o *windowOperator[T, A]) counts() Counters { return o.count }

func (o *windowOperator[T, A]) watermark() (stream.Watermark, int) {
	return o.marks.Combined(), o.marks.Idle()
}
