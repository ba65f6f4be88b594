package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/child"
)

const (
	// startTimeout bounds a start and a restart. Two busy cores need a fifth of it.
	startTimeout = 90 * time.Second
	// stopTimeout bounds a graceful stop, after which the server is killed.
	stopTimeout = 40 * time.Second
	// askTimeout bounds one question whether a server is ready.
	askTimeout = 2 * time.Second
	askEvery   = 20 * time.Millisecond
	portTries  = 3
)

// errPortTaken says that somebody else listened on the port before the server could.
var errPortTaken = errors.New("the port was taken meanwhile")

// errQuiet is how a process ended that reports no error.
var errQuiet = errors.New("exit code 0")

// onFreePorts starts something that chooses its ports, again when one of them was taken between
// the choice and the listening.
func onFreePorts(start func() error) error {
	var err error
	for range portTries {
		if err = start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return err
}

// await asks until the answer is nil. It gives up when the process ends, and when ctx or the
// time for a start does; the error then has the last answer and the last lines of the log.
func await(ctx context.Context, name, log string, p *child.Process, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		one, done := context.WithTimeout(ctx, askTimeout)
		err := ask(one)
		done()
		if err == nil {
			return nil
		}
		t := time.NewTimer(askEvery)
		select {
		case <-t.C:
		case <-p.Done():
			t.Stop()
			return failed(fmt.Errorf("%s ended while it started: %w", name, cmp.Or(p.Err(), errQuiet)), log)
		case <-ctx.Done():
			t.Stop()
			return failed(fmt.Errorf("%s was not ready: %w; it answered last: %w", name, context.Cause(ctx), err), log)
		}
	}
}

// failed adds the last lines of a log to an error, and what they mean.
func failed(err error, log string) error {
	end := tail(log)
	if strings.Contains(end, "Address already in use") {
		err = fmt.Errorf("%w: %w", err, errPortTaken)
	}
	return fmt.Errorf("%w; the last lines of its log:\n%s", err, end)
}

// once runs a program that ends by itself.
func once(ctx context.Context, crew *child.Crew, s child.Spec) error {
	p, err := crew.Start(s)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", s.Name, context.Cause(ctx)), p.Kill())
	}
	if p.Err() != nil {
		return failed(fmt.Errorf("%s failed (%w)", s.Name, p.Err()), s.Log)
	}
	return nil
}

// tail returns the last lines of a file, or why there are none.
func tail(path string) string {
	const most = 64 << 10
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		if _, err := f.Seek(max(0, size-most), io.SeekStart); err != nil {
			return err.Error()
		}
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(data), tailLines)
}

// lastLines returns the last n lines of a text, indented.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return "\t" + strings.Join(lines[max(0, len(lines)-n):], "\n\t")
}

// sleep waits unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
