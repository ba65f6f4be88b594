package rig

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
)

// neverMeant are exit codes of unisink that no fault explains: the command line is wrong or a panic ended it, something that
// was named does not exist, a call is not allowed.
var neverMeant = map[int]string{2: "a wrong command line, or a panic", 5: "something that does not exist", 7: "something that is not allowed"}

// NeverMeant says why the end of a process, which nobody asked for, is a mistake of its own: a signal other than kill -9, or a
// code that no fault explains; "" for what a supervisor lives with.
func NeverMeant(err error) string {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return ""
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() != syscall.SIGKILL {
		return fmt.Sprintf("it died of the signal %q", status.Signal())
	}
	if why, bad := neverMeant[exit.ExitCode()]; bad {
		return fmt.Sprintf("exit code %d, which says: %s", exit.ExitCode(), why)
	}
	return ""
}
