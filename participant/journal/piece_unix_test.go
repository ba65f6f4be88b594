//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/unisink/unisink/participant/journal"
)

// A process that is killed while it makes its journal leaves a piece beside it. The next one takes that away, and nothing
// that another process is at, or that is no piece of this journal.
func TestPiecesOfAJournalAreSweptUnlessSomebodyIsAtThem(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	if err := note(t, journal.At(path), "t/first"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".journal-1", ".journal-23", ".journal-456", ".journal-", ".journal-x1", ".journal-2-1", ".other-1", "journal-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("a piece"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(path, filepath.Join(dir, ".journal-789")); err != nil { // killed after it had given the name
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".journal-99"), 0o700); err != nil {
		t.Fatal(err)
	}
	busy, err := os.Open(filepath.Join(dir, ".journal-456"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(busy.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	left := func() (names []string) {
		t.Helper()
		found, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range found {
			names = append(names, x.Name())
		}
		return names
	}
	want := []string{".journal-", ".journal-2-1", ".journal-456", ".journal-99", ".journal-x1", ".other-1", "journal", "journal-1"}
	if err := note(t, journal.At(path), "t/second"); err != nil {
		t.Fatal(err)
	}
	if got := left(); !slices.Equal(got, want) {
		t.Errorf("left is %q, want %q", got, want)
	}
	if err := busy.Close(); err != nil { // its process has ended
		t.Fatal(err)
	}
	f := journal.At(path)
	if err := note(t, f, "t/third"); err != nil {
		t.Fatal(err)
	}
	if got := left(); slices.Contains(got, ".journal-456") {
		t.Errorf("left is %q", got)
	}
	if found, err := f.Entries(t.Context(), "t/"); err != nil || len(found) != 3 {
		t.Errorf("it has %d entries, %v; want 3", len(found), err)
	}
}

// Several processes that make a journal at once sweep each other's pieces. Each gets through, and nothing is left.
func TestProcessesThatMakeAJournalTogetherAllGetThrough(t *testing.T) {
	rounds := 20 // a piece is swept while it is made in one of some ten
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		dir := t.TempDir()
		path := filepath.Join(dir, "journal")
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				if err := note(t, journal.At(path), fmt.Sprintf("t/%d", i)); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		found, err := journal.At(path).Entries(t.Context(), "t/")
		if err != nil || len(found) != 8 {
			t.Errorf("it has %d entries, %v; want 8", len(found), err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("left is %v, %v; want the journal alone", left, err)
		}
	}
}
