package app

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// shown runs show as a command would.
func shown(t *testing.T, format string, v any, tables ...func() [][]string) string {
	t.Helper()
	var out bytes.Buffer
	a := &app{out: &out, err: &out}
	root := &cli.App{Flags: globalFlags(), Action: func(c *cli.Context) error { return a.show(c, v, tables...) }}
	if err := root.Run([]string{"x", "-o", format}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTablesAreAlignedAndAnEmptySecondOneIsLeftOut(t *testing.T) {
	one := func() [][]string { return [][]string{{"NAME", "COUNT", ""}, {"a", "1", "note"}, {"longer", "10", ""}} }
	header := func() [][]string { return [][]string{{"CASE"}} }
	const want = "NAME    COUNT\na       1      note\nlonger  10\n"
	for _, tables := range [][]func() [][]string{{one}, {one, header}} {
		if got := shown(t, "table", nil, tables...); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	if got := shown(t, "table", nil, one, one); got != want+"\n"+want {
		t.Errorf("got\n%s", got)
	}
	if got := shown(t, "table", nil, header); got != "CASE\n" {
		t.Errorf("a listing of nothing keeps its header, got %q", got)
	}
}

func TestJSONOfTheWireHasEveryField(t *testing.T) {
	got := shown(t, "json", &unisinkv1.ScopeStatus{})
	for _, field := range []string{`"halted"`, `"generation"`, `"members"`, `"restore_point"`} {
		if !strings.Contains(got, field) {
			t.Errorf("%s is not in %s", field, got)
		}
	}
}

func TestCasesAreShownUpToABound(t *testing.T) {
	r := verify.Report{Verdict: verify.Broken, Missing: make([]verify.Case, shownCases+5), Doubled: []verify.Case{{Sink: "s", Key: "k", Window: "w", Why: "y"}}}
	rows := caseRows(r)
	if len(rows) != 1+shownCases+1+1 || rows[shownCases+1][4] != "and 5 more; -o json shows all" || strings.Join(rows[shownCases+2], " ") != "doubled s k w y" {
		t.Errorf("%d rows, %q", len(rows), rows[len(rows)-2:])
	}
	if len(caseRows(verify.Report{})) != 1 {
		t.Error("a clean report has cases")
	}
}

func TestWordsForPeople(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{ago(-1), "-"},
		{ago(12 * time.Millisecond), "12ms"},
		{ago(2500 * time.Millisecond), "2.5s"},
		{ago(90 * time.Second), "1m30s"},
		{cut("short", 5), "short"},
		{cut("längere", 5), "läng…"},
		{enumWord("DESIRED_STATE_RUNNING", "DESIRED_STATE_"), "running"},
		{desiredWord(unisinkv1.DesiredState_DESIRED_STATE_DRAINING), "draining"},
		{epochText(nil), "-"},
		{epochText(&unisinkv1.Epoch{Generation: 7, N: 12}), "7.12"},
		{numberOrDash(-1), "-"},
		{shorten("0123-4567"), "0123"},
		{shortIDs("member main (instance b0a1b6d3-62fd-4897-b0bb-388bb62384d3) was silent"), "member main (instance b0a1b6d3) was silent"},
		{leaseText("", 0), "-"},
		{leaseText("b0a1b6d3", 0), "0ms"},
		{plainFlag("--node ID [ --node ID ]\tID of each node"), "--node ID\tID of each node"},
		{plainFlag("--force\tthe same (default: false)"), "--force\tthe same"},
		{plainFlag("--every TIME\tTIME (default: 30s) [$UNISINK_EVERY]"), "--every TIME\tTIME (default: 30s) [$UNISINK_EVERY]"},
		{scopeState(&unisinkv1.ScopeStatus{}), "never ran"},
		{scopeState(&unisinkv1.ScopeStatus{Halted: "why", Open: true}), "halted: why"},
		{scopeState(&unisinkv1.ScopeStatus{Generation: 1, Cause: "stopped"}), "closed: stopped"},
		{scopeState(&unisinkv1.ScopeStatus{Open: true, Members: []*unisinkv1.MemberStatus{{Phase: "restoring"}}}), "starting"},
		{scopeState(&unisinkv1.ScopeStatus{Open: true, Members: []*unisinkv1.MemberStatus{{Phase: "running"}}}), "running"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestRecordsOfNobodysEpochsAreExplained(t *testing.T) {
	for foreign, want := range map[int]string{0: "", 1: "1 record of epochs that this pipeline has not decided: another pipeline", 12: "12 records of epochs"} {
		var out bytes.Buffer
		a := &app{out: &out, err: &out}
		root := &cli.App{Flags: globalFlags(), Action: func(c *cli.Context) error {
			r := verify.Report{Verdict: verify.Broken, Different: []verify.Case{{Why: "of another kind"}}}
			r.Different = append(r.Different, slices.Repeat([]verify.Case{{Foreign: true}}, foreign)...)
			return a.showReport(c, r, r)
		}}
		if err := root.Run([]string{"x"}); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, want) || foreign == 0 && strings.Contains(got, "another pipeline") {
			t.Errorf("of %d: %s", foreign, got)
		}
	}
}
