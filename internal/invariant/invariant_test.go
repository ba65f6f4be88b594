package invariant_test

import (
	"errors"
	"testing"

	"github.com/unisink/unisink/internal/invariant"
)

// violation runs f and returns the message it panicked with, or "" if it returned.
func violation(t *testing.T, f func()) (message string) {
	t.Helper()
	defer func() {
		switch v := recover().(type) {
		case nil:
		case invariant.Violation:
			message = v.Error()
		default:
			t.Fatalf("panicked with %T, want Violation", v)
		}
	}()
	f()
	return ""
}

func TestMustStopsOnlyOnAFalseCondition(t *testing.T) {
	if got := violation(t, func() { invariant.Must(true, "never shown") }); got != "" {
		t.Errorf("a true condition stopped the process: %s", got)
	}
	got := violation(t, func() { invariant.Must(false, "epoch %d.%d decided twice", 7, 12) })
	if want := "invariant violated: epoch 7.12 decided twice"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

func TestUnreachableAlwaysStops(t *testing.T) {
	got := violation(t, func() { invariant.Unreachable("state %d", 3) })
	if want := "invariant violated: state 3"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

func TestCheckRunsExactlyWhenEnabled(t *testing.T) {
	ran := false
	got := violation(t, func() {
		invariant.Check(func() error {
			ran = true
			return errors.New("hashes differ")
		})
	})
	if ran != invariant.Enabled {
		t.Errorf("ran = %v in a build with Enabled = %v", ran, invariant.Enabled)
	}
	if want := "invariant violated: hashes differ"; invariant.Enabled && got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if got := violation(t, func() { invariant.Check(func() error { return nil }) }); got != "" {
		t.Errorf("a passing check stopped the process: %s", got)
	}
}
