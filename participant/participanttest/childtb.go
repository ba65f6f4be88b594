package participanttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"testing"
)

// childTB is the testing.TB of a child, which runs no test. What fails it ends the child.
type childTB struct {
	testing.TB // nil: its methods are all below, but the one that nobody can call
	name       string

	mu   sync.Mutex // guards err
	err  error
	dirs []string
}

// run calls f and tells how it went.
func (c *childTB) run(f func() error) error {
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = f()
	}()
	<-done
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, dir := range c.dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return errors.Join(err, c.err)
}

func (c *childTB) fail(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, errors.New(text))
}

func (c *childTB) Failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}
func (c *childTB) Name() string                      { return c.name }
func (c *childTB) Helper()                           {}
func (c *childTB) Cleanup(func())                    {} // the process ends, as a killed one does
func (c *childTB) Context() context.Context          { return context.Background() }
func (c *childTB) Log(args ...any)                   { fmt.Fprintln(os.Stderr, args...) }
func (c *childTB) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (c *childTB) Fail()                             { c.fail("failed") }
func (c *childTB) Error(args ...any)                 { c.fail(fmt.Sprint(args...)) }
func (c *childTB) Errorf(format string, args ...any) { c.fail(fmt.Sprintf(format, args...)) }

func (c *childTB) FailNow() {
	c.fail("failed")
	runtime.Goexit()
}

func (c *childTB) Fatal(args ...any) {
	c.Error(args...)
	runtime.Goexit()
}

func (c *childTB) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

// Skip and its like fail: a child is asked for what the test itself has not skipped.
func (c *childTB) Skip(args ...any) { c.Fatal("skipped in a child: " + fmt.Sprint(args...)) }

func (c *childTB) Skipf(format string, args ...any) {
	c.Fatal("skipped in a child: " + fmt.Sprintf(format, args...))
}
func (c *childTB) SkipNow()            { c.Fatal("skipped in a child") }
func (c *childTB) Skipped() bool       { return false }
func (c *childTB) Attr(string, string) {}
func (c *childTB) Output() io.Writer   { return os.Stderr }
func (c *childTB) ArtifactDir() string { return c.TempDir() }
func (c *childTB) Setenv(key, value string) {
	if err := os.Setenv(key, value); err != nil {
		c.Fatal(err)
	}
}

func (c *childTB) Chdir(dir string) {
	if err := os.Chdir(dir); err != nil {
		c.Fatal(err)
	}
}

func (c *childTB) TempDir() string {
	dir, err := os.MkdirTemp("", "conformance-child-")
	if err != nil {
		c.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirs = append(c.dirs, dir)
	return dir
}
