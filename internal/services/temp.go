package services

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ownerFile is locked by the process that a temporary directory belongs to.
const ownerFile = "owner"

// tempDir makes a temporary directory and returns what removes it. Those of the same prefix
// whose process was killed, before it could remove them, are removed first.
func tempDir(prefix string) (dir string, remove func() error, err error) {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return "", nil, err
	}
	for _, dir := range old {
		if f, err := os.Open(filepath.Join(dir, ownerFile)); err == nil {
			if tryLock(f) == nil {
				_ = os.RemoveAll(dir) // somebody else's, or next time
			}
			_ = f.Close() // read only
		}
	}
	dir, err = os.MkdirTemp("", prefix)
	if err != nil {
		return "", nil, err
	}
	// Locked before it has its name: an owner's file without a lock has lost its owner.
	f, err := os.Create(filepath.Join(dir, ownerFile+".new"))
	if err == nil {
		err = errors.Join(tryLock(f), os.Rename(f.Name(), filepath.Join(dir, ownerFile)))
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("lock a temporary directory: %w", err), f.Close(), os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), ignoreClosed(f.Close())) }, nil
}

func tryLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// ignoreClosed makes a second removal no error.
func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
