package main

import (
	"strings"
	"testing"
)

const doc = `# Failures

| id | what happened | what holds here | tests |
|---|---|---|---|
| O9 | torn | proof | ` + "`a/b_test.go`" + ` |
| P1 | zombie | ids | ` + "`a/b_test.go`" + ` |

## Later

| id | what happened | why not yet |
|---|---|---|
| F5 | it grew | backups come first |
`

func TestReport(t *testing.T) {
	t.Parallel()
	const (
		o9      = `{"Action":"pass","Package":"github.com/unisink/unisink/a","Test":"TestTorn/O9/no_leader"}` + "\n"
		p1      = `{"Action":"pass","Package":"github.com/unisink/unisink/a","Test":"TestP1_Zombie"}` + "\n"
		skipped = `{"Action":"skip","Package":"github.com/unisink/unisink/a","Test":"TestP1_Zombie"}` + "\n"
		failed  = `{"Action":"fail","Package":"github.com/unisink/unisink/a","Test":"TestP1_Zombie"}` + "\n"
		p10     = `{"Action":"pass","Package":"github.com/unisink/unisink/a","Test":"TestScenarios/P10-floor"}` + "\n"
		f5      = `{"Action":"pass","Package":"github.com/unisink/unisink/a","Test":"TestScenarios/F5-grows"}` + "\n"
	)
	for _, c := range []struct{ name, run, want, err string }{
		{"all there", o9 + p1, "O9   1: a TestTorn/O9/no_leader\nP1   1: a TestP1_Zombie\nF5   later: backups come first\n", ""},
		{"one missing", o9, "P1   MISSING", "row P1: no test"},
		{"one skipped", o9 + skipped, "P1   MISSING", "row P1: no test"},
		{"one failed once", o9 + p1 + failed, "P1   MISSING", "row P1: no test"},
		{"another row's number", o9 + p10, "P1   MISSING", "row P1: no test"},
		{"later work that is done", o9 + p1 + f5, "", "row F5 is said to be later work"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			passed, err := read(strings.NewReader(c.run))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err = report(catalogue([]byte(doc)), passed, &out)
			if !strings.Contains(out.String(), c.want) {
				t.Errorf("printed %q, want %q", out.String(), c.want)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestWhatIsNoTestOutput(t *testing.T) {
	t.Parallel()
	if _, err := read(strings.NewReader("ok  a 1s\n")); err == nil {
		t.Error("text was taken for events")
	}
	if err := report(nil, nil, &strings.Builder{}); err == nil {
		t.Error("an empty catalogue is no catalogue")
	}
}
