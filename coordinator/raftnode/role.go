package raftnode

import (
	"log/slog"
	"sync"

	"github.com/unisink/unisink/internal/obs"
)

// Leadership is this node's role. Term tells two terms of leading apart.
type Leadership struct {
	Leader bool
	Term   uint64
}

// role keeps the node's latest Leadership and tells of changes.
type role struct {
	latest chan Leadership // capacity 1: what the reader has not seen yet

	mu      sync.Mutex // guards what follows
	now     Leadership
	changed chan struct{} // closed and replaced when now changes
}

// get returns the latest state, and what is closed when it changes.
func (r *role) get() (Leadership, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now, r.changed
}

// publish makes l the latest state. One goroutine calls it.
func (r *role) publish(log *slog.Logger, l Leadership) {
	r.mu.Lock()
	same := r.now == l
	if !same {
		r.now = l
		close(r.changed)
		r.changed = make(chan struct{})
	}
	r.mu.Unlock()
	if same {
		return
	}
	if l.Leader {
		log.Info("this node leads", obs.Term(l.Term))
	} else {
		log.Info("this node does not lead any more", obs.Term(l.Term))
	}
	select {
	case <-r.latest: // nobody has read the state before
	default:
	}
	r.latest <- l // has room: nobody else sends
}
