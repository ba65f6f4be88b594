package file

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// layout knows where things lie under a target directory.
type layout struct {
	fs  crashfs.FS
	dir string
}

func (l layout) private() string             { return filepath.Join(l.dir, ".unisink") }
func (l layout) id() string                  { return filepath.Join(l.private(), "id") }
func (l layout) stagedRoot() string          { return filepath.Join(l.private(), "staged") }
func (l layout) staged(branch string) string { return filepath.Join(l.stagedRoot(), branch) }
func (l layout) fences() string              { return filepath.Join(l.private(), "fence") }
func (l layout) scratch() string             { return filepath.Join(l.private(), "tmp") }
func (l layout) manifests() string           { return filepath.Join(l.dir, "_manifests") }
func (l layout) manifest(branch string) string {
	return filepath.Join(l.manifests(), branch+".json")
}

// fileName is the name of the n-th file of a branch, staged and published alike.
func fileName(branch string, n int) string { return fmt.Sprintf("%s-%04d%s", branch, n, extension) }

// prepare makes the directories, and the identity where there is none.
func (l layout) prepare() (identity string, err error) {
	info, err := l.fs.Stat(l.dir)
	switch {
	case err == nil && !info.IsDir():
		return "", fmt.Errorf("%s is a file; the file sink writes into a directory, name another: %w", l.dir, participant.ErrMisconfigured)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", l.denied("look at", err)
	}
	if err := l.furnish(); err != nil {
		return "", err
	}
	return l.identity()
}

// furnish makes the directories that are missing in the target.
func (l layout) furnish() error {
	for _, d := range []string{l.stagedRoot(), l.fences(), l.scratch(), l.manifests()} {
		if err := crashfs.MkdirAll(l.fs, d, 0o755); err != nil {
			return l.denied("make", err)
		}
	}
	return nil
}

// denied adds who is to mend what no repetition mends.
func (l layout) denied(do string, err error) error {
	err = fmt.Errorf("%s the target directory %s: %w", do, l.dir, err)
	if errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "not a directory") || strings.Contains(err.Error(), "in the way") {
		return fmt.Errorf("%w: %w", participant.ErrMisconfigured, err)
	}
	return err
}

// identity reads the directory's id, or gives it one. Whoever comes second takes the first one's.
func (l layout) identity() (string, error) {
	for {
		id, err := l.readIdentity()
		if err == nil {
			// It may have been published by a process that died before it made the name durable.
			return id, l.syncDir(l.private())
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		var raw [16]byte
		if _, err := rand.Read(raw[:]); err != nil {
			return "", fmt.Errorf("draw an identity: %w", err)
		}
		err = l.publish(l.id(), []byte(hex.EncodeToString(raw[:])+"\n"))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", l.denied("give an identity to", err)
		}
	}
}

// readIdentity reads the directory's id; fs.ErrNotExist when it has none.
func (l layout) readIdentity() (string, error) {
	text, err := crashfs.ReadFile(l.fs, l.id())
	if err != nil {
		return "", l.denied("read the identity of", err)
	}
	id := strings.TrimSpace(string(text))
	if len(id) != 32 {
		return "", fmt.Errorf("the identity %s of the directory is damaged (%q); put back its 32 hexadecimal digits from a handle: %w", l.id(), id, participant.ErrMisconfigured)
	}
	return id, nil
}

// still reports an error unless the directory is there and has the identity id. A disk that is not
// mounted leaves an empty directory under its name, in which nothing can be looked up and nothing
// may be written.
func (l layout) still(id string) error {
	now, err := l.readIdentity()
	switch {
	case err == nil && now == id, mutant.On("file/absence-is-no-proof"):
		return nil
	case err == nil:
		return fmt.Errorf("%s has the identity %s, and this process writes to the one with %s; put that one back, or start the process again to use this one: %w",
			l.dir, now, id, participant.ErrRetry)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s has lost its identity %s (no %s): mount it or put it back, or start the process again to use it as a new one: %w",
			l.dir, id, l.id(), participant.ErrRetry)
	default:
		return err
	}
}

// publish writes a small file whole or not at all, never over another one, and makes it durable.
func (l layout) publish(name string, text []byte) error {
	tmp, err := l.writeScratch(text)
	if err != nil {
		return err
	}
	linkErr := l.fs.Link(tmp, name)
	// The scratch name is of no use any more; one that a crash leaves is removed by the next Open.
	if err := l.fs.Remove(tmp); err != nil && linkErr == nil {
		return err
	}
	if linkErr != nil {
		return linkErr
	}
	return l.syncDir(filepath.Dir(name))
}

// replace is publish over what may be there.
func (l layout) replace(name string, text []byte) error {
	tmp, err := l.writeScratch(text)
	if err != nil {
		return err
	}
	if err := l.fs.Rename(tmp, name); err != nil {
		return errors.Join(err, l.fs.Remove(tmp))
	}
	return l.syncDir(filepath.Dir(name))
}

// writeScratch leaves nothing behind when it fails: whoever is out of space tries again and again.
func (l layout) writeScratch(text []byte) (name string, err error) {
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("draw a name: %w", err)
	}
	name = filepath.Join(l.scratch(), hex.EncodeToString(raw[:]))
	f, err := l.fs.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, l.fs.Remove(name))
	}
	return name, err
}

// syncDir makes the names in a directory durable.
func (l layout) syncDir(name string) error {
	if mutant.On("file/sync-directories") {
		return nil
	}
	return l.fs.SyncDir(name)
}

// exists reports whether there is a regular file of that name, and how long it is.
func (l layout) exists(name string) (size int64, found bool, err error) {
	info, err := l.fs.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case !info.Mode().IsRegular():
		return 0, false, fmt.Errorf("%s is no regular file: %w", name, participant.ErrMisconfigured)
	}
	return info.Size(), true, nil
}

// abandoned is how old a scratch file must be before another process takes it for abandoned.
const abandoned = time.Hour

func old(info fs.FileInfo) bool {
	return !info.ModTime().IsZero() && time.Since(info.ModTime()) > abandoned
}

// sortManifests orders by scope and holder, then by epoch as a pair of numbers.
func sortManifests(ms []Manifest) {
	slices.SortFunc(ms, func(a, b Manifest) int {
		x, y := a.Name, b.Name
		return cmp.Or(
			cmp.Compare(x.Namespace.String(), y.Namespace.String()), cmp.Compare(x.Pipeline, y.Pipeline), cmp.Compare(x.Shard, y.Shard),
			cmp.Compare(x.Member, y.Member), cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Txn, y.Txn),
			cmp.Compare(x.Generation, y.Generation), cmp.Compare(x.N, y.N))
	})
}
