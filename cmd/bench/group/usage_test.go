package group

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestWhatThisProcessUsesIsRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("told by the kernel of Linux only")
	}
	u, err := UsageOf(0)
	if err != nil {
		t.Fatal(err)
	}
	if u.RSS < 1<<20 || u.Peak < u.RSS/2 {
		t.Errorf("got %+v", u)
	}
	if _, err := UsageOf(1 << 30); err == nil {
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
