package twophase_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/journal"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/twophase"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// basket is a T that grows while it is written to: a pointer.
type basket struct {
	ID    string
	Lines []string
}

// till is a service that is told everything when it is asked to reserve.
type till struct {
	mu      sync.Mutex // guards the rest
	last    int
	state   map[string]string
	lines   map[string][]string
	visible []string
	calls   int
}

func newTill() *till { return &till{state: map[string]string{}, lines: map[string][]string{}} }

func (t *till) change(ctx context.Context, f func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	t.calls++
	return f()
}

func (t *till) Begin(ctx context.Context) (*basket, error) {
	b := &basket{}
	return b, t.change(ctx, func() error {
		t.last++
		b.ID = fmt.Sprint(t.last)
		return nil
	})
}

func (t *till) Write(_ context.Context, b *basket, records []stream.Record) error {
	for _, r := range records {
		b.Lines = append(b.Lines, string(r.Value))
	}
	return nil
}

func (t *till) PreCommit(ctx context.Context, b *basket) error {
	return t.change(ctx, func() error {
		if s := t.state[b.ID]; s != "" && s != "reserved" {
			return fmt.Errorf("%s: %w", s, participant.ErrLost)
		}
		t.state[b.ID], t.lines[b.ID] = "reserved", b.Lines
		return nil
	})
}

func (t *till) Commit(ctx context.Context, b *basket) error {
	return t.change(ctx, func() error {
		switch t.state[b.ID] {
		case "sold":
			return nil
		case "reserved":
			t.visible = append(t.visible, t.lines[b.ID]...)
			t.state[b.ID] = "sold"
			return nil
		}
		return fmt.Errorf("%s is not reserved: %w", b.ID, participant.ErrLost)
	})
}

func (t *till) Abort(ctx context.Context, b *basket) error {
	return t.change(ctx, func() error {
		if t.state[b.ID] == "sold" {
			return errors.New("sold already")
		}
		t.state[b.ID] = "dropped"
		return nil
	})
}

func open(t testing.TB, s *till, path string) processor.Sink {
	t.Helper()
	sink, err := twophase.New[*basket](s, participant.TwoPhaseConfig[*basket]{Kind: "till", Identity: "t1", Journal: journal.At(path)})
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

func TestASinkOfFourFunctionsConforms(t *testing.T) {
	participanttest.Run(t, participanttest.Kit{New: func(t testing.TB) participanttest.Target {
		s, path := newTill(), filepath.Join(t.TempDir(), "journal")
		return participanttest.Target{
			Process: func(t testing.TB) participant.Resource { return open(t, s, path) },
			Write: func(t testing.TB, b participant.Branch, record string) {
				if err := b.(processor.Writer).Write(context.Background(), []stream.Record{{Value: []byte(record)}}); err != nil {
					t.Fatal(err)
				}
			},
			Read: func(testing.TB) []string {
				s.mu.Lock()
				defer s.mu.Unlock()
				return slices.Clone(s.visible)
			},
		}
	}})
}

func TestAnEpochInWhichNothingIsWrittenCallsNothing(t *testing.T) {
	s := newTill()
	sink := open(t, s, filepath.Join(t.TempDir(), "journal"))
	name := participant.BranchName{Namespace: participant.Namespace{Name: "n", Incarnation: 1}, Pipeline: "p", Member: "m", Resource: "r", Generation: 1, N: 1}
	if err := sink.Open(t.Context(), participant.Opening{Namespace: name.Namespace, Scope: "p/0", Member: "m", Resource: "r", Generation: 1}); err != nil {
		t.Fatal(err)
	}
	b, err := sink.Begin(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.(processor.Writer).Write(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if v, err := b.Prepare(t.Context()); err != nil || v.Kind != participant.ReadOnly || s.calls != 0 {
		t.Fatalf("vote %d, %v, after %d calls", v.Kind, err, s.calls)
	}
}
