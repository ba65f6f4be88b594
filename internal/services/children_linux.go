package services

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// children returns the processes that a process started from its first thread, which is the only
// one of a PostgreSQL server.
func children(pid int) ([]int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, fmt.Errorf("list the processes that process %d started: %w", pid, err)
	}
	return numbers(string(text))
}

// runs reports whether a process has not ended; one that has, and waits to be asked for its exit
// code, does not run.
func runs(pid int) bool {
	state, err := stateOf(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
	}
	return state != 'Z' && state != 'X'
}

// halted reports whether no thread of a process runs: a signal to stop takes effect a little
// after it was sent.
func halted(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return true // the pattern is well formed
	}
	for _, t := range threads {
		if state, err := stateOf(t); err == nil && state != 'T' && state != 't' && state != 'Z' && state != 'X' {
			return false
		}
	}
	return true
}

// stateOf returns the state of a process or thread: "PID (NAME) STATE ...", where the name may
// hold anything.
func stateOf(file string) (byte, error) {
	stat, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	after := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(after) == 0 {
		return 0, fmt.Errorf("%s has no state: %q", file, stat)
	}
	return after[0], nil
}
