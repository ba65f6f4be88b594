package house

import (
	"bufio"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// Book is the history of a run on disk, one line an event, in the order in which they happened. Its
// methods may be called from anywhere at any time.
type Book struct {
	began time.Time

	mu     sync.Mutex // guards the rest; held while a line is put into the buffer
	f      *os.File
	w      *bufio.Writer
	err    error // the first one; nothing is written after it
	calls  uint64
	open   map[uint64]check.Event // calls without an answer
	count  Count
	listen func(check.Event)
}

// Count is how much of what is in the book.
type Count struct {
	Calls, Unknown, Committed, Aborted int
}

// NewBook begins a book at path.
func NewBook(path string) (*Book, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("begin the history: %w", err)
	}
	return &Book{began: time.Now(), f: f, w: bufio.NewWriterSize(f, 1<<20), open: map[uint64]check.Event{}}, nil
}

// Listen makes f see every event after it was written; f must not block and not write.
func (b *Book) Listen(f func(check.Event)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listen = f
}

// Now is the time since the run began.
func (b *Book) Now() time.Duration { return time.Since(b.began) }

// Since tells when something happened by its time of day.
func (b *Book) Since(t time.Time) time.Duration { return t.Sub(b.began) }

// Add stamps an event and writes it down. An Invoke is numbered, and its number returned.
func (b *Book) Add(e check.Event) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.add(e)
}

// Dead answers calls whose caller has died: nobody will ever know more than that they were made.
func (b *Book) Dead(calls iter.Seq[uint64]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for call := range calls {
		if e, open := b.open[call]; open {
			e.Kind, e.Answer, e.Text = check.Return, check.AnswerUnknown, "the caller died"
			b.add(e)
		}
	}
}

// add is called with mu held.
func (b *Book) add(e check.Event) uint64 {
	e.At = b.Now()
	//exhaustive:ignore
	switch e.Kind {
	case check.Invoke:
		b.calls++
		e.Call = b.calls
		b.count.Calls++
		b.open[e.Call] = e
	case check.Return:
		delete(b.open, e.Call)
		//exhaustive:ignore
		switch e.Answer {
		case check.AnswerUnknown:
			b.count.Unknown++
		case check.AnswerCommitted:
			b.count.Committed++
		case check.AnswerAborted:
			b.count.Aborted++
		}
	}
	if b.err == nil {
		b.err = check.Write(b.w, e)
	}
	if b.listen != nil {
		b.listen(e)
	}
	return e.Call
}

// Count tells how much was written down.
func (b *Book) Count() Count {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// Close ends the book. The error is the first that writing it met.
func (b *Book) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.err, b.w.Flush(), b.f.Close())
}

// Load reads a book.
func Load(path string) (_ []check.Event, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	return check.Read(f)
}
