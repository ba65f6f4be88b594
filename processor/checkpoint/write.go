package checkpoint

import (
	"context"
	"errors"
	"sync"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/processor/state"
)

// slots is how many parts may be on their way to the store, and so in memory, at once.
const slots = 4

// writer compresses parts and puts them into the store, beside the epoch loop.
type writer struct {
	store state.Store
	free  chan *slot
	group sync.WaitGroup
}

// slot has the memory that one part needs on its way.
type slot struct {
	frames  state.Framer
	payload []byte
	frame   []byte
}

// write is one part on its way. Err is set before done is closed.
type write struct {
	done chan struct{}
	err  error
}

var errUnfinished = errors.New("the part was not written")

func newWriter(store state.Store) *writer {
	w := &writer{store: store, free: make(chan *slot, slots)}
	for range slots {
		w.free <- new(slot)
	}
	return w
}

// slot waits for memory for a part.
func (w *writer) slot(ctx context.Context) (*slot, error) {
	select {
	case s := <-w.free:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// put writes what is in the slot, which is the writer's from then on.
func (w *writer) put(ctx context.Context, s *slot, kind state.Kind, id string) *write {
	p := &write{done: make(chan struct{}), err: errUnfinished}
	w.group.Go(func() {
		defer func() { w.free <- s }()
		defer close(p.done)
		frame, err := s.frames.AppendSealed(s.frame[:0], kind, s.payload)
		if err == nil {
			s.frame = frame
			fault.Point("checkpoint/before-put")
			err = w.store.Put(ctx, id, frame)
			fault.Point("checkpoint/after-put")
		}
		p.err = err
	})
	return p
}

// ready waits until all are durable.
func ready(ctx context.Context, writes []*write) error {
	var errs []error
	for _, p := range writes {
		select {
		case <-p.done:
			errs = append(errs, p.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errors.Join(errs...)
}
