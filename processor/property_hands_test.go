package processor

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// hands take a pipeline through the steps of a life.
type hands interface {
	start() error // what was restored
	batch(b *stream.Batch, waited int64) error
	silence(waited int64) error
	end() error
	barrier(b participant.Barrier) error
	retired() error
	halt()
}

// stepping calls the epoch loop, without goroutines.
type stepping struct{ *life }

func (s stepping) start() error {
	s.task.loop.run, s.task.loop.limit = s.run, s.scope.InlineLimit
	return nil
}

func (s stepping) batch(b *stream.Batch, waited int64) error {
	defer s.task.show()
	return s.task.loop.batch(s.ctx, b, waited)
}

func (s stepping) silence(waited int64) error {
	defer s.task.show()
	return s.task.loop.silence(s.ctx, waited)
}

func (s stepping) end() error {
	defer s.task.show()
	return s.task.loop.end(s.ctx)
}

func (s stepping) barrier(b participant.Barrier) error {
	defer s.task.show()
	return s.task.loop.barrier(s.ctx, b)
}

func (s stepping) retired() error {
	for {
		select {
		case ids := <-s.run.Retired():
			if err := s.task.snap.Retired(s.ctx, ids); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (stepping) halt() {}

// tasking lets the task run with its goroutines, in a bubble of virtual time, with no more than two
// epochs pending: where it is held back, the oldest one is decided and committed.
type tasking struct {
	*life
	heard *hearing
}

// hearing is a Run that counts what the task says.
type hearing struct {
	*processortest.Run
	votes atomic.Uint64
	ended atomic.Bool
}

func (h *hearing) Vote(ctx context.Context, b participant.Barrier, c participant.Contribution) error {
	defer h.votes.Add(1)
	return h.Run.Vote(ctx, b, c)
}

func (h *hearing) Progress(lag int64, ended bool) {
	h.ended.Store(ended)
	h.Run.Progress(lag, ended)
}

func (k *tasking) start() error {
	s := k.scope.Start()
	k.heard = &hearing{Run: k.run}
	s.Run = k.heard
	if err := k.task.Start(k.ctx, s); err != nil {
		return err
	}
	synctest.Wait()
	return nil
}

func (k *tasking) batch(b *stream.Batch, waited int64) error { return k.fed(fed{batch: b}, waited) }

func (k *tasking) silence(waited int64) error { return k.fed(fed{}, waited) }

// fed answers the Poll that waits, and waits for the next.
func (k *tasking) fed(f fed, waited int64) error {
	time.Sleep(milliseconds(waited)) // virtual
	asked := k.src.asked.Load()
	k.src.feed <- f
	return k.until(func() bool { return k.src.asked.Load() > asked })
}

func (k *tasking) end() error {
	k.src.feed <- fed{err: io.EOF}
	return k.until(k.heard.ended.Load)
}

func (k *tasking) barrier(b participant.Barrier) error {
	if err := k.task.Barrier(k.ctx, b); err != nil {
		return err
	}
	return k.until(func() bool { return k.heard.votes.Load() >= b.N })
}

var errStuck = errors.New("the task does nothing, though nothing is pending")

// until waits for the task to be done with a step.
func (k *tasking) until(done func() bool) error {
	for {
		synctest.Wait()
		if err := k.run.Err(); err != nil {
			return err
		}
		if done() {
			return nil
		}
		k.seen["held back"]++
		stuck := len(k.voted) == 0
		if err := errors.Join(k.decide(), k.scope.Finish(k.ctx)); err != nil {
			return err
		}
		if synctest.Wait(); stuck && !done() && k.run.Err() == nil {
			return errStuck
		}
	}
}

func (k *tasking) retired() error { return nil } // the task hears it by itself

func (k *tasking) halt() {
	_ = k.task.Halted(k.ctx, "killed")
}

// TestTasksLiveTheSameLives takes random lives through the task, with its goroutines, back-pressure and all.
func TestTasksLiveTheSameLives(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	lives := *propertyTrials / 8
	if testing.Short() {
		lives /= 4
	}
	if *propertySeed != 0 {
		seed, lives = *propertySeed, 1
	}
	held := 0
	fails := func(tr trial) error {
		l, err := livedBy(tr, sabotage{}, true)
		held += l.seen["held back"]
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		for n := range lives {
			tr := someTrial(seed+n, trialLength)
			if err := fails(tr); err != nil {
				small := shrink(tr, func(next trial) bool { return fails(next) != nil })
				t.Fatalf("-property.seed=%d: %v\n\nshrunk to\n%s\n%v", seed+n, err, small, fails(small))
			}
		}
	})
	if held < int(lives)/20 && lives > 1 {
		t.Errorf("held back %d times only in %d lives", held, lives)
	}
	t.Logf("%d lives from seed %d on, held back %d times", lives, seed, held)
}
