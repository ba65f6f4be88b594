//go:build faults

package fault_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/unisink/unisink/internal/fault"
)

// victim is the environment variable that tells this test binary to be a process that
// reaches fault points, instead of a test of them.
const victim = "UNISINK_FAULT_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victim) != "" {
		for range 3 {
			fault.Point("victim/step")
			if err := fault.Err("victim/write"); err != nil {
				fmt.Println(err)
			}
			fmt.Println("survived")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runVictim runs the victim under a plan and returns what it printed on standard output.
func runVictim(t *testing.T, plan string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victim+"=1", fault.Env+"="+plan)
	out, err := cmd.Output()
	return string(out), err
}

func TestCrashKillsAtTheNamedHit(t *testing.T) {
	out, err := runVictim(t, "victim/step@3=crash")
	if err == nil {
		t.Error("the process ended well")
	}
	if got := strings.Count(out, "survived"); got != 2 {
		t.Errorf("survived %d hits before the third, want 2; output:\n%s", got, out)
	}
}

func TestErrorIsReturnedAtTheNamedHit(t *testing.T) {
	out, err := runVictim(t, "victim/write@2=error")
	if err != nil {
		t.Fatal(err)
	}
	want := "survived\ninjected fault at victim/write\nsurvived\nsurvived\n"
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestMistakesInThePlanStopTheProcess(t *testing.T) {
	for _, plan := range []string{"victim/step=explode", "victim/step=error"} {
		if out, err := runVictim(t, plan); err == nil || strings.Contains(out, "survived") {
			t.Errorf("plan %q was ignored; output %q, error %v", plan, out, err)
		}
	}
}

func TestHookSeesEveryPointAndNamesAreRecorded(t *testing.T) {
	refused := errors.New("refused")
	var seen []string
	restore := fault.Set(func(name string) error {
		seen = append(seen, name)
		if name == "b/second" {
			return refused
		}
		return nil
	})
	fault.Point("b/third")
	fault.Point("a/first")
	if err := fault.Err("b/second"); !errors.Is(err, refused) {
		t.Errorf("Err = %v, want what the hook returned", err)
	}
	restore()
	fault.Point("c/later")

	if diff := cmp.Diff([]string{"b/third", "a/first", "b/second"}, seen); diff != "" {
		t.Errorf("hook calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a/first", "b/second", "b/third", "c/later"}, fault.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	fault.Set(func(string) error { return nil })()
	if names := fault.Names(); len(names) != 0 {
		t.Errorf("Set did not start a new count: %v", names)
	}
}

func TestSecondHookIsRefused(t *testing.T) {
	defer fault.Set(func(string) error { return nil })()
	defer func() {
		if recover() == nil {
			t.Error("a second hook replaced the first")
		}
	}()
	fault.Set(func(string) error { return nil })
}

func TestPauseLastsItsDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer fault.Set(func(string) error {
			time.Sleep(5 * time.Second) // virtual
			return nil
		})()
		start := time.Now()
		fault.Point("some/point")
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("paused %s, want 5s", d)
		}
	})
	began := time.Now()
	if _, err := runVictim(t, "victim/step@1=pause:300ms"); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < 300*time.Millisecond {
		t.Errorf("the process paused less than told: it ran %s in all", d)
	}
}
