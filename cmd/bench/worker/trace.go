package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/unisink/unisink/processor/state"
)

// What a trace tells.
const (
	// Opened: the source was opened at Places.
	Opened = "opened"
	// First: the first record of a split since then.
	First = "first"
	// Ordered: the barrier of an epoch.
	Ordered = "ordered"
	// Put: a part of the state is durable.
	Put = "put"
	// Got: a part of the state was read.
	Got = "got"
)

// Place is where a split is read.
type Place struct {
	Split  string `json:"split"`
	Offset int64  `json:"offset"`
}

// Event is one line of a trace.
type Event struct {
	AtUS   int64   `json:"at_us"` // Unix microseconds
	What   string  `json:"what"`
	Places []Place `json:"places,omitempty"`
	// Generation and N are the epoch of a barrier.
	Generation uint64 `json:"generation,omitempty"`
	N          uint64 `json:"n,omitempty"`
	// Part is the id of a part in the store, and Bytes its size there.
	Part  string `json:"part,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
	// Entries are the accumulators that were held when the part was durable, as far as this process has made them;
	// Encoded counts those that it has written to any part so far.
	Entries int64 `json:"entries,omitempty"`
	Encoded int64 `json:"encoded,omitempty"`
}

// trace is a file that a killed process leaves behind whole but for its last line.
type trace struct {
	mu   sync.Mutex // guards file
	file *os.File
}

func openTrace(name string) (*trace, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	return &trace{file: f}, nil
}

func (t *trace) tell(e Event) error {
	e.AtUS = time.Now().UnixMicro()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}

// ReadTrace reads what a process has told. A last line that was cut off by its death is left out.
func ReadTrace(name string) (events []Event, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the trace: %w", err)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the trace %s: line %d: %w", name, len(events)+1, err)
		}
		events = append(events, e)
	}
}

// tracedStore tells what is written to the state's store and read from it.
type tracedStore struct {
	state.Store
	trace *trace
	held  func() (entries, encoded int64)
}

// Put tells the part when it is durable.
func (s *tracedStore) Put(ctx context.Context, id string, body []byte) error {
	if err := s.Store.Put(ctx, id, body); err != nil {
		return err
	}
	e := Event{What: Put, Part: id, Bytes: len(body)}
	e.Entries, e.Encoded = s.held()
	return s.trace.tell(e)
}

// Get tells how much was read.
func (s *tracedStore) Get(ctx context.Context, id string) ([]byte, error) {
	body, err := s.Store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return body, s.trace.tell(Event{What: Got, Part: id, Bytes: len(body)})
}
