package server

import (
	"sync"

	"github.com/unisink/unisink/internal/mutant"
)

// Each event wakes every watcher. Thousands of them would leave a leader no time to decide.
const (
	watchersOfOne = 32  // watchers that one caller may have on a node: a certificate or, in plain text, a host
	watchersOfAll = 256 // and all callers together
)

// watchers counts who watches events on this node.
type watchers struct {
	mu  sync.Mutex // guards the rest; held for memory only
	of  map[string]int
	all int
}

// enter counts a watcher in, and returns what counts it out.
func (w *watchers) enter(caller string) (leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case mutant.On("server/few-watchers"):
	case w.of[caller] >= watchersOfOne:
		return nil, busy("%s watches the events of this node %d times already, and may not once more; end one of them", caller, w.of[caller])
	case w.all >= watchersOfAll:
		return nil, busy("%d watch the events of this node already, and it takes no more; watch those of another node, or try again later", w.all)
	}
	if w.of == nil {
		w.of = map[string]int{}
	}
	w.of[caller]++
	w.all++
	return func() { w.leave(caller) }, nil
}

func (w *watchers) leave(caller string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.of[caller]--; w.of[caller] == 0 {
		delete(w.of, caller)
	}
}
