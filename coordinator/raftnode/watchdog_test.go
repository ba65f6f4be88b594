package raftnode

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const watchedChild = "UNISINK_TEST_WATCHED_CHILD"

// TestAPausedProcessIsNotAHungDisk pauses a process in mid-write for longer than the limit: the
// write returns soon after it goes on, and the node lives.
func TestAPausedProcessIsNotAHungDisk(t *testing.T) {
	const limit = 800 * time.Millisecond
	if os.Getenv(watchedChild) != "" {
		w := startWatchdog(limit, func() { os.Exit(9) })
		os.Stdout.WriteString("writing\n")         //nolint:errcheck // the parent sees what is missing
		bufio.NewReader(os.Stdin).ReadString('\n') //nolint:errcheck // the write ends when the parent says so, or dies
		w.stop()
		os.Exit(0)
	}
	if testing.Short() {
		t.Skip("pauses a process for a second")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAPausedProcessIsNotAHungDisk$")
	cmd.Env = append(os.Environ(), watchedChild+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadBytes('\n'); !bytes.Equal(line, []byte("writing\n")) {
		t.Fatalf("the child said %q, error %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * limit) // another process stands still, in real time
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(limit / 4) // and goes on for a moment before its write returns
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the paused process ended with %v", err)
	}
}
