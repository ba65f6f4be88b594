package bench

import (
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/processor/stream"
)

// grace is how much later the last output must be due that ends the watching: what was due before it and is
// slower shall be counted.
const grace = 1500 * time.Millisecond

// sightings put what was written and what became visible side by side.
type sightings struct {
	job      string
	warm     time.Duration // after the first sighting
	duration time.Duration // that is counted after it
	read     *worker.ResultReader
	done     chan struct{} // closed when enough was seen, or nothing more will come

	mu     sync.Mutex // guards what follows
	at     []time.Time
	first  time.Time // something was visible
	closed bool
	delays []float64 // milliseconds; read when both sides have ended
}

func newSightings(job string, warm, duration time.Duration, room int) *sightings {
	return &sightings{job: job, read: worker.NewResultReader(), warm: warm, duration: duration, done: make(chan struct{}), at: make([]time.Time, 0, room)}
}

// made notes that record n was made.
func (s *sightings) made(_ int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, at)
}

// over says that one of the sides has ended.
func (s *sightings) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// end closes done once. The caller holds mu.
func (s *sightings) end() {
	if !s.closed {
		s.closed = true
		close(s.done)
	}
}

// take notes that an output is visible.
func (s *sightings) take(r *stream.Record, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, err := s.due(r)
	if err != nil {
		return err
	}
	if s.first.IsZero() {
		s.first = now
	}
	begin := s.first.Add(s.warm)
	switch {
	case due.Before(begin):
	case due.After(begin.Add(s.duration + grace)):
		s.end()
	case !due.After(begin.Add(s.duration)):
		s.delays = append(s.delays, float64(now.Sub(due).Microseconds())/1000)
	}
	return nil
}

// due is when the output could have been visible at the earliest: when its record was made, or when its window was over.
func (s *sightings) due(r *stream.Record) (time.Time, error) {
	if s.job == worker.Pass {
		id, err := idOf(r.Value)
		if err != nil {
			return time.Time{}, err
		}
		if id >= len(s.at) {
			return time.Time{}, fmt.Errorf("record %d came out, and %d went in", id, len(s.at))
		}
		return s.at[id], nil
	}
	got, err := s.read.Read(r.Value)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(got.Start).Add(worker.WindowSize), nil
}
