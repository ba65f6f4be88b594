package rig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// A supervisor starts a node again whose invariant was broken, and the run goes on as if nothing had been.
func TestAProcessThatEndedByABugIsFoundInItsLog(t *testing.T) {
	dir := t.TempDir()
	if _, err := rig.Panics(dir); err == nil {
		t.Error("a directory without logs has nothing to find")
	}
	long := strings.Repeat("x", 1<<17)
	for name, text := range map[string]string{
		"n1.log":     `{"msg":"this node leads"}` + "\npanic: ledger: invariant violated: decided twice\n\ngoroutine 1 [running]:\n",
		"n2.log":     long + "panic: no line of its own\n" + `{"msg":"handler panicked; this is a bug","method":"/x"}` + "\n",
		"n3.log":     `{"msg":"vote","text":"panic: in a text"}` + "\nfault: crash at file/after-fsync, hit 1\n{\"msg\":\"torn",
		"orders.log": "fatal error: all goroutines are asleep - deadlock!\n",
		"other.txt":  "panic: no log\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := rig.Panics(dir)
	want := []string{"n1.log, line 2: panic: ledger", "n2.log, line 2: {", "orders.log, line 1: fatal error"}
	if err != nil || len(found) != len(want) {
		t.Fatalf("found %q, %v", found, err)
	}
	for i := range want {
		if !strings.HasPrefix(found[i], want[i]) {
			t.Errorf("found %q, want %q", found[i], want[i])
		}
	}
}
