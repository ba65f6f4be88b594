package demo

import "syscall"

// childAttr puts a child into a process group of its own, so that Ctrl-C reaches the demo alone,
// and has the kernel kill it when the demo dies in whatever way.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
