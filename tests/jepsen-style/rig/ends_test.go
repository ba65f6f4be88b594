package rig_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

func TestAnEndThatNoFaultExplainsIsAProblem(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0": "", "exit 1": "", "exit 3": "", "exit 6": "", "kill -KILL $$": "",
		"exit 2": "exit code 2", "exit 5": "exit code 5", "exit 7": "exit code 7", "kill -SEGV $$": "segmentation fault", "kill -ABRT $$": "abort",
	} {
		err := exec.CommandContext(t.Context(), "sh", "-c", script).Run()
		if got := rig.NeverMeant(fmt.Errorf("n1: %w", err)); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s (%v): %q, want %q", script, err, got, want)
		}
	}
}
