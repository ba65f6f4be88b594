//go:build !linux

package demo

import "syscall"

// childAttr puts a child into a process group of its own, so that Ctrl-C reaches the demo alone.
// Only Linux can also promise that it dies when the demo is killed with -9.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
