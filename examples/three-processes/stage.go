package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/unisink/unisink/participant"
)

// stage is what the three tasks share: one goroutine that works from Start to Halted.
type stage struct {
	stop  context.CancelFunc // nil when nothing runs
	group sync.WaitGroup
}

// begin lets work run. If it fails the generation ends, and everybody restores: there is no other
// way out of an error, and no other is needed. A link that broke is such an error, since what was on
// its way is lost; the restore brings it again.
func (s *stage) begin(ctx context.Context, run participant.Run, work func(ctx context.Context) error) {
	// The generation outlives the call that starts it, and ends with Halted.
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.group.Go(func() {
		err := work(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, participant.ErrClosed) {
			return // done, or told to stop
		}
		run.Fail(err)
	})
}

// Halted ends the work and waits for it; links close and what they held is dropped.
func (s *stage) Halted(context.Context, string) error {
	if s.stop != nil {
		s.stop()
		s.group.Wait()
		s.stop = nil
	}
	return nil
}

// follower is a stage that other stages send to: it hears of barriers from its link and not from
// the coordinator.
type follower struct {
	stage
	inlet *inlet
}

// Barrier is never called: only sources are asked for barriers.
func (f *follower) Barrier(_ context.Context, b participant.Barrier) error {
	return fmt.Errorf("%w: barrier %d.%d was ordered from a stage that is no source", participant.ErrBug, b.Generation, b.N)
}

// consume reads the link of a generation, frame by frame, through the final barrier.
func (f *follower) consume(ctx context.Context, generation uint64, record func([]byte) error, barrier func(participant.Barrier) error) error {
	in, err := f.inlet.accept(ctx)
	if err != nil {
		return err
	}
	for {
		fr, err := in.read()
		switch {
		case err != nil:
			return err
		case fr.Record != nil:
			if err := record(fr.Record); err != nil {
				return err
			}
		case fr.Barrier == nil || fr.Barrier.Generation != generation:
			return fmt.Errorf("%w: the link of generation %d carries a second hello or another's barrier", errFrame, generation)
		default:
			if err := barrier(*fr.Barrier); err != nil || fr.Barrier.Final {
				return err
			}
		}
	}
}
