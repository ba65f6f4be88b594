package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binaries are what the tests run: this example and the coordinator. They are built once, by the
// first test that needs them.
var binaries struct {
	once          sync.Once
	dir           string
	stage, server string
	err           error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if binaries.dir != "" {
		if err := os.RemoveAll(binaries.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// build returns the paths of both programs.
func build(t *testing.T) (stage, server string) {
	t.Helper()
	binaries.once.Do(func() {
		if binaries.dir, binaries.err = os.MkdirTemp("", "three-processes-"); binaries.err != nil { //nolint:usetesting // it outlives the test that builds
			return
		}
		binaries.stage, binaries.server = filepath.Join(binaries.dir, "three-processes"), filepath.Join(binaries.dir, "unisink")
		// Not under the test's context: the next test needs the result too.
		out, err := exec.Command("go", "build", "-o", binaries.dir+string(filepath.Separator), ".", "../../cmd/unisink").CombinedOutput()
		if err != nil {
			binaries.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if binaries.err != nil {
		t.Fatal(binaries.err)
	}
	return binaries.stage, binaries.server
}

// eventually asks until it holds, and fails the test when it does not within limit.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	if !within(limit, holds) {
		t.Fatalf("waited %s for %s", limit, what)
	}
}

// within asks until it holds or limit is over.
func within(limit time.Duration, holds func() bool) bool {
	end := time.NewTimer(limit)
	defer end.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-end.C:
			return false
		case <-again.C:
		}
	}
	return true
}
