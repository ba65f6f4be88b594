package fleet

import (
	"fmt"
	"sync"
	"time"
)

// Decision is one that a writer was told.
type Decision struct {
	// Told is when, and Took how long before that everything was prepared.
	Told time.Time
	Took time.Duration
}

// Writer is somebody who asks for decisions: a member, or a caller by hand.
type Writer struct {
	Name string

	mu     sync.Mutex // guards what follows; held for memory only
	told   []Decision
	count  int
	begun  int      // generations
	halts  []string // why they ended
	failed []error
}

// Count is how many decisions it was told, since it began.
func (w *Writer) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Last is the newest decision; false if there was none, or Take has taken it.
func (w *Writer) Last() (Decision, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.told) == 0 {
		return Decision{}, false
	}
	return w.told[len(w.told)-1], true
}

// Pending is how many decisions Take would return.
func (w *Writer) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.told)
}

// Take returns the decisions since the last Take, and forgets them.
func (w *Writer) Take() []Decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return told
}

// Begun is how many generations a member was started in; more than one means that it had to begin again.
func (w *Writer) Begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun
}

// Halts are the reasons why generations of a member ended.
func (w *Writer) Halts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.halts
}

// Failed are the errors that the writer got.
func (w *Writer) Failed() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// Told notes a decision.
func (w *Writer) Told(d Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	w.told = append(w.told, d)
}

func (w *Writer) decided(prepared time.Time) {
	now := time.Now()
	w.Told(Decision{now, now.Sub(prepared)})
}

func (w *Writer) began() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun++
}

func (w *Writer) halted(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.halts = append(w.halts, why)
}

func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, fmt.Errorf("%s: %w", w.Name, err))
}
