package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// CacheVariable names the environment variable that says where fetched servers are kept.
const CacheVariable = "UNISINK_SERVICES_CACHE"

// cacheDir returns where fetched servers are kept.
func cacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "unisink", "services"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("this user has no cache directory: set %s to a directory that may hold 150 MB: %w", CacheVariable, err)
	}
	return filepath.Join(dir, "unisink", "services"), nil
}

// cached returns the directory that fill filled, now or earlier, in whatever process: an entry
// is there whole or not at all. fill gets an empty directory beside the entry. Of many callers,
// in many processes, one fills and the others wait for it; entries are filled one at a time,
// because Maven's own repository does not bear two writers.
func cached(ctx context.Context, entry string, fill func(ctx context.Context, dir string) error) (string, error) {
	root, err := cacheDir()
	if err != nil {
		return "", err
	}
	final := filepath.Join(root, entry)
	if isDir(final) {
		return final, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("make the cache of servers: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(root, "fetch.lock"))
	if err != nil {
		return "", fmt.Errorf("wait for another process that fetches servers: %w", err)
	}
	defer unlock()
	if isDir(final) {
		return final, nil
	}
	temp, err := os.MkdirTemp(root, "fetching-")
	if err != nil {
		return "", fmt.Errorf("make a directory to fetch into: %w", err)
	}
	if err := errors.Join(fill(ctx, temp), os.Chmod(temp, 0o755)); err != nil {
		return "", errors.Join(err, os.RemoveAll(temp))
	}
	if err := os.Rename(temp, final); err != nil {
		return "", errors.Join(fmt.Errorf("enter %s into the cache: %w", entry, err), os.RemoveAll(temp))
	}
	return final, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// lock takes the lock of a file, which other processes and other callers in this one wait for,
// and returns what gives it back. The kernel gives it back for a process that dies.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = f.Close() }, nil // closing gives it back
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
}
