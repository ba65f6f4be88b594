package app

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// A binary that somebody built with an adapter of their own has a name of its own.
func TestABinaryOfOnesOwnSpeaksOfItselfByItsName(t *testing.T) {
	paths := [][]string{nil}
	var walk func(under []string, commands []*cli.Command)
	walk = func(under []string, commands []*cli.Command) {
		for _, c := range commands {
			path := append(append([]string{}, under...), c.Name)
			paths = append(paths, path)
			walk(path, c.Subcommands)
		}
	}
	walk(nil, (&app{}).root().Commands)
	for _, path := range paths {
		out, errs, code := calledMine(t, append(path, "--help")...)
		if code != CodeOK || errs != "" || !strings.Contains(out, strings.Join(append([]string{"mine"}, path...), " ")) {
			t.Errorf("%v --help: exit code %d\n%s%s", path, code, out, errs)
		}
		if wrong := regexp.MustCompile("(`|^|\n *)unisink .*").FindString(out); wrong != "" {
			t.Errorf("%v --help names another binary: %q", path, wrong)
		}
	}
	for _, args := range [][]string{{"nope"}, {"list"}, {"pipeline"}, {"pipeline", "nope"}, {"epoch", "show"}, {"resolver"}, {"cluster", "status", "-c", "127.0.0.1"}} {
		out, errs, code := calledMine(t, args...)
		if code != CodeUsage || out != "" || !strings.HasPrefix(errs, "mine: ") || strings.Contains(errs, "unisink") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, errs)
		}
	}
}

// calledMine is what a user of the binary sees.
func calledMine(t *testing.T, args ...string) (out, errs string, code Code) {
	t.Helper()
	var o, e bytes.Buffer
	code = Code(Main(t.Context(), append([]string{"/usr/local/bin/mine"}, args...), WithOutput(&o, &e)))
	return o.String(), e.String(), code
}

func TestTheNameOfABinaryIsTheLastPartOfItsPath(t *testing.T) {
	for arg, want := range map[string]string{"unisink": "unisink", "./bin/unisink": "unisink", "/opt/x.exe": "x", "": "unisink", "/": "unisink"} {
		if got := nameOf([]string{arg}); got != want {
			t.Errorf("%q is called %q, want %q", arg, got, want)
		}
	}
	if got := nameOf(nil); got != "unisink" {
		t.Errorf("nobody is called %q", got)
	}
}

func TestCommandsInATextAreTheBinarysOwn(t *testing.T) {
	const text = "Run `unisink txn show 1`, of unisink:\n  unisink pipeline resume p\n  the unisink schema"
	const want = "Run `mine txn show 1`, of unisink:\n  mine pipeline resume p\n  the unisink schema"
	if got := (&app{name: "mine"}).named(text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := (&app{name: own}).named(text); got != text {
		t.Errorf("got\n%s", got)
	}
}

func TestWhatStandsBelowWhatIsInDoubtNamesTheBinaryToo(t *testing.T) {
	var out bytes.Buffer
	(&app{name: "mine", out: &out}).tellNames("the next start does, or `unisink resolver`:", []string{"directory out"})
	if got, want := out.String(), "the next start does, or `mine resolver`:\n  directory out\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
