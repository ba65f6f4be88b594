//go:build !linux

package services

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// children returns the processes that a process started.
func children(pid int) ([]int, error) {
	text, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output() //nolint:noctx // it looks at a table
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil // there are none
	}
	if err != nil {
		return nil, fmt.Errorf("list the processes that process %d started: %w", pid, err)
	}
	return numbers(string(text))
}

// runs reports whether a process has not ended.
func runs(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// halted is not looked at here.
func halted(int) bool { return true }
