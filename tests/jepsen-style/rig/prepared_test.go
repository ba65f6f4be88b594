package rig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// binary is a program that says and ends as a test wants.
func binary(t *testing.T, out, said string, code int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "unisink")
	text := fmt.Sprintf("#!/bin/sh\nprintf '%%s' '%s'\nprintf '%%s' '%s' >&2\nexit %d\n", out, said, code)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	return path
}

// `txn list --in-doubt` ends with 0 though something is in doubt; only a broken promise has a code of its own.
func TestWhatIsInDoubtIsSeenWhateverTheExitCode(t *testing.T) {
	const one = `{"transactions":[{"txn":"orders/0@7.12","outcome":"OUTCOME_COMMITTED","next":"member sink finishes it"}]}`
	for name, c := range map[string]struct {
		out, said string
		code      int
		want      []string
		fails     bool
	}{
		"nothing":            {`{"transactions":[]}`, "", 0, nil, false},
		"unfinished":         {one, "", 0, []string{"orders/0@7.12"}, false},
		"a broken promise":   {one, "unisink: needs a person", 11, []string{"needs a person", "orders/0@7.12"}, false},
		"no answer":          {"", "unisink: no leader", 3, []string{"no leader"}, false},
		"no answer, and 0":   {"", "", 0, nil, true},
		"a table, not JSON":  {"UNDECIDED", "", 0, nil, true},
		"an unknown program": {"", "", -1, nil, true},
	} {
		bin := filepath.Join(t.TempDir(), "absent")
		if c.code >= 0 {
			bin = binary(t, c.out, c.said, c.code)
		}
		left, err := rig.InDoubt(t.Context(), bin, []string{"127.0.0.1:1"})
		if (err != nil) != c.fails || len(left) != len(c.want) {
			t.Errorf("%s: %q, %v", name, left, err)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(left[i], want) {
				t.Errorf("%s: %q does not say %q", name, left[i], want)
			}
		}
	}
}
