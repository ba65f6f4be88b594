package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/cmd/bench/group"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// epochID is (generation, n).
type epochID struct{ generation, n uint64 }

// timeline is what the coordinator nodes tell of one pipeline.
type timeline struct {
	mu      sync.Mutex        // guards what follows
	decided map[epochID]int64 // Unix microseconds, on the node that was first
	failed  error

	stop context.CancelFunc
	work sync.WaitGroup
}

// watchEpochs follows a pipeline on every node until close.
func (l *lab) watchEpochs(ctx context.Context, pipeline string) *timeline {
	ctx, stop := context.WithCancel(ctx)
	t := &timeline{decided: map[epochID]int64{}, stop: stop}
	for _, n := range l.group.Nodes {
		t.work.Go(func() {
			if err := t.follow(ctx, n.Client, pipeline); err != nil && ctx.Err() == nil {
				t.mu.Lock()
				t.failed = errors.Join(t.failed, fmt.Errorf("watch node %s: %w", n.ID, err))
				t.mu.Unlock()
			}
		})
	}
	return t
}

func (t *timeline) follow(ctx context.Context, addr, pipeline string) error {
	cl, err := group.NewClient(addr)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // only this stream used it
	stream, err := cl.Events().Watch(ctx, &unisinkv1.WatchRequest{Pipeline: pipeline})
	if err != nil {
		return err
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		t.take(e)
	}
}

// take keeps the first time at which a decision was seen.
func (t *timeline) take(e *unisinkv1.Event) {
	if e.GetKind() != unisinkv1.EventKind_EVENT_KIND_DECIDED || e.GetEpoch() == nil {
		return
	}
	id := epochID{e.GetEpoch().GetGeneration(), e.GetEpoch().GetN()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.decided[id]; !ok || e.GetAtUs() < at {
		t.decided[id] = e.GetAtUs()
	}
}

// close stops the watching, and says whether it has seen everything.
func (t *timeline) close() error {
	t.stop()
	t.work.Wait()
	return t.failed
}

// firstAfter is the time of the first decision of a newer generation, Unix microseconds.
func (t *timeline) firstAfter(generation uint64) (first int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, at := range t.decided {
		if id.generation > generation && (!ok || at < first) {
			first, ok = at, true
		}
	}
	return first, ok
}

// between are the epochs that were decided in a time.
func (t *timeline) between(from, to time.Time) map[epochID]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[epochID]int64{}
	for id, at := range t.decided {
		if at >= from.UnixMicro() && at <= to.UnixMicro() {
			out[id] = at
		}
	}
	return out
}
