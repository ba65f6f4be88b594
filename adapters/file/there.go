package file

import (
	"errors"
	"io/fs"

	"github.com/unisink/unisink/internal/crashfs"
)

// HasIdentity reports whether a sink has made the directory its own: whether there is something that a process which
// only finishes could look for. It makes nothing.
func HasIdentity(dir string) (bool, error) {
	_, err := layout{fs: crashfs.OS(), dir: dir}.readIdentity()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
