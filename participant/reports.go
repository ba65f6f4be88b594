package participant

import (
	"context"
	"sync"
	"time"
)

// manyReports is how many may be under way at once; then whoever has one more waits. It bounds what a
// client whose coordinator is away keeps in memory, and what a crash leaves to the next Sweep.
const manyReports = 64

// reports are those that are made behind the back of callers. It is safe for concurrent use.
type reports struct {
	limit    time.Duration // of each
	slots    chan struct{}
	underWay *sync.WaitGroup
}

func newReports(limit time.Duration) reports {
	return reports{limit: limit, slots: make(chan struct{}, manyReports), underWay: &sync.WaitGroup{}}
}

// add has a report made. It outlives ctx, for the limit at most, and waits for room only while ctx
// lasts: what finds none is made by the caller, whose context has ended, and so mostly in vain.
func (r reports) add(ctx context.Context, report func(ctx context.Context)) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		report(ctx)
		return
	}
	r.underWay.Go(func() {
		defer func() { <-r.slots }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.limit)
		defer cancel()
		report(ctx)
	})
}

// wait returns when no report is under way, which takes the limit at most.
func (r reports) wait() { r.underWay.Wait() }
