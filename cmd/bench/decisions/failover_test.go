package decisions

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/cmd/bench/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnAnswerOfTheDeadLeaderIsNotTheNextDecision(t *testing.T) {
	at := time.Now()
	told := func(ms ...int) *fleet.Writer {
		w := &fleet.Writer{}
		for _, m := range ms {
			w.Told(fleet.Decision{Told: at.Add(time.Duration(m) * time.Millisecond)})
		}
		return w
	}
	f := &failover{writers: []*fleet.Writer{told(-100, 10, 1300, 1400), told(-300, 900, 1000), told(-20, 2100)}}
	row := f.felt("n1", at, at.Add(afterwards))
	if row.Next != 0.9 || row.Every != 2.1 {
		t.Errorf("next after %v, every after %v; want 0.9 and 2.1", row.Next, row.Every)
	}
	if f.gap != 2120*time.Millisecond {
		t.Errorf("the longest gap is %s, want 2.12s", f.gap)
	}
}

func TestAFailoverIsJudgedByTheSlowestKillsAndWhatWritersFelt(t *testing.T) {
	f := &failover{each: []KillRow{{"n1", 1, 1}, {"n2", 1, 2}, {"n3", 2.6, 3}}, lost: 1}
	r := f.result()
	if r.Next.P50 != 1 || r.Next.Max != 2.6 || r.Every.P99 != 3 {
		t.Errorf("got %+v", r)
	}
	over := map[string]bool{}
	for _, b := range r.Budgets {
		over[b.Of] = !b.OK
	}
	if over["next p50"] || !over["next p99"] || !over["lost"] || over["errors"] {
		t.Errorf("budgets %+v", r.Budgets)
	}
}

func TestEveryMistakeOfAFailoverIsNamedAtOnce(t *testing.T) {
	err := FailoverConfig{Lab: LabConfig{Nodes: 1}, Scopes: -1}.Validate()
	for _, want := range []string{"1 nodes", "0 kills", "-1 scopes", "epoch of", "pace of"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestALostDecisionIsAnErrorAndNoFigure(t *testing.T) {
	if err := (FailoverResult{Told: 9}).broken(); err != nil {
		t.Errorf("nothing lost: %v", err)
	}
	if err := (FailoverResult{Told: 9, Lost: 1}).broken(); err == nil || !strings.Contains(err.Error(), "1 of 9") {
		t.Errorf("one lost: %v", err)
	}
}
