package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/journal"
)

func note(t *testing.T, f *journal.File, key string) error {
	t.Helper()
	return f.Update(t.Context(), key, func([]byte) ([]byte, error) { return []byte("v"), nil })
}

// What was begun stood in the file. A new one in its place would list nothing of it, and go on as if all was well.
func TestAJournalThatIsGoneWhileItIsUsedIsNotMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "journal")
	f := journal.At(path)
	if err := note(t, f, "t/1"); err != nil {
		t.Fatal(err)
	}
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(path, away); err != nil {
		t.Fatal(err)
	}
	if err := note(t, f, "t/2"); !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "journal "+path+" is gone") {
		t.Errorf("the file was taken away: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := note(t, f, "t/2"); !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("its directory was taken away: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it was made anew")
	}
	if err := os.Rename(away, path); err != nil {
		t.Fatal(err)
	}
	if err := note(t, f, "t/2"); err != nil {
		t.Errorf("it was put back: %v", err)
	}
	if found, err := f.Entries(t.Context(), "t/"); err != nil || len(found) != 2 {
		t.Errorf("it has %d entries, %v; want both", len(found), err)
	}
}

func TestAJournalThatCannotBeMadeSaysWhatToDo(t *testing.T) {
	err := note(t, journal.At(filepath.Join(t.TempDir(), "typo", "journal")), "t/1")
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "its directory is not there; make it") {
		t.Errorf("%v", err)
	}
	if err := note(t, journal.At(t.TempDir()), "t/1"); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("a directory in its place: %v", err)
	}
}
