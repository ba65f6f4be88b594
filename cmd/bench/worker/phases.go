package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/participant"
)

// Phases say where the time of an epoch goes, in milliseconds, over the epochs that wrote something: medians, and the slow end.
type Phases struct {
	Epochs int `json:"epochs"`
	// Age is how old the first record of a batch is when it is read.
	Age float64 `json:"age"`
	// Cadence is between one prepare and the next.
	Cadence float64 `json:"cadence"`
	// Prepare makes the branch durable; Decide is from then until the commit is ordered; Commit is until
	// it is proven.
	Prepare float64 `json:"prepare"`
	Decide  float64 `json:"decide"`
	Commit  float64 `json:"commit"`
	// Slow are the same for the slowest hundredth of each.
	Slow Slow `json:"slow"`
}

// Slow are the times, milliseconds, that a hundredth of the epochs exceeds; each phase for itself.
type Slow struct {
	Age     float64 `json:"age"`
	Cadence float64 `json:"cadence"`
	Prepare float64 `json:"prepare"`
	Decide  float64 `json:"decide"`
	Commit  float64 `json:"commit"`
}

// String is one line for people.
func (p Phases) String() string {
	return fmt.Sprintf("%d epochs, one every %.1f ms (p99 %.1f): records read at an age of %.1f (%.1f), prepare %.1f (%.1f), decide %.1f (%.1f), commit %.1f (%.1f) ms",
		p.Epochs, p.Cadence, p.Slow.Cadence, p.Age, p.Slow.Age, p.Prepare, p.Slow.Prepare, p.Decide, p.Slow.Decide, p.Commit, p.Slow.Commit)
}

// clockedSink notes when each branch goes from phase to phase.
type clockedSink struct {
	*kafka.Sink

	mu       sync.Mutex // guards what follows
	last     time.Time  // prepare began
	prepared map[string]time.Time
	cadence  []float64
	prepare  []float64
	decide   []float64
	commit   []float64
}

// keptPhases bounds what is kept of a long run.
const keptPhases = 100_000

func newClockedSink(s *kafka.Sink) *clockedSink {
	return &clockedSink{Sink: s, prepared: map[string]time.Time{}}
}

// Begin returns a branch that is clocked.
func (s *clockedSink) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	b, err := s.Sink.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	return &clockedBranch{Branch: b.(*kafka.Branch), sink: s}, nil //nolint:forcetypeassert // Begin promises it
}

// Commit notes how long it takes, and what went before.
func (s *clockedSink) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	began := time.Now()
	p, err := s.Sink.Commit(ctx, h)
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ours := s.prepared[h.Name]
	if err == nil && ours && len(s.commit) < keptPhases {
		s.decide = append(s.decide, stats.Milliseconds(began.Sub(at)))
		s.commit = append(s.commit, stats.Milliseconds(time.Since(began)))
		delete(s.prepared, h.Name)
	}
	return p, err
}

// phases are the medians and the slow ends; ages are those of what was read.
func (s *clockedSink) phases(ages []float64) (p Phases) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Epochs = len(s.commit)
	p.Age, p.Slow.Age = stats.MiddleAndEnd(ages)
	p.Cadence, p.Slow.Cadence = stats.MiddleAndEnd(s.cadence)
	p.Prepare, p.Slow.Prepare = stats.MiddleAndEnd(s.prepare)
	p.Decide, p.Slow.Decide = stats.MiddleAndEnd(s.decide)
	p.Commit, p.Slow.Commit = stats.MiddleAndEnd(s.commit)
	return p
}

// clockedBranch notes when it is prepared.
type clockedBranch struct {
	*kafka.Branch
	sink *clockedSink
}

// Prepare notes how long it takes.
func (b *clockedBranch) Prepare(ctx context.Context) (participant.Vote, error) {
	began := time.Now()
	v, err := b.Branch.Prepare(ctx)
	s := b.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && v.Kind == participant.Yes && len(s.prepare) < keptPhases {
		if !s.last.IsZero() {
			s.cadence = append(s.cadence, stats.Milliseconds(began.Sub(s.last)))
		}
		s.last = began
		s.prepare = append(s.prepare, stats.Milliseconds(time.Since(began)))
		s.prepared[v.Handle.Name] = time.Now()
	}
	return v, err
}
