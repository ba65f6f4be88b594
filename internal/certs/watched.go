package certs

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unisink/unisink/internal/obs"
)

// lookEvery is how often the files are looked at, at most.
const lookEvery = time.Second

// maxFile bounds a file, bytes: one that is larger is none of ours.
const maxFile = 1 << 20

// Watched is a value made of files. It is safe for concurrent use.
type Watched[T any] struct {
	what  string
	paths []string
	parse func(contents [][]byte) (T, error)
	log   *slog.Logger

	value atomic.Pointer[T]
	due   atomic.Int64 // Unix nanoseconds of the next look

	mu   sync.Mutex // guards the rest, and is held while files are read; nobody waits for it
	read [][]byte   // what the value was made of
	told string     // the last trouble that was logged
}

// Watch reads the files for the first time; an error means that they cannot be used. What is for the
// log: "certificate", "roles".
func Watch[T any](log *slog.Logger, what string, parse func(contents [][]byte) (T, error), paths ...string) (*Watched[T], error) {
	w := &Watched[T]{what: what, paths: paths, parse: parse, log: log}
	contents, err := w.contents()
	if err != nil {
		return nil, err
	}
	v, err := parse(contents)
	if err != nil {
		return nil, err
	}
	w.value.Store(&v)
	w.read = contents
	w.due.Store(time.Now().Add(lookEvery).UnixNano())
	return w, nil
}

// Now is the value as the files have it, or had it a second ago. While they cannot be used it is the
// last one that could.
func (w *Watched[T]) Now() T {
	if now := time.Now(); now.UnixNano() >= w.due.Load() && w.mu.TryLock() {
		w.due.Store(now.Add(lookEvery).UnixNano())
		w.look()
		w.mu.Unlock()
	}
	return *w.value.Load()
}

// look reads the files; mu is held.
func (w *Watched[T]) look() {
	contents, err := w.contents()
	same := err == nil
	for i := range contents {
		same = same && bytes.Equal(contents[i], w.read[i])
	}
	if same {
		w.told = ""
		return
	}
	if err == nil {
		var v T
		if v, err = w.parse(contents); err == nil {
			w.value.Store(&v)
			w.read, w.told = contents, ""
			w.log.Info("files read again", slog.String("what", w.what))
			return
		}
	}
	if text := err.Error(); text != w.told {
		w.told = text
		w.log.Warn("files cannot be used; what was read before stays in use", slog.String("what", w.what), obs.Err(err))
	}
}

func (w *Watched[T]) contents() ([][]byte, error) {
	out := make([][]byte, len(w.paths))
	var errs []error
	for i, path := range w.paths {
		content, err := os.ReadFile(path)
		if err == nil && len(content) > maxFile {
			err = fmt.Errorf("%s has %d bytes, which is too much", path, len(content))
		}
		out[i] = content
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}
