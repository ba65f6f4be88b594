package processor

import (
	"context"
	"fmt"

	"github.com/unisink/unisink/internal/veil"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/window"
)

// sessionOperator keeps the open sessions of all keys.
type sessionOperator[T, A any] struct {
	windowing[T, A]
	gap  int64 // milliseconds
	open state.Sessions[A]
	view state.Keyed
	fold state.Fold[A] // of the record at hand
}

func newSessionOperator[T, A any](w *Windowed[T, A], keyGroups uint32) *sessionOperator[T, A] {
	o := &sessionOperator[T, A]{windowing: newWindowing(w, keyGroups), gap: w.shape.size.Milliseconds()}
	o.view = state.OfSessions(&o.open, keyGroups, o.agg.Encode, o.agg.Decode)
	o.fold = state.Fold[A]{
		Init: o.agg.Init, Merge: o.agg.Merge,
		Add: func(acc *A) error { return o.agg.Add(acc, &o.rec) },
	}
	return o
}

func (o *sessionOperator[T, A]) reset(splits []stream.Split) {
	o.resetTime(splits)
	o.open.Reset()
}

func (o *sessionOperator[T, A]) process(ctx context.Context, b *stream.Batch, waited int64, out *outbox) error {
	split := o.heard(b, waited)
	if err := o.each(ctx, b, out, func(in *stream.Record) error { return o.record(ctx, split, in, out) }); err != nil {
		return err
	}
	if b.Ended {
		o.marks.End(split)
	}
	return nil
}

// record takes one record to exactly one of a session, late, filtered or an error, which leaves all as it
// was. Sessions that are over take nothing, though they may fire behind the batch only.
func (o *sessionOperator[T, A]) record(ctx context.Context, split int, in *stream.Record, out *outbox) error {
	if ok, err := o.due(split, in); !ok {
		return err
	}
	o.key = o.in.key(o.key[:0], &o.rec)
	over := window.SessionsOver(o.marks.Combined())
	span, late, err := o.open.Add(state.Hash(o.key), o.key, in.EventTime, o.gap, over, &o.fold)
	switch {
	case err != nil:
		return &badRecord{fmt.Errorf("%s, session from %d to %d: %w", veil.Key(o.key), span.Start, span.End, err)}
	case late:
		return o.tooLate(ctx, split, in, out)
	}
	o.count.Windowed++
	o.marks.Observe(split, in.EventTime)
	return nil
}

func (o *sessionOperator[T, A]) fire(ctx context.Context, out *outbox) error {
	now := o.marks.Combined()
	err := o.open.Fire(window.SessionsOver(now), func(key []byte, span state.Span, acc *A) error {
		o.settled = max(o.settled, window.SessionOverAt(span.End))
		o.result.Window = stream.Window(span)
		return o.emit(ctx, key, acc, false, out)
	})
	if err != nil {
		return err
	}
	if now != stream.MaxWatermark {
		o.settled = max(o.settled, now)
	}
	o.marks.Settle(o.settled)
	return nil
}

func (o *sessionOperator[T, A]) keyed() state.Keyed { return o.view }

func (o *sessionOperator[T, A]) meta(dst []byte) []byte { return o.metaOfTime(dst) }

func (o *sessionOperator[T, A]) restore(meta []byte, splits []stream.Split) error {
	o.reset(splits)
	d := state.Decoder{Rest: meta}
	_, err := o.restoreTime(&d, splits)
	return err
}
