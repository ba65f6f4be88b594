package journal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant/journal"
)

// A disk that fills up while the journal is made leaves a piece of it, in which nothing was noted.
func TestAJournalThatWasCutOffAsItWasMadeIsMadeAgain(t *testing.T) {
	for pages := int64(1); pages < 4; pages++ {
		home := t.TempDir()
		dir := filepath.Join(home, "disk")
		servicestest.SmallDisk(t, dir, 1, home)
		free := servicestest.Fill(t, dir)
		filler := filepath.Join(dir, "filler")
		info, err := os.Stat(filler)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filler, info.Size()-pages*int64(os.Getpagesize())); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "journal")
		f := journal.At(path)
		if err := note(t, f, "t/first"); err == nil {
			t.Fatal("noted on a full disk")
		}
		free()
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%d pages: %v is left, %v", pages, left, err)
		}
		for _, g := range []*journal.File{f, journal.At(path)} {
			if err := note(t, g, "t/first"); err != nil {
				t.Errorf("%d pages, there is room again: %v", pages, err)
			}
		}
	}
}
