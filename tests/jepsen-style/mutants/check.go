package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/mutant"
)

// grace is what a check gets beyond its own time-out, to say that it ran out of time.
const grace = 5 * time.Second

// check is one run of some tests of one test binary.
type check struct {
	dir    string        // of the package, where its tests run
	binary string        // that was built from it
	run    string        // pattern of the tests' names
	off    string        // the mutant that is on; empty: the code as it is
	limit  time.Duration // longest time it may take
	log    string        // file for all it prints
}

// outcome is how a check ended.
type outcome struct {
	exit   int           // exit code; -1: it was killed
	passed []string      // tests that passed, as go test names them
	failed []string      // tests that failed
	asked  bool          // the protection that is off was asked for
	took   time.Duration // from its start to its end
	out    string        // all it printed
}

// do runs a check and returns when all its processes have ended.
func (c check) do(ctx context.Context) (outcome, error) {
	// What an earlier run left in a directory that is kept is not this run's.
	if err := os.Remove(c.log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return outcome{}, err
	}
	crew := child.New()
	p, err := crew.Start(child.Spec{
		Name: "the check " + c.run, Path: c.binary, Dir: c.dir, Log: c.log,
		Args: []string{"-test.run=" + c.run, "-test.v=test2json", "-test.failfast", "-test.timeout=" + c.limit.String()},
		Env:  []string{mutant.Env + "=" + c.off},
	})
	if err != nil {
		return outcome{}, errors.Join(err, crew.End())
	}
	begun := time.Now()
	limit, cancel := context.WithTimeout(ctx, c.limit+grace)
	defer cancel()
	select {
	case <-p.Done():
	case <-limit.Done():
	}
	took := time.Since(begun)
	if err := crew.End(); err != nil {
		return outcome{}, err
	}
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	text, err := os.ReadFile(c.log)
	if err != nil {
		return outcome{}, fmt.Errorf("read what the check printed: %w", err)
	}
	o := read(string(text))
	o.exit, o.took = exitCode(p.Err()), took
	return o, nil
}

func exitCode(err error) int {
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.ExitCode()
	default:
		return -1
	}
}

// read takes from a check's output what was said of each test. The byte before a verdict is what
// -test.v=test2json sets there, so that nothing a test prints is taken for one.
func read(text string) outcome {
	o := outcome{out: text}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "mutant: this process runs without ") {
			o.asked = true
		}
		_, said, found := strings.Cut(line, "\x16")
		if !found {
			continue
		}
		fields := strings.Fields(said)
		if len(fields) < 3 || fields[0] != "---" {
			continue
		}
		switch fields[1] {
		case "PASS:":
			o.passed = append(o.passed, fields[2])
		case "FAIL:":
			o.failed = append(o.failed, fields[2])
		}
	}
	return o
}

// trouble says why a check of the code as it is proves nothing, or "". Run is its pattern: one that
// names subtests and matches none would pass by its outer test alone.
func (o outcome) trouble(run string) string {
	deep := func(name string) bool { return strings.Count(name, "/") >= strings.Count(run, "/") }
	switch {
	case o.exit != 0:
		return "the check is red with the protection on: " + o.ending()
	case !slices.ContainsFunc(o.passed, deep):
		return "the check has no test that passes with the protection on: " + run
	}
	return ""
}

// ending says in a few words how a check ended.
func (o outcome) ending() string {
	switch {
	case strings.Contains(o.out, "panic: test timed out after"), o.exit == -1:
		return fmt.Sprintf("it ran out of time after %.0fs", o.took.Seconds())
	case o.exit == 1 && len(o.failed) > 0:
		return "failed " + strings.Join(leaves(o.failed), ", ")
	case o.exit == 0:
		return "it passed"
	}
	for line := range strings.Lines(o.out) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return "it ended in a " + strings.TrimSpace(line)
		}
	}
	return fmt.Sprintf("it ended with exit code %d and no test that failed", o.exit)
}

// caught names the test that missed the protection, or says why none did. Before is how the same
// check ended with the protection on.
func (o outcome) caught(before outcome) (by, why string) {
	if o.exit != 1 || len(o.failed) == 0 {
		if o.exit == 0 && !o.asked {
			return "", "it passed, and nothing in it asks for the protection"
		}
		return "", o.ending()
	}
	for _, name := range leaves(o.failed) {
		top, _, _ := strings.Cut(name, "/")
		if slices.Contains(before.passed, top) {
			return name, ""
		}
	}
	return "", "only tests failed that did not pass with the protection on: " + strings.Join(leaves(o.failed), ", ")
}

// leaves drops tests that failed only because one inside them did.
func leaves(failed []string) []string {
	var out []string
	for _, name := range failed {
		inside := func(other string) bool { return strings.HasPrefix(other, name+"/") }
		if !slices.ContainsFunc(failed, inside) {
			out = append(out, name)
		}
	}
	return out
}

// binaryOf names the test binary of a package.
func binaryOf(dir, pkg string) string {
	return filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "_")+".test")
}
