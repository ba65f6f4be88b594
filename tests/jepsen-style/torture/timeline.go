package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// What the nodes' logs call things.
const (
	saidVote    = "vote"
	saidDecided = "decided"
	saidProven  = "proven"
	saidOpened  = "generation opened"
	saidStarted = "generation started"
	saidClosed  = "generation closed"
	saidHalted  = "halted"
	saidBroken  = "heuristic"
	votedYes    = "yes"
)

// epoch is one, as logs write it.
type epoch struct{ generation, n uint64 }

func (e epoch) String() string { return fmt.Sprintf("%d.%d", e.generation, e.n) }

func parseEpoch(s string) (e epoch, ok bool) {
	n, err := fmt.Sscanf(s, "%d.%d", &e.generation, &e.n)
	return e, err == nil && n == 2
}

// timeline is what the logs of all nodes say, each fact at the first time that anyone logged it.
type timeline struct {
	mu       sync.Mutex // guards the rest
	files    []*rig.Tail
	votes    map[epoch]time.Time // with branches to commit
	readOnly map[epoch]time.Time
	decided  map[epoch]time.Time
	proven   map[epoch]time.Time
	opened   map[uint64]time.Time
	started  map[uint64]time.Time
	closed   map[uint64]time.Time
	alarms   []string // halts and heuristic outcomes
}

func newTimeline(files ...string) *timeline {
	t := &timeline{
		votes: map[epoch]time.Time{}, readOnly: map[epoch]time.Time{}, decided: map[epoch]time.Time{}, proven: map[epoch]time.Time{},
		opened: map[uint64]time.Time{}, started: map[uint64]time.Time{}, closed: map[uint64]time.Time{},
	}
	for _, name := range files {
		t.files = append(t.files, &rig.Tail{Path: name})
	}
	return t
}

// update reads what the logs have more than last time.
func (t *timeline) update() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.files {
		if err := f.Lines(t.line); err != nil {
			return err
		}
	}
	return nil
}

// line takes one line in. What does not parse was torn by a kill, or is no line of ours.
func (t *timeline) line(line []byte) {
	var l struct {
		Time             time.Time
		Msg, Epoch, Text string
	}
	if json.Unmarshal(line, &l) != nil {
		return
	}
	e, ok := parseEpoch(l.Epoch)
	switch l.Msg {
	case saidHalted, saidBroken:
		t.alarms = append(t.alarms, fmt.Sprintf("%s %s %s: %s", l.Time.Format(clock), l.Msg, l.Epoch, l.Text))
	}
	if !ok {
		return
	}
	switch l.Msg {
	case saidVote:
		if l.Text == votedYes {
			first(t.votes, e, l.Time)
		} else {
			first(t.readOnly, e, l.Time)
		}
	case saidDecided:
		first(t.decided, e, l.Time)
	case saidProven:
		first(t.proven, e, l.Time)
	case saidOpened:
		first(t.opened, e.generation, l.Time)
	case saidStarted:
		first(t.started, e.generation, l.Time)
	case saidClosed:
		first(t.closed, e.generation, l.Time)
	}
}

func first[K comparable](m map[K]time.Time, k K, at time.Time) {
	if old, ok := m[k]; !ok || at.Before(old) {
		m[k] = at
	}
}

// moment is what the logs show to have been under way at a time.
type moment struct {
	RoundOpen  bool `json:"round_open"` // a vote was in and nothing decided
	Unfinished bool `json:"unfinished"` // an epoch with branches was decided and not proven
	Restoring  bool `json:"restoring"`  // the newest generation was open and had not started
}

// at says what was under way at a time.
func (t *timeline) at(when time.Time) (m moment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := func(x time.Time, ok bool) bool { return ok && x.Before(when) }
	for e, voted := range t.votes {
		decided, isDecided := t.decided[e]
		closed, isClosed := t.closed[e.generation]
		proven, isProven := t.proven[e]
		switch {
		case !voted.Before(when) && !before(decided, isDecided):
		case !before(decided, isDecided):
			m.RoundOpen = m.RoundOpen || !before(closed, isClosed)
		case !before(proven, isProven):
			m.Unfinished = true
		}
	}
	for g, opened := range t.opened {
		started, isStarted := t.started[g]
		closed, isClosed := t.closed[g]
		if opened.Before(when) && !before(started, isStarted) && !before(closed, isClosed) {
			m.Restoring = true
		}
	}
	return m
}

// decidedIn counts the epochs that were decided after one time and before another.
func (t *timeline) decidedIn(from, to time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, at := range t.decided {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// age is how long the newest generation has been running; 0 if it has not started, or is closed.
func (t *timeline) age(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var newest uint64
	for g := range t.opened {
		newest = max(newest, g)
	}
	started, isStarted := t.started[newest]
	if _, isClosed := t.closed[newest]; isClosed || !isStarted {
		return 0
	}
	return now.Sub(started)
}

func (t *timeline) decidedAt(e epoch) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.decided[e]
	return at, ok
}

// totals are the decided epochs, the generations, and what should never be logged.
func (t *timeline) totals() (epochs, generations int, alarms []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.decided), len(t.opened), append([]string(nil), t.alarms...)
}

// open returns the decided epochs with branches that nobody has proven.
func (t *timeline) open() (left []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.votes {
		if _, decided := t.decided[e]; !decided {
			continue
		}
		if _, proven := t.proven[e]; !proven {
			left = append(left, e.String())
		}
	}
	return left
}

// firstDecidedAfter returns when the first epoch after a time was decided.
func (t *timeline) firstDecidedAfter(when time.Time) (best time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range t.decided {
		if at.After(when) && (!ok || at.Before(best)) {
			best, ok = at, true
		}
	}
	return best, ok
}
