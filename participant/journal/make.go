package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/unisink/unisink/internal/mutant"
)

// pieceOf is how the names of the pieces begin that are to become a journal; digits follow.
func pieceOf(path string) string { return "." + filepath.Base(path) + "-" }

// make makes the file whole before it has its name: a process that dies over it, or a disk that is full, must not leave a
// piece that is no journal. Several processes may do so at once; the first gives the name. Where a file cannot be given a
// second name nothing is made here, and the library does it in place.
func (f *File) make() error {
	if mutant.On("journal/made-whole") {
		return nil
	}
	t, err := os.CreateTemp(filepath.Dir(f.path), pieceOf(f.path)+"*")
	if err != nil {
		return err
	}
	name := t.Name()
	var linked error
	err = t.Close()
	if err == nil {
		err = initialise(name, func() {
			linked = os.Link(name, f.path)
			_ = os.Remove(name) // below again, where a file that is open cannot be removed
		})
	}
	gone := os.Remove(name)
	if errors.Is(gone, fs.ErrNotExist) {
		gone = nil
	}
	switch {
	case err != nil:
		return errors.Join(fmt.Errorf("make journal %s: %w", f.path, err), gone)
	case errors.Is(linked, fs.ErrExist), errors.Is(linked, errors.ErrUnsupported), errors.Is(linked, fs.ErrPermission):
		return gone
	case errors.Is(linked, fs.ErrNotExist) && exists(f.path):
		return gone // the piece was swept by a process that has opened the journal, which another has made
	case linked != nil:
		return errors.Join(fmt.Errorf("make journal %s: %w", f.path, linked), gone)
	}
	return gone
}

// initialise makes an empty journal, durable, and calls whole while it has the lock of the file, by which others see that
// somebody is at it.
func initialise(path string, whole func()) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	if err = db.Sync(); err == nil {
		whole()
	}
	return errors.Join(err, db.Close())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// sweep takes away the pieces that processes left which were killed while they made this journal. It is called with the
// journal's lock, so whoever makes a piece still makes it in vain. What somebody has locked is left alone, and so is what
// cannot be read or removed: a piece harms nobody, and is no reason not to open the journal.
func (f *File) sweep() {
	dir := filepath.Dir(f.path)
	found, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, x := range found {
		number, is := strings.CutPrefix(x.Name(), pieceOf(f.path))
		if is && x.Type().IsRegular() && number != "" && strings.Trim(number, "0123456789") == "" {
			f.sweepPiece(filepath.Join(dir, x.Name()))
		}
	}
}

func (f *File) sweepPiece(path string) {
	info, err := os.Lstat(path)
	if err != nil {
		return
	}
	if os.SameFile(info, f.named) { // the journal's first name; who made it has died, or this process would not have its lock
		_ = os.Remove(path) // as sweep says
		return
	}
	piece, err := os.Open(path) //nolint:gosec // a name beside the journal
	if err != nil {
		return
	}
	if tryLock(piece) {
		_ = os.Remove(path) // as sweep says
	}
	_ = piece.Close() // nothing was written
}
