package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The first process may die between making the file and syncing its directory. The next one finds a file whose
// name a loss of power would take away, with everything that was noted in it.
func TestTheFilesNameIsDurableBeforeAnythingIsNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var synced []string
	bad := errors.New("bad disk")
	f := At(path)
	f.sync = func(dir string) error {
		synced = append(synced, dir)
		if len(synced) == 1 {
			return bad
		}
		return nil
	}
	noted := 0
	note := func() error {
		return f.Update(t.Context(), "k", func([]byte) ([]byte, error) { noted++; return []byte("v"), nil })
	}
	if err := note(); !errors.Is(err, bad) || noted != 0 {
		t.Errorf("the name was not durable: %v, and noted %d times", err, noted)
	}
	for range 3 {
		if err := note(); err != nil {
			t.Fatal(err)
		}
	}
	if len(synced) != 2 || synced[1] != filepath.Dir(path) || noted != 3 {
		t.Errorf("synced %q, noted %d times; want the directory until it is synced, and no more", synced, noted)
	}
}
