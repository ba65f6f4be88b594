package child_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/internal/child"
)

// asParent makes the test binary a parent that starts a child and waits to be killed.
const asParent = "UNISINK_CHILD_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asParent); dir != "" {
		parent(dir)
	}
	goleak.VerifyTestMain(m)
}

func parent(dir string) {
	p, err := child.New().Start(child.Spec{Name: "sleeper", Path: "sleep", Args: []string{"600"}, Log: filepath.Join(dir, "log")})
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(p.PID()) + "\n")
	<-p.Done()
	os.Exit(0)
}

func crew(t *testing.T) (*child.Crew, func(script string, wait bool) *child.Process) {
	t.Helper()
	c := child.New()
	t.Cleanup(func() {
		if err := c.End(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	return c, func(script string, wait bool) *child.Process {
		t.Helper()
		log := filepath.Join(dir, strconv.FormatInt(time.Now().UnixNano(), 36))
		if wait { // until the script has set its traps: it opens the pipe as its last step
			script += `; exec 3>"` + log + `.fifo"; while :; do sleep 0.05; done`
			if err := syscall.Mkfifo(log+".fifo", 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := c.Start(child.Spec{Name: "sh", Path: "sh", Args: []string{"-c", script}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		if wait {
			f, err := os.Open(log + ".fifo")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
		}
		return p
	}
}

// exists reports whether a process that is not ours to wait for runs.
func exists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestEndLeavesNoProcess(t *testing.T) {
	c, start := crew(t)
	p := start("sleep 600 & wait", false)
	paused := start("true", true)
	if err := paused.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := c.End(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*child.Process{p, paused} {
		if p.Alive() || exists(p.PID()) {
			t.Errorf("process %d runs on", p.PID())
		}
	}
	if _, err := c.Start(child.Spec{Name: "late", Path: "true", Log: filepath.Join(t.TempDir(), "log")}); !errors.Is(err, child.ErrEnded) {
		t.Errorf("a start after the end: %v", err)
	}
}

func TestStopAsksFirstAndKillsWhoDoesNotListen(t *testing.T) {
	_, start := crew(t)
	polite := start("trap 'exit 7' TERM", true)
	if err := polite.Stop(t.Context(), syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if !errors.As(polite.Err(), &exit) || exit.ExitCode() != 7 {
		t.Errorf("ended with %v, want its own exit code 7", polite.Err())
	}
	deaf := start("trap '' TERM", true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := deaf.Stop(ctx, syscall.SIGTERM)
	if err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("stopped with %v", err)
	}
	if deaf.Alive() {
		t.Error("it runs on")
	}
}

func TestStopWakesWhoIsPaused(t *testing.T) {
	_, start := crew(t)
	p := start("trap 'exit 7' TERM", true)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context(), syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

func TestChildDiesWithAKilledParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux promises that")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asParent+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for end := time.Now().Add(20 * time.Second); exists(pid) && !zombie(pid); {
		if time.Now().After(end) {
			t.Fatalf("child %d outlived its parent", pid)
		}
		time.Sleep(5 * time.Millisecond) // the kernel tells nobody but the init process
	}
}

// zombie reports whether a process has ended and only waits to be reaped by the init process.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestProgramThatIsMissingIsAnError(t *testing.T) {
	c, _ := crew(t)
	_, err := c.Start(child.Spec{Name: "nobody", Path: "no-such-program", Log: filepath.Join(t.TempDir(), "log")})
	if !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
