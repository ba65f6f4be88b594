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
		{handleText(&unisinkv1.Handle{Text: "1 records in 11 files, 21 records in 1 partitions of t1 files"}), "1 record in 11 files, 21 records in 1 partition of t1 files"},
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
		{plainFlag("--topic NAME[:N] [ --topic NAME[:N] ]\tNAME[:N] of a topic"), "--topic NAME[:N]\tNAME[:N] of a topic"},
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

// A list of resources can be read on a terminal of 120 columns, whatever they are called, and loses nothing by that.
func TestResourcesFitATerminal(t *testing.T) {
	long := "topics payments-captured-europe, payments-captured-america at kafka-1.example.com:9092,kafka-2.example.com:9092"
	dir := "directory /srv/data/very/long/path/" + strings.Repeat("x", 60)
	all := []*unisinkv1.ResourceStatus{
		{
			Resource: &unisinkv1.ResourceRef{Kind: "kafka", Identity: "MkU3OEVBNTcwNTJENDM2Qk"}, Text: long, UsedBy: []string{"payments/0 main captured", "refunds/0 main captured"},
			HeldBy: []string{"payments/0 main", "refunds/0 main"}, Resolvers: []string{"night", "node n1"}, Unfinished: 12, OldestUnfinishedMs: 90_000_000,
			Debts: 3, OldestDebtMs: 59_000, Prepared: 4, OldestPreparedMs: 200_000_000_000, ListedAtMs: 1, Trouble: "night: " + strings.Repeat("no Kafka broker answers; ", 8),
		},
		{Resource: &unisinkv1.ResourceRef{Kind: "file", Identity: "aa"}, Text: dir},
		{Resource: &unisinkv1.ResourceRef{Kind: "file", Identity: "bb"}, Text: "totals"},
		{Resource: &unisinkv1.ResourceRef{Kind: "file", Identity: "cc"}, Text: "totals"},
		{Resource: &unisinkv1.ResourceRef{Kind: "file"}},
	}
	got := shown(t, "table", nil, func() [][]string { return wrapped(resourceRows(all), resourceWidths...) }, func() [][]string { return wrapped(troubleRows(all), troubleWidths...) })
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	var resources []string
	for _, row := range wrapped(resourceRows(all), resourceWidths...)[1:] {
		resources = append(resources, row[0])
	}
	flat := func(s string) string { return strings.NewReplacer(" ", "", "\n", "").Replace(s) }
	for _, want := range []string{long + " (kafka)", dir + " (file)", "totals (file bb)", "totals (file cc)"} {
		if !strings.Contains(flat(strings.Join(resources, "")), flat(want)) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	for _, want := range []string{"12 (25h)", "3 (59s)", "4 (2314d)"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	wide := shown(t, "wide", nil, func() [][]string { return wideResourceRows(all) })
	if strings.Count(wide, "\n") != 1+len(all) || !strings.Contains(wide, "MkU3OEVBNTcwNTJENDM2Qk") || !strings.Contains(wide, "12, oldest 25h0m0s") {
		t.Errorf("wide:\n%s", wide)
	}
}

func TestAVerdictOnNothingWarns(t *testing.T) {
	for want, r := range map[string]verify.Report{
		"Warning: nothing was there to compare": {Verdict: verify.Clean},
		"Warning: the sinks hold no record, so none was compared. By the last proven epoch none of the 7 records": {Verdict: verify.Clean, Records: 7},
		"Compared: 1 record of the source with 2 records in the sinks.":                                           {Verdict: verify.Clean, Records: 1, Compared: 2},
		"Compared: 3 records of the source with 0 records in the sinks.":                                          {Verdict: verify.Broken, Records: 3},
	} {
		var out bytes.Buffer
		a := &app{out: &out, err: &out}
		root := &cli.App{Flags: globalFlags(), Action: func(c *cli.Context) error { return a.showReport(c, r, r) }}
		if err := root.Run([]string{"x"}); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v, %q is not in:\n%s", err, want, out.String())
		}
		out.Reset()
		if err := root.Run([]string{"x", "-o", "json"}); err != nil || strings.Contains(out.String(), "Warning") || !strings.Contains(out.String(), `"compared"`) {
			t.Errorf("%v, JSON is\n%s", err, out.String())
		}
	}
}

func TestAHaltedScopeNeedsAPerson(t *testing.T) {
	scope := func(name, halted string) *unisinkv1.ScopeStatus {
		return &unisinkv1.ScopeStatus{Scope: &unisinkv1.Scope{Pipeline: name}, Generation: 2, Halted: halted, Members: []*unisinkv1.MemberStatus{{Name: "main", Lag: -1}}}
	}
	fine, one, two := scope("fine", ""), scope("a", "no column \"x\""), scope("b", "away")
	one.Members[0].WaitingFor = "scope a/0 to be resumed by an operator; it is halted: no column \"x\""
	if err := haltedScopes([]*unisinkv1.ScopeStatus{fine}); err != nil {
		t.Errorf("nobody is needed: %v", err)
	}
	for want, scopes := range map[string][]*unisinkv1.ScopeStatus{
		"scope a/0 needs a person: it is halted; once the cause is mended, `unisink pipeline resume a/0 --why …` lets it go on": {fine, one},
		"2 scopes need a person: they are halted; once the cause is mended, `unisink pipeline resume a/0 --why …`":              {one, fine, two},
	} {
		if err := haltedScopes(scopes); err == nil || codeOf(err) != CodeHuman || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	got := shown(t, "table", nil, func() [][]string {
		return standRows([]*unisinkv1.GetPipelineResponse{{Scopes: []*unisinkv1.ScopeStatus{fine}}, {Scopes: []*unisinkv1.ScopeStatus{one}}})
	}, func() [][]string { return memberRows([]*unisinkv1.ScopeStatus{one}) }, func() [][]string { return haltedRows([]*unisinkv1.ScopeStatus{fine, one}) })
	for _, want := range []string{"0 open, 0 unfinished, needs a person", "NEEDS A PERSON  WHAT HAPPENED\na/0             no column \"x\"\n", "it is halted: …"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, got)
		}
	}
}

func TestLongTextsAreBrokenAndNotCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 3, []string{""}},
		{"a bc d", 3, []string{"a", "bc", "d"}},
		{"a b", 3, []string{"a b"}},
		{"länger als", 4, []string{"läng", "er", "als"}},
		{"a  b", 9, []string{"a  b"}},
	} {
		if got := wrap(c.text, c.width); !slices.Equal(got, c.want) {
			t.Errorf("%q in %d: %q, want %q", c.text, c.width, got, c.want)
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
