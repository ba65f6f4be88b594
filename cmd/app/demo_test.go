//go:build linux

package app_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// demoRun is `unisink demo -o json` as a process, with a place of its own for temporary files and a
// mark in the environment by which its children are known.
type demoRun struct {
	cmd      *exec.Cmd
	mark     string
	tmp      string
	out, err bytes.Buffer
}

func startDemo(t *testing.T, more ...string) *demoRun {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	d := &demoRun{tmp: t.TempDir()}
	// PostgreSQL does not run as root, and the user that it runs as must come there.
	for _, dir := range []string{d.tmp, filepath.Dir(d.tmp)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.mark = "UNISINK_TEST_DEMO=" + d.tmp
	d.cmd = exec.Command("unisink", append([]string{"demo", "-o", "json"}, more...)...)
	d.cmd.Env = append(os.Environ(), d.mark, "TMPDIR="+d.tmp)
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.err
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill() }) // it has ended, unless the test failed
	return d
}

// processes are those that carry the mark.
func (d *demoRun) processes(t *testing.T) (found []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(env, []byte(d.mark)) {
			continue // it ended meanwhile, or is not ours
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 {
			continue // a zombie has neither
		}
		found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	return found
}

func (d *demoRun) leavesNoProcess(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; pause(50 * time.Millisecond) {
		left := d.processes(t)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left running:\n%s", strings.Join(left, "\n"))
		}
	}
}

func (d *demoRun) leavesNoDirectory(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(d.tmp)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind in the temporary directory: %v, %v", left, err)
	}
}

// midRun waits until broker, nodes and pipeline run: five children and the demo.
func (d *demoRun) midRun(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); len(d.processes(t)) < 6; pause(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the demo did not get going: %s", d.err.String())
		}
	}
}

func (d *demoRun) code() int { return d.cmd.ProcessState.ExitCode() }

func TestDemoSurvivesItsKillsAndEndsClean(t *testing.T) {
	endsClean(t, startDemo(t), map[string]int{"pipeline": 2, "leader": 1})
}

// The same into PostgreSQL as well, which is a real server.
func TestDemoOfAllSinksSurvivesItsKillsAndEndsClean(t *testing.T) {
	endsClean(t, startDemo(t, "--sinks", "all"), map[string]int{"pipeline": 2, "leader": 1, "database": 2, "resolver": 1})
}

func endsClean(t *testing.T, d *demoRun, kills map[string]int) {
	t.Helper()
	began := time.Now()
	err := d.cmd.Wait()
	t.Logf("it took %s", time.Since(began))
	if err != nil {
		t.Fatalf("%v\n%s%s", err, d.out.String(), d.err.String())
	}
	var r struct {
		Orders int64
		Kills  []struct {
			Target, Outcome string
			Counted         bool
		}
		Verify verdict
	}
	if err := json.Unmarshal(d.out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, d.out.String())
	}
	counted := map[string]int{}
	for _, k := range r.Kills {
		if k.Counted {
			counted[k.Target]++
		}
	}
	if r.Verify.Verdict != "clean" || int64(r.Verify.Records) != r.Orders || r.Orders < 5000 || !maps.Equal(counted, kills) {
		t.Errorf("%s", d.out.String())
	}
	d.leavesNoProcess(t)
	d.leavesNoDirectory(t)
}

func TestDemoLeavesNothingBehindAfterCtrlC(t *testing.T) {
	d := startDemo(t)
	d.midRun(t)
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err == nil || d.code() != 1 {
		t.Errorf("exit code %d", d.code())
	}
	if !strings.Contains(d.err.String(), "unisink: stopped; nothing is left running") {
		t.Errorf("it said %s", d.err.String())
	}
	d.leavesNoProcess(t)
	d.leavesNoDirectory(t)
}

func TestDemoLeavesNoProcessWhenItIsKilled(t *testing.T) {
	d := startDemo(t)
	d.midRun(t)
	if err := d.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait() // killed
	d.leavesNoProcess(t)
}
