// Package crashfs is the file system as durable code sees it: every operation that matters for
// crash safety is a method, so that tests can put in a disk which forgets what was not synced and
// fails where it is told. OS is the real one.
package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File is an open file. Sync makes its content durable; its name is made durable by SyncDir of
// its directory.
type File interface {
	io.Reader
	io.Writer
	io.Seeker
	io.Closer
	Sync() error
	Stat() (fs.FileInfo, error)
}

// FS has the operations that an adapter may use. Names are slash-separated paths of the host.
type FS interface {
	// OpenFile is os.OpenFile.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Link gives a file a second name, and fails with fs.ErrExist where there is one already: the
	// way to publish without ever replacing another file.
	Link(oldName, newName string) error
	// Rename replaces newName if it exists.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// Mkdir makes one directory.
	Mkdir(name string, perm fs.FileMode) error
	// Stat is os.Lstat: links are not followed.
	Stat(name string) (fs.FileInfo, error)
	// ReadDir lists a directory in order of names.
	ReadDir(name string) ([]fs.DirEntry, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
}

// OS is the file system of the machine.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return f, nil
}

func (osFS) Link(oldName, newName string) error         { return os.Link(oldName, newName) }
func (osFS) Rename(oldName, newName string) error       { return os.Rename(oldName, newName) }
func (osFS) Remove(name string) error                   { return os.Remove(name) }
func (osFS) Mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(name, perm) }
func (osFS) Stat(name string) (fs.FileInfo, error)      { return os.Lstat(name) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

func (osFS) SyncDir(name string) (err error) {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", name, err)
	}
	return nil
}

// MkdirAll makes a directory and its missing parents, each durable before the next is made.
func MkdirAll(f FS, name string, perm fs.FileMode) error {
	info, err := f.Stat(name)
	if err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: name, Err: errors.New("a file of that name is in the way")}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(name)
	if parent != name {
		if err := MkdirAll(f, parent, perm); err != nil {
			return err
		}
	}
	if err := f.Mkdir(name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.SyncDir(parent)
}

// ReadFile reads a whole file.
func ReadFile(f FS, name string) (_ []byte, err error) {
	r, err := f.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r)
}

// RemoveAll removes a directory with the files in it, one level deep; missing is no error.
func RemoveAll(f FS, name string) error {
	entries, err := f.ReadDir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := f.Remove(filepath.Join(name, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := f.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
