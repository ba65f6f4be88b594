package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/unisink/unisink/internal/mutant"
)

// make makes the file whole before it has its name: a process that dies over it, or a disk that is full, must not leave a
// piece that is no journal. Several processes may do so at once; the first gives the name. Where a file cannot be given a
// second name nothing is made here, and the library does it in place.
func (f *File) make() error {
	if mutant.On("journal/made-whole") {
		return nil
	}
	t, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+"-*")
	if err != nil {
		return err
	}
	name := t.Name()
	err = t.Close()
	if err == nil {
		err = initialise(name)
	}
	if err == nil {
		err = os.Link(name, f.path)
	}
	gone := os.Remove(name)
	switch {
	case errors.Is(err, fs.ErrExist), errors.Is(err, errors.ErrUnsupported), errors.Is(err, fs.ErrPermission):
		return gone
	case err != nil:
		return errors.Join(fmt.Errorf("make journal %s: %w", f.path, err), gone)
	}
	return gone
}

// initialise makes an empty journal, durable.
func initialise(path string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	return errors.Join(db.Sync(), db.Close())
}
