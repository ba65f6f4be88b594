package services

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// unprivileged returns whom PostgreSQL runs as: it refuses to run as root, so then it is
// nobody. For anyone else it is nil.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL refuses to run as root, and there is no user nobody to run it as: run the tests as another user: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("read the numbers of user nobody: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// reachable makes a temporary directory and returns what removes it. For another user than this
// process's own it lies where everybody can go.
func reachable(u *syscall.Credential) (dir string, remove func() error, err error) {
	dir, remove, err = tempDir("unisink-postgres-")
	if err != nil || u == nil {
		return dir, remove, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	for up := dir; ; up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil {
			return "", nil, errors.Join(err, remove())
		}
		if info.Mode()&0o001 == 0 {
			return "", nil, errors.Join(
				fmt.Errorf("PostgreSQL runs as nobody here, who cannot enter %s: set TMPDIR to a directory that everybody can enter, such as /tmp", up),
				remove())
		}
		if up == filepath.Dir(up) {
			return dir, remove, nil
		}
	}
}

// mirror makes dst look like the tree src, for reading alone: files are linked where the file
// system allows it, else copied.
func mirror(src, dst string) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, name)
		switch {
		case d.IsDir():
			return os.Mkdir(to, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		case os.Link(path, to) == nil:
			return nil
		}
		return copyFile(path, to)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
