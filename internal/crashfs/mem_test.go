package crashfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/unisink/unisink/internal/crashfs"
)

// put writes a file and does as much for its durability as it is told.
func put(t *testing.T, f crashfs.FS, name, text string, sync, syncDir bool) {
	t.Helper()
	w, err := f.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if syncDir {
		if err := f.SyncDir(filepath.Dir(name)); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, f crashfs.FS, name string) string {
	t.Helper()
	text, err := crashfs.ReadFile(f, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "<none>"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestACrashForgetsWhatWasNotSynced(t *testing.T) {
	for _, c := range []struct {
		name          string
		sync, syncDir bool
		want          string
	}{
		{"content and name synced", true, true, "x"},
		{"name synced, content not", false, true, ""},
		{"content synced, name not", true, false, "<none>"},
		{"nothing synced", false, false, "<none>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := crashfs.NewMem("/d")
			put(t, m, "/d/f", "x", c.sync, c.syncDir)
			if got := read(t, m, "/d/f"); got != "x" {
				t.Fatalf("before the crash: %q", got)
			}
			m.Reboot()
			if got := read(t, m, "/d/f"); got != c.want {
				t.Fatalf("after the crash: %q, want %q", got, c.want)
			}
		})
	}
}

func TestNamesLinkedRenamedAndRemovedComeBackWithoutSyncDir(t *testing.T) {
	m := crashfs.NewMem("/d", "/e")
	put(t, m, "/d/f", "x", true, true)
	put(t, m, "/d/g", "y", true, true)
	for _, err := range []error{m.Link("/d/f", "/e/f"), m.Rename("/d/g", "/e/g"), m.Remove("/d/f")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := m.SyncDir("/e"); err != nil { // /d is not synced
		t.Fatal(err)
	}
	m.Reboot()
	for name, want := range map[string]string{"/d/f": "x", "/d/g": "y", "/e/f": "x", "/e/g": "y"} {
		if got := read(t, m, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestLinkNeverReplaces(t *testing.T) {
	for name, f := range map[string]crashfs.FS{"memory": crashfs.NewMem("/d"), "disk": crashfs.OS()} {
		t.Run(name, func(t *testing.T) {
			dir := "/d"
			if name == "disk" {
				dir = t.TempDir()
			}
			put(t, f, dir+"/a", "a", true, true)
			put(t, f, dir+"/b", "b", true, true)
			if err := f.Link(dir+"/a", dir+"/b"); !errors.Is(err, fs.ErrExist) {
				t.Fatalf("link over a file: %v", err)
			}
			if got := read(t, f, dir+"/b"); got != "b" {
				t.Fatalf("it became %q", got)
			}
		})
	}
}

func TestEveryOperationAfterTheCrashFailsUntilReboot(t *testing.T) {
	m := crashfs.NewMem("/d")
	put(t, m, "/d/f", "x", true, true)
	m.CrashAfter(0)
	if err := m.Link("/d/f", "/d/g"); !errors.Is(err, crashfs.ErrCrashed) {
		t.Fatalf("the operation at the crash: %v", err)
	}
	if _, err := m.Stat("/d/f"); !errors.Is(err, crashfs.ErrCrashed) {
		t.Fatalf("one after it: %v", err)
	}
	if !m.Crashed() {
		t.Fatal("the crash is not told")
	}
	m.Reboot()
	if got := read(t, m, "/d/f"); got != "x" {
		t.Fatalf("after reboot: %q", got)
	}
}

func TestFailAnswersWithTheErrorGiven(t *testing.T) {
	m := crashfs.NewMem("/d")
	full := errors.New("no space left on device")
	m.Fail(func(op crashfs.Op, name string) error {
		if op == crashfs.OpWrite && name == "/d/f" {
			return full
		}
		return nil
	})
	w, err := m.OpenFile("/d/f", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, full) {
		t.Fatalf("write to a full disk: %v", err)
	}
}

func TestMkdirAllMakesEveryParentDurable(t *testing.T) {
	m := crashfs.NewMem("/d")
	if err := crashfs.MkdirAll(m, "/d/a/b/c", 0o755); err != nil {
		t.Fatal(err)
	}
	m.Reboot()
	if info, err := m.Stat("/d/a/b/c"); err != nil || !info.IsDir() {
		t.Fatalf("after a crash: %v, %v", info, err)
	}
	put(t, m, "/d/file", "x", true, true)
	if err := crashfs.MkdirAll(m, "/d/file", 0o755); err == nil {
		t.Fatal("a file was taken for a directory")
	}
}
