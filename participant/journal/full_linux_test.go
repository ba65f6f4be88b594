package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant/journal"
)

// A disk that is full, before the journal is made or later, costs the call and nothing else.
func TestAFullDiskCostsTheCallAndNotTheJournal(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, "disk")
	servicestest.SmallDisk(t, dir, 1, home)
	path := filepath.Join(dir, "journal")
	large := func(f *journal.File, key string) error {
		return f.Update(t.Context(), key, func([]byte) ([]byte, error) { return []byte(strings.Repeat("v", 8<<10)), nil })
	}
	free := servicestest.Fill(t, dir)
	f := journal.At(path)
	if err := note(t, f, "t/first"); err == nil {
		t.Fatal("noted on a full disk")
	}
	free()
	if err := note(t, f, "t/first"); err != nil {
		t.Fatalf("there is room again: %v", err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 128<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	noted := 1
	for ; noted < 200; noted++ { // to the brim
		if err := large(f, fmt.Sprintf("t/%d", noted)); err != nil {
			break
		}
	}
	if noted == 200 {
		t.Fatal("the disk was never full")
	}
	for _, g := range []*journal.File{f, journal.At(path)} {
		if found, err := g.Entries(t.Context(), "t/"); err != nil || len(found) != noted {
			t.Errorf("it has %d entries of %d, %v", len(found), noted, err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < noted; i++ {
		if err := f.Update(t.Context(), fmt.Sprintf("t/%d", i), func([]byte) ([]byte, error) { return nil, nil }); err != nil {
			t.Fatalf("a little room is there again, and an entry cannot be taken out: %v", err)
		}
	}
	for i := 1; i < noted-10; i++ { // in the room that is left in the file
		if err := large(f, fmt.Sprintf("t/%d", i)); err != nil {
			t.Fatalf("entry %d of %d: %v", i, noted-10, err)
		}
	}
}
