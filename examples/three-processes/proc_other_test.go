//go:build !linux

package main

import "syscall"

// childAttr: only Linux can promise that a child dies with a test that is killed.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
