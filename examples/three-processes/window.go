package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/window"
)

// tumbling are the windows that records are gathered in.
var tumbling = window.Tumbling{Size: 100}

// total is the result of one window for one key. It keeps the numbers of its records, so that
// whoever reads the output can tell that each is there once.
type total struct {
	Key     string  `json:"key"`
	Start   int64   `json:"start"`
	Count   int64   `json:"count"`
	Sum     int64   `json:"sum"`
	Numbers []int64 `json:"numbers"`
}

// sums is the window's state: the open windows, and how far event time has come.
type sums struct {
	Watermark stream.Watermark            `json:"watermark"`
	Open      map[int64]map[string]*total `json:"open"` // by start and key
}

func newSums() *sums {
	return &sums{Watermark: stream.MinWatermark, Open: map[int64]map[string]*total{}}
}

// add takes a record in and returns what fires because of it, in a fixed order.
func (s *sums) add(r record) ([]*total, error) {
	start := tumbling.Start(r.At)
	if tumbling.Fired(start, s.Watermark) {
		return nil, fmt.Errorf("%w: record %d is later than the source promises", participant.ErrBug, r.N)
	}
	if s.Open[start] == nil {
		s.Open[start] = map[string]*total{}
	}
	t := s.Open[start][r.Key]
	if t == nil {
		t = &total{Key: r.Key, Start: start}
		s.Open[start][r.Key] = t
	}
	t.Count, t.Sum, t.Numbers = t.Count+1, t.Sum+r.N, append(t.Numbers, r.N)
	return s.advance(max(s.Watermark, stream.Watermark(r.At-disorder))), nil
}

// advance moves the watermark and returns what fires.
func (s *sums) advance(to stream.Watermark) []*total {
	s.Watermark = to
	var fired []*total
	for _, start := range slices.Sorted(maps.Keys(s.Open)) {
		if !tumbling.Fired(start, to) {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(s.Open[start])) {
			fired = append(fired, s.Open[start][key])
		}
		delete(s.Open, start)
	}
	return fired
}

// drain fires everything, and lets a later run go on behind it.
func (s *sums) drain() []*total {
	if len(s.Open) == 0 {
		return nil
	}
	last := slices.Max(slices.Collect(maps.Keys(s.Open)))
	return s.advance(stream.Watermark(tumbling.Window(last).End))
}

// windowTask gathers records and sends sums. It has nothing to commit: its share of an epoch is
// its state, which travels in its vote.
type windowTask struct {
	follower
	c    config
	sums *sums
}

func runWindow(ctx context.Context, c config) error {
	if err := need(map[string]string{"listen": c.listen, "to": c.to}); err != nil {
		return err
	}
	in, err := listen(c.listen, c.log)
	if err != nil {
		return err
	}
	defer in.close()
	m, err := participant.NewMember(c.member(memberWindow), &windowTask{follower: follower{inlet: in}, c: c})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// Restore takes the state of the restore point, and no link of an older generation from here on.
func (w *windowTask) Restore(_ context.Context, r participant.Restore) error {
	w.inlet.open(r.Generation)
	w.sums = newSums()
	for _, p := range r.Parts {
		if err := json.Unmarshal(p.Body, w.sums); err != nil {
			return fmt.Errorf("%w: state part %s: %w", participant.ErrMisconfigured, p.ID, err)
		}
	}
	return nil
}

// Start lets the window work.
func (w *windowTask) Start(ctx context.Context, s participant.Start) error {
	w.begin(ctx, s.Run, func(ctx context.Context) error { return w.work(ctx, s) })
	return nil
}

func (w *windowTask) work(ctx context.Context, s participant.Start) error {
	out, err := dial(ctx, w.c.to, s.Generation)
	if err != nil {
		return err
	}
	defer out.close()
	send := func(fired []*total) error {
		for _, t := range fired {
			if err := out.record(t); err != nil {
				return err
			}
		}
		return out.flush()
	}
	return w.consume(ctx, s.Generation, func(text []byte) error {
		var r record
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%w: record: %w", errFrame, err)
		}
		fired, err := w.sums.add(r)
		if err != nil || len(fired) == 0 {
			return err
		}
		return send(fired)
	}, func(b participant.Barrier) error {
		if b.Drain { // the source is at its end: what is open is complete
			if err := send(w.sums.drain()); err != nil {
				return err
			}
		}
		// What fired is before the barrier, what is open is in the vote; so every record of the
		// epoch is in one of the two.
		if err := out.barrier(b); err != nil {
			return err
		}
		state, err := json.Marshal(w.sums)
		if err != nil {
			return err
		}
		return s.Run.Vote(ctx, b, participant.Contribution{Parts: []participant.StatePart{{
			ID:       fmt.Sprintf("%s.%s.%d.%d", memberWindow, operator, b.Generation, b.N),
			Operator: operator, KeyGroupLast: keyGroups - 1, Body: state,
		}}})
	})
}
