package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/participant"
)

// Phases say where the time of an epoch goes: medians in milliseconds, over the epochs that wrote something.
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
}

// String is one line for people.
func (p Phases) String() string {
	return fmt.Sprintf("%d epochs, one every %.1f ms: records read at an age of %.1f, prepare %.1f, decide %.1f, commit %.1f ms", p.Epochs, p.Cadence, p.Age, p.Prepare, p.Decide, p.Commit)
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
		s.decide = append(s.decide, milliseconds(began.Sub(at)))
		s.commit = append(s.commit, milliseconds(time.Since(began)))
		delete(s.prepared, h.Name)
	}
	return p, err
}

// phases are the medians.
func (s *clockedSink) phases(age float64) Phases {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Phases{Epochs: len(s.commit), Age: age}
	if len(s.cadence) > 0 && len(s.commit) > 0 {
		p.Cadence, p.Prepare = rounded(median(s.cadence), 2), rounded(median(s.prepare), 2)
		p.Decide, p.Commit = rounded(median(s.decide), 2), rounded(median(s.commit), 2)
	}
	return p
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

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
			s.cadence = append(s.cadence, milliseconds(began.Sub(s.last)))
		}
		s.last = began
		s.prepare = append(s.prepare, milliseconds(time.Since(began)))
		s.prepared[v.Handle.Name] = time.Now()
	}
	return v, err
}
