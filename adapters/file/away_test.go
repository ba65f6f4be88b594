package file_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
)

// away is what an unmounted disk leaves behind: an empty directory under the same name.
func away(t *testing.T) (s *file.Sink, target string, h participant.Handle, back func()) {
	t.Helper()
	target = filepath.Join(t.TempDir(), "out")
	s = sink(t, crashfs.OS(), target)
	if err := s.Open(context.Background(), opening(1)); err != nil {
		t.Fatal(err)
	}
	b, err := s.Begin(context.Background(), branchName(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	write(t, b, `"a"`)
	v, err := b.Prepare(context.Background())
	if err != nil || v.Kind != participant.Yes {
		t.Fatalf("prepare: %+v, %v", v, err)
	}
	if err := os.Rename(target, target+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	return s, target, v.Handle, func() {
		t.Helper()
		if err := os.Remove(target); err != nil {
			t.Fatalf("something was written where the disk used to be: %v", err)
		}
		if err := os.Rename(target+".away", target); err != nil {
			t.Fatal(err)
		}
	}
}

func TestO10_ADirectoryThatIsNotThereProvesNothing(t *testing.T) {
	ctx := context.Background()
	s, target, h, back := away(t)
	for what, call := range map[string]func() (any, error){
		"commit":   func() (any, error) { p, err := s.Commit(ctx, h); return p, err },
		"rollback": func() (any, error) { p, err := s.Rollback(ctx, h); return p, err },
		"inspect":  func() (any, error) { st, err := s.Inspect(ctx, h); return st, err },
		"list":     func() (any, error) { l, err := s.List(ctx, ns); return l, err },
	} {
		got, err := call()
		if !errors.Is(err, participant.ErrRetry) || !strings.Contains(err.Error(), target) {
			t.Errorf("%s while the directory is away: %+v, %v; want an error that may be tried again and names %s", what, got, err, target)
		}
	}
	back()
	if p, err := s.Commit(ctx, h); err != nil || p.Verdict != participant.Committed {
		t.Fatalf("commit once it is back: %+v, %v", p, err)
	}
}

func TestOpenWaitsForADirectoryThatIsAwayAndMendsOneThatLostParts(t *testing.T) {
	ctx := context.Background()
	s, target, _, back := away(t)
	if err := s.Open(ctx, opening(2)); !errors.Is(err, participant.ErrRetry) || !strings.Contains(err.Error(), target) {
		t.Fatalf("open while the directory is away: %v", err)
	}
	back()
	if err := os.RemoveAll(filepath.Join(target, ".unisink", "tmp")); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(ctx, opening(2)); err != nil {
		t.Fatalf("open once it is back: %v", err)
	}
}

func TestADirectoryWithAnotherIdentityIsNotWrittenTo(t *testing.T) {
	ctx := context.Background()
	s, target, h, _ := away(t)
	if _, err := sink(t, crashfs.OS(), target).Describe(ctx); err != nil { // gives it an identity of its own
		t.Fatal(err)
	}
	if err := s.Open(ctx, opening(2)); !errors.Is(err, participant.ErrRetry) {
		t.Errorf("open in another directory: %v", err)
	}
	if p, err := s.Commit(ctx, h); !errors.Is(err, participant.ErrRetry) {
		t.Errorf("commit in another directory: %+v, %v", p, err)
	}
}
