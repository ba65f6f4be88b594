package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
)

// Dir is a Store in one directory, which may be a shared one. A part is written beside its final
// name, synced, renamed, and the directory synced: after Put it survives a loss of power, and a half-written
// part is never seen under its id.
type Dir struct {
	fs   crashfs.FS
	path string
	// process and count make the names of half-written parts unique.
	process string
	count   atomic.Uint64
}

const (
	partSuffix = ".part"
	tempPrefix = ".writing-"
	// abandoned is the age from which a half-written part has no writer any more.
	abandoned = time.Hour
)

// OpenDir makes the directory if it is not there, and removes what killed processes have left
// half-written for long.
func OpenDir(path string) (*Dir, error) { return OpenDirOn(crashfs.OS(), path) }

// OpenDirOn is OpenDir on another file system, for tests that cut the power.
func OpenDirOn(fs crashfs.FS, path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("state directory %q: %w", path, err)
	}
	if err := crashfs.MkdirAll(fs, abs, 0o750); err != nil {
		return nil, fmt.Errorf("state directory %q can't be made: %w", path, err)
	}
	// Also if it was there: the process that made it may have died before this.
	if err := fs.SyncDir(filepath.Dir(abs)); err != nil {
		return nil, fmt.Errorf("state directory %q: %w", path, err)
	}
	d := &Dir{fs: fs, path: abs, process: rand.Text()}
	if err := d.tidy(); err != nil {
		return nil, fmt.Errorf("state directory %q: %w", path, err)
	}
	return d, nil
}

func (d *Dir) tidy() error {
	entries, err := d.fs.ReadDir(d.path)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > abandoned {
			err = d.fs.Remove(filepath.Join(d.path, e.Name()))
		}
		errs = append(errs, removed(err))
	}
	return errors.Join(errs...)
}

// Name is "dir:" and the absolute path.
func (d *Dir) Name() string { return "dir:" + d.path }

// Put writes a part.
func (d *Dir) Put(ctx context.Context, id string, body []byte) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("put state part %s: %w", id, context.Cause(ctx))
	}
	final, err := d.file(id)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("put state part %s in %s: %w", id, d.path, err)
		}
	}()
	half := filepath.Join(d.path, fmt.Sprintf("%s%s-%d", tempPrefix, d.process, d.count.Add(1)))
	f, err := d.fs.OpenFile(half, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removed(d.fs.Remove(half)))
		}
	}()
	_, werr := f.Write(body)
	if werr == nil {
		fault.Point("state/before-sync")
		if !mutant.On("state/sync-part") {
			werr = f.Sync()
		}
	}
	if err := errors.Join(werr, f.Close()); err != nil {
		return err
	}
	fault.Point("state/before-rename")
	if err := d.fs.Rename(half, final); err != nil {
		return err
	}
	fault.Point("state/after-rename")
	if mutant.On("state/sync-directory") {
		return nil
	}
	return d.fs.SyncDir(d.path)
}

// Get reads a part.
func (d *Dir) Get(ctx context.Context, id string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get state part %s: %w", id, context.Cause(ctx))
	}
	name, err := d.file(id)
	if err != nil {
		return nil, err
	}
	body, err := crashfs.ReadFile(d.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("state part %s in %s: %w", id, d.path, ErrNoPart)
	}
	if err != nil {
		return nil, fmt.Errorf("get state part %s in %s: %w", id, d.path, err)
	}
	return body, nil
}

// Delete removes a part.
func (d *Dir) Delete(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete state part %s: %w", id, context.Cause(ctx))
	}
	name, err := d.file(id)
	if err != nil {
		return err
	}
	fault.Point("state/before-delete")
	if err := removed(d.fs.Remove(name)); err != nil {
		return fmt.Errorf("delete state part %s in %s: %w", id, d.path, err)
	}
	return nil
}

// List returns the ids with a prefix. What a killed process left half-written is not listed.
func (d *Dir) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list state parts: %w", context.Cause(ctx))
	}
	entries, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list state parts in %s: %w", d.path, err)
	}
	var ids []string
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), partSuffix)
		if ok && strings.HasPrefix(id, prefix) && !strings.HasPrefix(id, tempPrefix) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids) // file names, with their suffix, are in another order
	return ids, nil
}

// file is the path of a part; ids that could leave the directory are refused.
func (d *Dir) file(id string) (string, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	return filepath.Join(d.path, id+partSuffix), nil
}

func removed(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
