package journal

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/unisink/unisink/participant"
)

// damage is what was found in a file as it was then.
type damage struct {
	file os.FileInfo
	err  error
}

// is reports whether the file is still the one in which damage was found.
func (d *damage) is(now os.FileInfo) bool {
	return d != nil && os.SameFile(d.file, now) && d.file.Size() == now.Size() && d.file.ModTime().Equal(now.ModTime())
}

// use opens the file and runs do on it. Over a file that is damaged or cut off the library panics, or faults where it is
// mapped; that ends this call and not the process, which may hold other resources and be a coordinator's. The
// mapping stays behind then, so such a file is not opened again until it has changed.
func (f *File) use(wait time.Duration, write bool, do func(*bbolt.DB) error) (err error) {
	if now, err := os.Stat(f.path); err == nil && f.damaged.is(now) {
		return f.damaged.err
	}
	var file *os.File
	open := func(path string, flag int, mode os.FileMode) (_ *os.File, err error) {
		file, err = os.OpenFile(path, flag, mode) //nolint:gosec // the path is whose this journal is
		return file, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if what := recover(); what != nil {
			err = f.recovered(file, what)
		}
	}()
	return f.open(&bbolt.Options{Timeout: wait, ReadOnly: !write, OpenFile: open}, do)
}

// recovered closes the file after a panic, and says that it is damaged; a panic of the caller's goes on.
func (f *File) recovered(file *os.File, what any) error {
	var seen os.FileInfo
	if file != nil {
		seen, _ = file.Stat() // nil: it is not remembered
		unlock(file)          // closing does not: the mapping holds on to it
		_ = file.Close()      // nothing was written that anyone was told of
	}
	if f.outside {
		f.outside = false
		panic(what)
	}
	err := fmt.Errorf("journal %s is damaged (%v): put a good copy in its place, or, without one, see in the service itself what is prepared there: %w",
		f.path, what, participant.ErrMisconfigured)
	if seen != nil {
		f.damaged = &damage{file: seen, err: err}
	}
	return err
}
