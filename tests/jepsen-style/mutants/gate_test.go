package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/internal/mutant"
)

// trialCode is a package with a check for each way in which a check can end.
const trialCode = `package a

import (
	"fmt"
	"os"
	"testing"
)

func without(name string) bool {
	if os.Getenv("UNISINK_MUTANT") != name {
		return false
	}
	fmt.Fprintln(os.Stderr, "mutant: this process runs without "+name)
	return true
}

func TestCaught(t *testing.T) {
	t.Run("inner part", func(t *testing.T) {
		if without("a/caught") {
			t.Error("missed")
		}
	})
}

func TestTwo(t *testing.T) {
	if without("a/one") || without("a/two") {
		t.Error("missed")
	}
}

func TestNothing(t *testing.T) {}

func TestBlind(t *testing.T) { without("a/blind") }

func TestPanics(t *testing.T) {
	if without("a/panics") {
		panic("boom")
	}
}

func TestElsewhere(t *testing.T) {
	if without("a/panics-elsewhere") {
		done := make(chan bool)
		go func() { defer close(done); var m map[int]int; m[1] = 1 }()
		<-done
	}
}

func TestHangs(t *testing.T) {
	if without("a/hangs") {
		<-make(chan bool)
	}
}

func TestExits(t *testing.T) {
	if without("a/exits") {
		os.Exit(1)
	}
}

func TestLies(t *testing.T) {
	if without("a/lies") {
		fmt.Println("--- FAIL: TestLies (0.00s)")
		os.Exit(1)
	}
}

func TestSkips(t *testing.T) {
	if without("a/skips") {
		t.Skip("not today")
	}
}

func TestRed(t *testing.T) { t.Error("red") }

func TestPairGood(t *testing.T) {}

func TestPairOther(t *testing.T) {
	if without("a/stranger") {
		t.Fatal("red, but never green")
	}
	t.Skip("not without")
}

func TestLast(t *testing.T) {
	t.Run("red", func(t *testing.T) {
		if without("a/late-panic") {
			t.Error("missed")
		}
	})
	if without("a/late-panic") {
		panic("boom")
	}
}
`

// The gate is tried on a module of its own: a check that ends in any other way than by a test's
// verdict, or that never passed, is no catch.
func TestOnlyAVerdictOfATestThatPassedBeforeIsACatch(t *testing.T) {
	if testing.Short() {
		t.Skip("builds test binaries")
	}
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module trial\n\ngo 1.25\n",
		"a/a_test.go": trialCode,
		"b/b_test.go": "package b\n\nfunc TestBroken(t *testing.T) {}\n",
		"c/c.go":      "package c\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	work := t.TempDir()
	// What an earlier run left in the same directory is not read as this run's.
	if err := os.WriteFile(filepath.Join(work, "a_exits.log"), []byte("\x16--- FAIL: TestExits (0.00s)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	trials := []struct{ name, pkg, run, by, why string }{
		{"a/caught", "./a", "^TestCaught$", "./a TestCaught/inner_part", ""},
		{"a/one", "./a", "^TestTwo$", "./a TestTwo", ""},
		{"a/two", "./a", "^TestTwo$", "./a TestTwo", ""},
		{"a/nothing", "./a", "^TestNothing$", "", "nothing in it asks for the protection"},
		{"a/blind", "./a", "^TestBlind$", "", "it passed"},
		{"a/panics", "./a", "^TestPanics$", "", "it ended in a panic: boom"},
		{"a/panics-elsewhere", "./a", "^TestElsewhere$", "", "it ended in a panic: assignment to entry in nil map"},
		{"a/late-panic", "./a", "^TestLast$", "", "it ended in a panic: boom"},
		{"a/hangs", "./a", "^TestHangs$", "", "it ran out of time"},
		{"a/exits", "./a", "^TestExits$", "", "exit code 1 and no test that failed"},
		{"a/lies", "./a", "^TestLies$", "", "exit code 1 and no test that failed"},
		{"a/skips", "./a", "^TestSkips$", "", "it passed"},
		{"a/red", "./a", "^TestRed$", "", "red with the protection on: failed TestRed"},
		{"a/stranger", "./a", "^TestPair", "", "only tests failed that did not pass with the protection on: TestPairOther"},
		{"a/no-check", "./a", "^TestGone$", "", "no test that passes with the protection on: ^TestGone$"},
		{"a/no-part", "./a", "^TestCaught$/^gone$", "", "no test that passes with the protection on"},
		{"b/broken", "./b", "^TestBroken$", "", "its check does not build"},
		{"c/untested", "./c", "^TestC$", "", "a package without tests"},
		{"d/gone", "./d", "^TestD$", "", "its check does not build"},
	}
	var mutants []mutant.Mutant
	for _, trial := range trials {
		mutants = append(mutants, mutant.Mutant{Name: trial.name, Package: trial.pkg, Run: trial.run})
	}
	g := &gate{root: root, tags: "mutants", work: work, limit: 3 * time.Second, out: io.Discard}
	got, err := g.try(t.Context(), mutants, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(trials) {
		t.Fatalf("%d verdicts of %d mutants", len(got), len(trials))
	}
	for i, v := range got {
		want := trials[i]
		if v.Name != want.name || v.CaughtBy != want.by || !strings.Contains(v.why, want.why) || (v.CaughtBy == "") != (v.why != "") {
			t.Errorf("%s: caught by %q, why %q; want %q, %q", v.Name, v.CaughtBy, v.why, want.by, want.why)
		}
		if v.CaughtBy != "" && (v.AfterS <= 0 || v.AfterS > 3) {
			t.Errorf("%s: caught after %vs", v.Name, v.AfterS)
		}
	}
	if n := len(g.before); n != len(trials)-4 { // three packages have no binary, and two mutants share a check
		t.Errorf("%d checks were run with the protections on", n)
	}
	var said strings.Builder
	if tell(&said, got, len(trials)) {
		t.Error("a run with survivors is green")
	}
	if !strings.Contains(said.String(), "19 of 19 mutants tried, 3 caught, 16 survived") || !strings.Contains(said.String(), "-only a/blind") {
		t.Errorf("the report says:\n%s", said.String())
	}
}

func TestARunThatTriedNothingIsNotGreen(t *testing.T) {
	if tell(io.Discard, nil, 5) {
		t.Error("green without a trial")
	}
	if !tell(io.Discard, []verdict{{Name: "a/b", CaughtBy: "./a TestB"}}, 5) {
		t.Error("red although all that was tried was caught")
	}
}

func TestTheBudgetEndsARunAfterOneMutantAtLeast(t *testing.T) {
	g := &gate{root: t.TempDir(), tags: "mutants", work: t.TempDir(), limit: time.Second, out: io.Discard}
	got, err := g.try(t.Context(), []mutant.Mutant{{Name: "a/a", Package: "./a"}, {Name: "a/b", Package: "./a"}}, time.Nanosecond)
	if err != nil || len(got) != 1 || got[0].Name != "a/a" {
		t.Errorf("tried %v, %v; want the first alone", got, err)
	}
}
