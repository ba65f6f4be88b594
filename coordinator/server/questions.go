package server

import (
	"sync"
	"time"
)

// Questions about unknown transactions, per caller: each writes an entry into the log and a record
// that stays until the floor has passed it.
const (
	questionsPerSecond = 10
	questionsAtOnce    = 100
)

// quota gives each caller so many questions a second, and some more at once after a quiet time. A
// caller whose turn has not come is told when it will be: each that asks too early gets a later
// time than the one before, so that those who wait do not all come back at the same moment.
type quota struct {
	every time.Duration // between two questions of one caller
	burst int

	mu      sync.Mutex // guards the rest; held for memory only
	callers map[string]*account
	prune   int // number of callers at which the idle ones are forgotten
}

// account is one caller's. A question takes the place of one that is free since its time.
type account struct {
	free     time.Time // when the next question would be due at a steady pace
	promised time.Time // the last turn that somebody was told to wait for
}

// fewCallers are kept without looking for idle ones.
const fewCallers = 1024

func newQuota(perSecond float64, burst int) *quota {
	return &quota{
		every: time.Duration(float64(time.Second) / perSecond), burst: burst,
		callers: map[string]*account{}, prune: fewCallers,
	}
}

// take reports whether the caller may ask now, else how long it is to wait.
func (q *quota) take(caller string, now time.Time) (wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.callers[caller]
	if a == nil {
		q.forget(now)
		a = &account{}
		q.callers[caller] = a
	}
	// What is not used in a quiet time adds up to the burst, and no further.
	if full := now.Add(-time.Duration(q.burst-1) * q.every); a.free.Before(full) {
		a.free = full
	}
	if !a.free.After(now) {
		a.free = a.free.Add(q.every)
		return 0, true
	}
	turn := a.free
	if !a.promised.Before(turn) {
		turn = a.promised.Add(q.every)
	}
	// Nobody waits for longer than it takes to serve a full burst: who asks a thousand at once and
	// goes away must not leave a thousand turns behind.
	if last := a.free.Add(time.Duration(q.burst) * q.every); turn.After(last) {
		turn = last
	}
	a.promised = turn
	return turn.Sub(now), false
}

// forget drops callers whose account is as good as new; called with mu held.
func (q *quota) forget(now time.Time) {
	if len(q.callers) < q.prune {
		return
	}
	full := now.Add(-time.Duration(q.burst-1) * q.every)
	for caller, a := range q.callers {
		if !a.free.After(full) {
			delete(q.callers, caller)
		}
	}
	q.prune = max(fewCallers, 2*len(q.callers))
}
