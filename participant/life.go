package participant

import (
	"context"
	"sync"

	"github.com/cenkalti/backoff/v5"

	"github.com/unisink/unisink/participant/route"
)

// life is a group of goroutines that end together.
type life struct {
	// spawn starts f in the group. Not to be called once wait may have been: callers check, under
	// their own lock, that the life was not ended.
	spawn func(f func(ctx context.Context))
	// end cancels the context that the group's goroutines were given.
	end context.CancelCauseFunc
	// wait returns when all of them have returned.
	wait func()
}

func newLife(ctx context.Context) *life {
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	return &life{
		spawn: func(f func(context.Context)) { group.Go(func() { f(ctx) }) },
		end:   cancel,
		wait:  group.Wait,
	}
}

// over ends a life and waits for it.
func (l *life) over(cause error) {
	l.end(cause)
	l.wait()
}

// run lets f run in the group and waits for it.
func (l *life) run(f func(ctx context.Context) error) error {
	done := make(chan error, 1)
	l.spawn(func(ctx context.Context) { done <- f(ctx) })
	return <-done
}

// newResourceBackOff is how calls to resources wait between tries: 20 ms growing to 1 s, scattered by
// half. A resource that is back is used about a second later at most, for readers wait for its commits.
func newResourceBackOff() *backoff.ExponentialBackOff { return route.NewBackOff() }
