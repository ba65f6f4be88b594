package worker

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/stream"
)

// hand is the window job as somebody writes it who needs no guarantee: a map in a map, nothing that
// survives, nothing that is undone.
type hand struct {
	read    func(in *stream.Record, out *reading) error
	windows map[int64]map[string]*aggregate.Mean
	marks   map[stream.Split]int64 // the newest event time of each split
	fired   int64                  // the end through which windows were written
	out     []stream.Record
}

// runLoop does the job until its source ends or ctx does, neither of which is an error.
func (w *Worker) runLoop(ctx context.Context, to *kafka.PlainWriter) error {
	if err := w.source.Open(ctx, nil); err != nil {
		return err
	}
	h := &hand{read: decoder(), windows: map[int64]map[string]*aggregate.Mean{}, marks: map[stream.Split]int64{}}
	for _, s := range w.source.Splits() {
		h.marks[s] = math.MinInt64
	}
	for {
		b, err := w.source.Poll(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return h.fire(context.WithoutCancel(ctx), to, math.MaxInt64)
		case ctx.Err() != nil:
			return nil //nolint:nilerr // told to end: what is not written yet nobody was promised
		case err != nil:
			return err
		case b == nil:
			continue
		}
		if err := h.take(b); err != nil {
			return err
		}
		w.taken += uint64(len(b.Records))
		passed := int64(math.MaxInt64)
		for _, at := range h.marks {
			passed = min(passed, at)
		}
		if err := h.fire(ctx, to, passed); err != nil {
			return err
		}
	}
}

func (h *hand) take(b *stream.Batch) error {
	const size = int64(WindowSize / time.Millisecond)
	var r reading
	for i := range b.Records {
		if err := h.read(&b.Records[i], &r); err != nil {
			return err
		}
		start := r.at - r.at%size
		table := h.windows[start]
		if table == nil {
			table = map[string]*aggregate.Mean{}
			h.windows[start] = table
		}
		m := table[string(r.key)]
		if m == nil {
			m = new(aggregate.Mean)
			table[string(r.key)] = m
		}
		m.Sum += r.amount
		m.Count++
		h.marks[b.Split] = max(h.marks[b.Split], r.at)
	}
	return nil
}

// fire writes the windows that end at or before a time.
func (h *hand) fire(ctx context.Context, to *kafka.PlainWriter, passed int64) error {
	const size = int64(WindowSize / time.Millisecond)
	if passed < h.fired+size {
		return nil
	}
	for start, table := range h.windows {
		if start+size > passed {
			continue
		}
		h.fired = max(h.fired, start+size)
		h.out = h.out[:0]
		for key, m := range table {
			var r stream.Record
			appendResult(&r, []byte(key), stream.Window{Start: start, End: start + size}, m)
			h.out = append(h.out, r)
		}
		if err := to.Write(ctx, h.out); err != nil {
			return err
		}
		delete(h.windows, start)
	}
	return nil
}
