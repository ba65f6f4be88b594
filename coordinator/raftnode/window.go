package raftnode

import "context"

// crowd is how many proposals are worth a second entry beside one that is on its way.
const crowd = 32

// window is the entries that are on their way.
type window struct {
	places chan struct{} // holds a token for each; capacity: how many may be
	moved  chan struct{} // capacity 1: one has come back, or a crowd waits
}

func newWindow(entries int) window {
	return window{places: make(chan struct{}, entries), moved: make(chan struct{}, 1)}
}

// leave gives a place back.
func (w window) leave() {
	<-w.places
	w.move()
}

// move has company look again.
func (w window) move() {
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// company waits while an entry is on its way beside the place that its caller holds, and no crowd is there.
func (w window) company(ctx context.Context, crowded func() bool) {
	for len(w.places) > 1 && !crowded() && ctx.Err() == nil {
		select {
		case <-w.moved:
		case <-ctx.Done():
		}
	}
}
