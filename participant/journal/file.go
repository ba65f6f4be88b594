package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// File is a journal in a file. It is opened for each call and locked meanwhile, so that several
// processes of a machine may share it: the sink, its successor, a resolver. It is as durable as its
// disk; a member that is to be taken over by another machine needs a journal that both reach, and a
// network file system is none.
type File struct {
	path string
	sync func(dir string) error // makes a new file's name durable

	mu      sync.Mutex  // one call of this process at a time; the lock of the file is polled. It guards the rest too
	named   os.FileInfo // the file whose name is durable; nil: none yet
	outside bool        // change is called: a panic is not of the file
	damaged *damage     // nil: none was found
}

var _ participant.Journal = (*File)(nil)

// At is the journal at a path. The file is made by the first Update, in a directory that exists.
func At(path string) *File { return &File{path: path, sync: syncDir} }

// lockLimit bounds the wait for other processes, which hold the lock for one call each.
const lockLimit = 10 * time.Second

var bucket = []byte("journal")

// Update implements participant.Journal: what was changed is synced on return.
func (f *File) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	return f.with(ctx, true, func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucket)
			if err != nil {
				return err
			}
			old := bytes.Clone(b.Get([]byte(key)))
			f.outside = true
			now, err := change(old)
			f.outside = false
			switch {
			case err != nil:
				return err
			case now == nil:
				return b.Delete([]byte(key))
			}
			return b.Put([]byte(key), now)
		})
	})
}

// Entries implements participant.Journal.
func (f *File) Entries(ctx context.Context, prefix string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := f.with(ctx, false, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucket)
			if b == nil {
				return nil
			}
			c := b.Cursor()
			for k, v := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
				out[string(k)] = bytes.Clone(v)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// with runs f on the open file.
func (f *File) with(ctx context.Context, write bool, do func(*bbolt.DB) error) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("journal %s: %w", f.path, context.Cause(ctx))
	}
	wait := lockLimit
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(end), time.Millisecond))
	}
	switch info, err := os.Stat(f.path); {
	case write && f.named != nil && errors.Is(err, fs.ErrNotExist) && !mutant.On("journal/gone-is-told"):
		return fmt.Errorf("the journal %s is gone, and this process has noted in it what it began: put it back, or, if it is lost, see in the service itself what is "+
			"prepared there and start the process again, which makes a new one: %w", f.path, participant.ErrMisconfigured)
	case write && errors.Is(err, fs.ErrNotExist):
		if err := f.make(); err != nil {
			return f.unopened(err)
		}
	case write:
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no journal %s: %w", f.path, participant.ErrMisconfigured)
	case err == nil && info.Size() == 0: // cut off, or its first writer was killed at once
		return fmt.Errorf("the journal %s is empty, not even a journal without entries: %w", f.path, participant.ErrMisconfigured)
	}
	return f.use(wait, write, do)
}

// open runs do on the file, opened and locked.
func (f *File) open(o *bbolt.Options, do func(*bbolt.DB) error) error {
	db, err := bbolt.Open(f.path, 0o600, o)
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("open journal %s: another process has held its lock for %s, and is stopped or stuck if that goes on: %w",
			f.path, o.Timeout.Round(time.Millisecond), err)
	case err != nil:
		return f.unopened(err)
	}
	if err = f.keepName(!o.ReadOnly); err == nil {
		err = do(db)
	}
	return errors.Join(err, db.Close())
}

// unopened says what may be done about a file that cannot be opened or made.
func (f *File) unopened(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the journal %s cannot be made, for its directory is not there; make it, or mount it: %w", f.path, participant.ErrMisconfigured)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("open journal %s: a journal is a file that this process may write to, and make in its directory: %w: %w", f.path, participant.ErrMisconfigured, err)
	}
	return fmt.Errorf("open journal %s: %w", f.path, err)
}

// keepName makes the file's name durable, also where it was there before: the process that made it may have died
// before this. Another file in its place has a name of its own to be made durable. It takes away what such a process has left
// beside it.
func (f *File) keepName(write bool) error {
	if !write {
		return nil
	}
	now, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("look at journal %s: %w", f.path, err)
	}
	if f.named != nil && os.SameFile(f.named, now) {
		return nil
	}
	if err := f.sync(filepath.Dir(f.path)); err != nil {
		return err
	}
	f.named = now
	f.sweep()
	return nil
}

// syncDir makes a new file's name durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}
