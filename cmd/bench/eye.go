package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/unisink/unisink/processor/stream"
)

// eye sees what becomes visible, that nothing does twice, and how long an event was felt.
type eye struct {
	partitions int

	mu       sync.Mutex // guards what follows
	at       []time.Time
	canaries []time.Time
	seen     []bool
	count    int
	written  int           // -1: writing goes on
	all      chan struct{} // closed when all that was written was seen

	event   time.Time
	visible time.Time
	passed  map[int32]time.Time // by partition
	felted  chan struct{}       // closed when the event is over
}

func newEye(partitions int) *eye {
	e := &eye{partitions: partitions, written: -1, all: make(chan struct{})}
	e.arm()
	return e
}

// arm says that the event happens now.
func (e *eye) arm() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.event, e.visible, e.passed, e.felted = time.Now(), time.Time{}, map[int32]time.Time{}, make(chan struct{})
}

// made notes that record n was made.
func (e *eye) made(_ int, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at, e.seen = append(e.at, at), append(e.seen, false)
}

// canary numbers the next one.
func (e *eye) canary() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.canaries = append(e.canaries, time.Now())
	return len(e.canaries) - 1
}

// total says how many records were written, when no more come.
func (e *eye) total(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.written = n
	e.look()
}

// take notes that a record is visible; it must be so for the first time.
func (e *eye) take(r *stream.Record, now time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if isCanary(r.Value) {
		n, err := strconv.Atoi(string(r.Value[len(canary):]))
		if err != nil || n >= len(e.canaries) {
			return fmt.Errorf("%q was never written", r.Value)
		}
		if _, known := e.passed[r.Partition]; !known && !e.canaries[n].Before(e.event) {
			e.passed[r.Partition] = now
			e.look()
		}
		return nil
	}
	id, err := idOf(r.Value)
	switch {
	case err != nil:
		return err
	case id >= len(e.at):
		return fmt.Errorf("record %d came out, and %d went in", id, len(e.at))
	case e.seen[id]:
		return fmt.Errorf("record %d came out twice, the second time at %s/%d, offset %d", id, r.Topic, r.Partition, r.Offset)
	}
	e.seen[id] = true
	e.count++
	if e.visible.IsZero() && !e.at[id].Before(e.event) {
		e.visible = now
	}
	e.look()
	return nil
}

// look closes what is over. The caller holds mu.
func (e *eye) look() {
	if !e.visible.IsZero() && len(e.passed) == e.partitions && !isClosed(e.felted) {
		close(e.felted)
	}
	if e.count == e.written && !isClosed(e.all) {
		close(e.all)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// over is closed when the event that was armed last is over.
func (e *eye) over() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.felted
}

// felt is how long it was felt.
func (e *eye) felt() (visible, unblocked time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, at := range e.passed {
		unblocked = max(unblocked, at.Sub(e.event))
	}
	return e.visible.Sub(e.event), unblocked
}

// awaitAll returns when all that was written has been seen.
func (e *eye) awaitAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, visibleWait)
	defer cancel()
	select {
	case <-e.all:
		return nil
	case <-ctx.Done():
		e.mu.Lock()
		defer e.mu.Unlock()
		return fmt.Errorf("%d of %d records came out: %w", e.count, e.written, context.Cause(ctx))
	}
}
