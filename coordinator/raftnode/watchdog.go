package raftnode

import (
	"sync"
	"time"
)

// watchdogSteps is how many parts the watchdog's limit is counted in.
const watchdogSteps = 8

// watchdog calls bark, once, unless it is stopped within its limit. It counts the limit in steps: of
// a time in which the whole process stood still (a stopped process, a frozen machine) no more than
// one step counts, since that time says nothing about the disk.
type watchdog struct {
	step time.Duration
	bark func()

	mu    sync.Mutex // guards the rest; never held across bark
	timer *time.Timer
	left  int
	over  bool
}

func startWatchdog(limit time.Duration, bark func()) *watchdog {
	w := &watchdog{step: limit / watchdogSteps, bark: bark, left: watchdogSteps}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.step, w.count)
	return w
}

func (w *watchdog) count() {
	w.mu.Lock()
	w.left--
	due := w.left == 0 && !w.over
	if w.left > 0 && !w.over {
		w.timer.Reset(w.step)
	}
	w.mu.Unlock()
	if due {
		w.bark()
	}
}

// stop ends the watch; bark may be running already.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}
