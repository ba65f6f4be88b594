package processor

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/checkpoint"
	"github.com/unisink/unisink/processor/stream"
)

// epochLoop is one generation of a pipeline, cut into steps: a batch, silence, the end of the source,
// a barrier. Each step leaves everything it owes either written to the branches of the epoch or in
// the state. One goroutine takes the steps; after an error it is spent.
type epochLoop struct {
	op        operator
	out       *outbox
	snap      *checkpoint.Snapshots
	run       participant.Run
	limit     int // bytes of inline state in a vote
	positions map[stream.Split]*place
	// drained notes at a position that the pipeline was drained there; nil: the source has no such note.
	drained func(stream.Position) stream.Position
	// worked: the coordinator knows that this epoch has something to make a barrier for.
	worked bool
	ended  bool
	// last is the newest epoch that was voted for, through the first that holds all that the source had, once whole.
	last, through uint64
	whole         bool
}

// place is how far a split has been read, and how far it goes.
type place struct {
	at        participant.Position
	highWater int64 // -1 unknown
}

func newEpochLoop(op operator, sinks []namedSink, snap *checkpoint.Snapshots) *epochLoop {
	e := &epochLoop{op: op, out: newOutbox(sinks), snap: snap, positions: map[stream.Split]*place{}}
	e.out.branch = func(ctx context.Context, resource string) (participant.Branch, error) {
		return e.run.Branch(ctx, resource)
	}
	return e
}

// batch takes a batch through the window; it was waited for that many milliseconds. What becomes due is fired.
func (e *epochLoop) batch(ctx context.Context, b *stream.Batch, waited int64) error {
	if err := e.op.process(ctx, b, waited, e.out); err != nil {
		return err
	}
	p, known := e.positions[b.Split]
	if !known {
		p = &place{}
		e.positions[b.Split] = p
	}
	// The epoch is worth a barrier when a source moved, whatever became of the records; or when a split
	// has a position for the first time, which for a source that begins at "now" must not be lost.
	moved := !known || len(b.Records) > 0 || p.at.Offset != b.Next.Offset
	opaque := p.at.Opaque
	if !bytes.Equal(opaque, b.Next.Opaque) {
		opaque = bytes.Clone(b.Next.Opaque)
	}
	p.at = participant.Position{
		Resource: b.Split.Resource, Split: b.Split.ID,
		Offset: b.Next.Offset, LeaderEpoch: b.Next.LeaderEpoch, Opaque: opaque,
	}
	p.highWater = b.HighWater
	if moved {
		e.work()
	}
	return e.fire(ctx)
}

// silence says that the source was asked for that many milliseconds and had nothing.
func (e *epochLoop) silence(ctx context.Context, waited int64) error {
	e.op.silent(waited)
	e.run.Progress(e.lag(), false)
	return e.fire(ctx)
}

// end says that the source has ended: every window fires, as work of an ordinary epoch.
func (e *epochLoop) end(ctx context.Context) error {
	e.ended = true
	e.op.end()
	if err := e.fire(ctx); err != nil {
		return err
	}
	e.run.Progress(0, true)
	e.noteEnd()
	return nil
}

// noteEnd notes, once the source has ended, the epoch that holds all that it had: the last that was voted for, if
// nothing has happened since.
func (e *epochLoop) noteEnd() {
	if e.ended && !e.worked && !e.whole {
		e.whole, e.through = true, e.last
	}
}

// fire writes what is due to the sinks.
func (e *epochLoop) fire(ctx context.Context) error {
	before := e.op.counts()
	if err := e.op.fire(ctx, e.out); err != nil {
		return err
	}
	if !mutant.On("processor/results-before-vote") {
		if err := e.out.flush(ctx); err != nil {
			return err
		}
	}
	if e.op.counts() != before {
		e.work()
	}
	return nil
}

// barrier cuts the stream behind the last record that was taken: positions, state and the branches of
// the sinks become one vote. Work on the next epoch may begin when it returns.
func (e *epochLoop) barrier(ctx context.Context, b participant.Barrier) error {
	if b.Drain {
		e.op.end()
		if err := e.fire(ctx); err != nil {
			return err
		}
		e.noteDrain()
	}
	snap, err := e.snap.Take(ctx, b, e.op.meta(nil), e.op.keyed(), e.limit)
	if err != nil {
		return fmt.Errorf("snapshot of epoch %d.%d: %w", b.Generation, b.N, err)
	}
	e.out.voted()
	e.worked = false
	if err := e.run.Vote(ctx, b, participant.Contribution{Positions: e.cut(), Parts: snap.Parts, Ready: snap.Ready}); err != nil {
		return fmt.Errorf("vote for epoch %d.%d: %w", b.Generation, b.N, err)
	}
	e.run.Progress(e.lag(), e.ended)
	e.last = b.N
	e.noteEnd()
	return nil
}

// noteDrain notes in every position that windows have fired there that would have had more records.
func (e *epochLoop) noteDrain() {
	if e.drained == nil {
		return
	}
	for split, p := range e.positions {
		n := e.drained(stream.Position{Split: split, Offset: p.at.Offset, LeaderEpoch: p.at.LeaderEpoch, Opaque: p.at.Opaque})
		p.at.Opaque = n.Opaque
	}
}

// cut lists the positions of all splits.
func (e *epochLoop) cut() []participant.Position {
	out := make([]participant.Position, 0, len(e.positions))
	for _, p := range e.positions {
		at := p.at
		at.Opaque = slices.Clone(at.Opaque)
		out = append(out, at)
	}
	slices.SortFunc(out, func(a, b participant.Position) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Split, b.Split))
	})
	return out
}

// lag is how many records are left to read, -1 when that is not known of every split.
func (e *epochLoop) lag() int64 {
	var lag int64
	for _, p := range e.positions {
		if p.highWater < 0 {
			return -1
		}
		lag += max(0, p.highWater-p.at.Offset)
	}
	return lag
}

// work tells the coordinator once per epoch that there is something to make an epoch of.
func (e *epochLoop) work() {
	if !e.worked {
		e.worked = true
		e.run.HasWork()
	}
}

// status is what tools are shown.
func (e *epochLoop) status() Status {
	s := Status{Counters: e.op.counts(), Lag: e.lag(), Ended: e.ended}
	s.Watermark, s.Idle = e.op.watermark()
	return s
}
