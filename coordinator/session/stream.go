package session

import (
	"context"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// maxQueue bounds the orders that wait for a member to read them; a member that is further
// behind attaches again, and is told anew what counts.
const maxQueue = 1024

// stream is one attachment: the orders on their way to one process. What the process said when it
// attached is never changed.
type stream struct {
	req      *unisinkv1.AttachRequest
	instance string

	mu     sync.Mutex // guards what follows; held for memory only
	queue  []queued
	ended  bool
	err    error         // what the stream ends with, once the queue is empty
	signal chan struct{} // holds one: something changed

	// The actor's own:
	told    string // the last words of Waiting
	stopped bool   // Stop was said
}

type queued struct {
	at    time.Time
	order *unisinkv1.Order
}

func newStream(req *unisinkv1.AttachRequest) *stream {
	return &stream{req: req, instance: req.GetInstance(), signal: make(chan struct{}, 1)}
}

// push appends an order; it never blocks. Nothing is added to a stream that has ended.
func (a *stream) push(o *unisinkv1.Order) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	if len(a.queue) >= maxQueue {
		a.queue = nil
		a.ended, a.err = true, refuse(grpcerr.Slow, nil, "%d orders were not read; attach again", maxQueue)
	} else {
		a.queue = append(a.queue, queued{at: time.Now(), order: o})
	}
	a.notify()
}

// end lets the stream end with err behind what is queued. The first end counts; it reports
// whether this is it.
func (a *stream) end(err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	a.ended, a.err = true, err
	a.notify()
	return true
}

func (a *stream) notify() {
	select {
	case a.signal <- struct{}{}:
	default:
	}
}

// next is the oldest order that is not sent; done says that there will be none any more.
func (a *stream) next() (o *unisinkv1.Order, done bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) > 0 {
		return a.queue[0].order, false, nil
	}
	return nil, a.ended, a.err
}

// sent takes the oldest order off the queue, unless the queue was dropped meanwhile.
func (a *stream) sent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) > 0 {
		a.queue[0] = queued{}
		a.queue = a.queue[1:]
	}
}

// behind is how long the oldest order has been waiting to be sent.
func (a *stream) behind(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return 0
	}
	return now.Sub(a.queue[0].at)
}

// pump sends orders until the stream ends, its context does, or the leadership is over.
func (a *stream) pump(ctx context.Context, over <-chan struct{}, send func(*unisinkv1.Order) error) error {
	for {
		o, done, err := a.next()
		switch {
		case o != nil:
			if err := send(o); err != nil {
				return err
			}
			a.sent()
			continue
		case done:
			return err
		}
		select {
		case <-a.signal:
		case <-ctx.Done():
			return ctxStatus(ctx.Err())
		case <-over:
			return errOver
		}
	}
}
