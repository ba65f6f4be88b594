package services

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/unisink/unisink/internal/child"
)

// signalAll sends s to processes; that one has ended is no error.
func signalAll(pids []int, s syscall.Signal) error {
	var errs []error
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("send %s to process %d: %w", s, pid, err))
		}
	}
	return errors.Join(errs...)
}

// until waits for a condition that holds soon.
func until(what string, holds func() bool) error {
	for end := time.Now().Add(stopTimeout); !holds(); {
		if time.Now().After(end) {
			return fmt.Errorf("%s: it has not come about in %s", what, stopTimeout)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// halt stops a process where it is and returns when it stands.
func halt(p *child.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return until(fmt.Sprintf("stop process %d", p.PID()), func() bool { return !p.Alive() || halted(p.PID()) })
}

// numbers reads process ids that stand apart.
func numbers(text string) ([]int, error) {
	var pids []int
	for word := range strings.FieldsSeq(text) {
		pid, err := strconv.Atoi(word)
		if err != nil || pid <= 0 {
			return nil, fmt.Errorf("%q is no process id", word)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
