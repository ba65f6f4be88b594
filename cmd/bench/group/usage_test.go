package group

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestWhatThisProcessUsesIsRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("told by the kernel of Linux only")
	}
	u, err := UsageOf(0)
	if err != nil {
		t.Fatal(err)
	}
	if u.RSS < 1<<20 || u.Peak < u.RSS/2 || u.Own < 1<<18 || u.Own > u.Peak {
		t.Errorf("got %+v", u)
	}
	if _, err := UsageOf(1 << 30); err == nil {
		t.Error("a process that is not there uses nothing")
	}
}

func TestWhatChildrenUseIsCountedWhileTheyLiveAndAfterwards(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("told by the kernel of Linux only")
	}
	parent := exec.CommandContext(t.Context(), "sh", "-c", "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); echo done; (while :; do :; done) & read stop; kill $!")
	parent.Stderr = os.Stderr
	stop, err1 := parent.StdinPipe()
	said, err2 := parent.StdoutPipe()
	if err := errors.Join(err1, err2, parent.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 5)); err != nil { // the first child has ended
		t.Fatal(err)
	}
	first, err := FamilyCPU(parent.Process.Pid)
	if err != nil || first == 0 {
		t.Errorf("a child that has ended used %s, %v", first, err)
	}
	for now := first; now < first+30*time.Millisecond; { // the second spins until it is ended
		if now, err = FamilyCPU(parent.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(stop.Close(), parent.Wait()); err != nil && parent.ProcessState.ExitCode() != 0 {
		t.Error(err)
	}
	if _, err := FamilyCPU(1 << 30); err == nil {
		t.Error("a process that is not there uses nothing")
	}
}

func TestTheBytesBelowADirectoryAreCounted(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"a": 3, "b/c": 4} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := DirBytes(dir); err != nil || n != 7 {
		t.Errorf("%d bytes (%v), want 7", n, err)
	}
	if n, err := DirBytes(filepath.Join(dir, "none")); err != nil || n != 0 {
		t.Errorf("what is not there holds %d bytes (%v)", n, err)
	}
}
