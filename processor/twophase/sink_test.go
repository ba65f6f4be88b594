package twophase_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/journal"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/twophase"
)

func TestMain(m *testing.M) {
	participanttest.Child(func(t testing.TB, world string) participanttest.Target { return stallAt(t, world) })
	goleak.VerifyTestMain(m)
}

// basket is a T that grows while it is written to: a pointer.
type basket struct {
	ID    string
	Lines []string
}

// stall is a service that outlives the processes that use it: its book is a file, one entry for each transaction.
type stall struct{ path string }

// sale is an entry of the book.
type sale struct {
	State string
	Lines []string
}

func (s stall) change(ctx context.Context, b *basket, f func(old *sale) (*sale, error)) error {
	return journal.At(s.path).Update(ctx, b.ID, func(text []byte) ([]byte, error) {
		var old *sale
		if text != nil {
			if err := json.Unmarshal(text, &old); err != nil {
				return nil, err
			}
		}
		now, err := f(old)
		if err != nil {
			return nil, err
		}
		return json.Marshal(now)
	})
}

func (stall) Begin(context.Context) (*basket, error) {
	id, err := participant.NewTxnID()
	return &basket{ID: id}, err
}

func (stall) Write(_ context.Context, b *basket, records []stream.Record) error {
	for _, r := range records {
		b.Lines = append(b.Lines, string(r.Value))
	}
	return nil
}

func (s stall) PreCommit(ctx context.Context, b *basket) error {
	return s.change(ctx, b, func(old *sale) (*sale, error) {
		if old != nil && old.State != "reserved" {
			return nil, fmt.Errorf("%s: %w", old.State, participant.ErrLost)
		}
		return &sale{State: "reserved", Lines: b.Lines}, nil
	})
}

func (s stall) Commit(ctx context.Context, b *basket) error {
	return s.change(ctx, b, func(old *sale) (*sale, error) {
		if old == nil || old.State == "dropped" {
			return nil, fmt.Errorf("%s is not reserved: %w", b.ID, participant.ErrLost)
		}
		return &sale{State: "sold", Lines: old.Lines}, nil
	})
}

func (s stall) Abort(ctx context.Context, b *basket) error {
	return s.change(ctx, b, func(old *sale) (*sale, error) {
		if old != nil && old.State == "sold" {
			return nil, fmt.Errorf("%s is sold", b.ID)
		}
		return &sale{State: "dropped"}, nil
	})
}

// sold are the lines of what is sold.
func (s stall) sold(t testing.TB) []string {
	t.Helper()
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	all, err := journal.At(s.path).Entries(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, text := range all {
		var x sale
		if err := json.Unmarshal(text, &x); err != nil {
			t.Fatal(err)
		}
		if x.State == "sold" {
			out = append(out, x.Lines...)
		}
	}
	slices.Sort(out)
	return out
}

// stallAt is the stall in a directory, with the journal of its sink beside it.
func stallAt(_ testing.TB, dir string) participanttest.Target {
	s := stall{filepath.Join(dir, "book")}
	return participanttest.Target{
		World: dir,
		Process: func(t testing.TB) participant.Resource {
			sink, err := twophase.New[*basket](s, participant.TwoPhaseConfig[*basket]{Kind: "stall", Identity: "s1", Journal: journal.At(filepath.Join(dir, "journal"))})
			if err != nil {
				t.Fatal(err)
			}
			return sink
		},
		Write: func(t testing.TB, b participant.Branch, record string) {
			if err := b.(processor.Writer).Write(context.Background(), []stream.Record{{Value: []byte(record)}}); err != nil {
				t.Fatal(err)
			}
		},
		Read: s.sold,
		Points: func(at func(string)) {
			if fault.Enabled {
				fault.Set(func(name string) error { at(name); return nil })
			}
		},
	}
}

// Processes are killed by SIGKILL around each call and, in a build with them, at each point of the four-function form.
func TestASinkOfFourFunctionsConforms(t *testing.T) {
	kit := participanttest.Kit{New: func(t testing.TB) participanttest.Target {
		target := stallAt(t, t.TempDir())
		if testing.Short() {
			target.World = "" // no processes
		}
		return target
	}}
	if testing.Short() {
		kit.Branches = 200 // two waves of those that are open at once
	}
	cert := participanttest.Run(t, kit)
	if killed := "a process killed at any point loses nothing"; !testing.Short() && !t.Failed() && !cert.Certifies(killed) {
		t.Errorf("not certified: %s", killed)
	}
}

func TestAnEpochInWhichNothingIsWrittenCallsNothing(t *testing.T) {
	dir := t.TempDir()
	sink := stallAt(t, dir).Process(t)
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
	v, err := b.Prepare(t.Context())
	if _, called := os.Stat(filepath.Join(dir, "book")); err != nil || v.Kind != participant.ReadOnly || !errors.Is(called, fs.ErrNotExist) {
		t.Fatalf("vote %d, %v, and the service's book: %v", v.Kind, err, called)
	}
}
