package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/cmd/bench/worker"
)

func TestARestartReadsNothingBeforeTheRestorePoint(t *testing.T) {
	point := &point{epoch: epochID{4, 2}, positions: map[string]int64{"in/0": 10, "in/1": 20}}
	opened := worker.Event{What: worker.Opened, Places: []worker.Place{{Split: "in/0", Offset: 10}, {Split: "in/1", Offset: 20}}}
	first := func(split string, offset int64) worker.Event {
		return worker.Event{What: worker.First, Places: []worker.Place{{Split: split, Offset: offset}}}
	}
	put := worker.Event{What: worker.Put, Part: "p.0.main.window.5.7.2", Bytes: 100, Entries: 3, Encoded: 4}
	u, err := readTrace([]worker.Event{opened, first("in/0", 10), first("in/1", 20), put, put, {What: worker.Got, Bytes: 9}}, point)
	if err != nil {
		t.Fatal(err)
	}
	if id := (epochID{5, 7}); u.put[id] != 200 || u.entries[id] != 3 || u.encoded != 4 || u.got != 9 || u.perEntry() != 50 {
		t.Errorf("summed up as %+v", u)
	}
	for name, events := range map[string][]worker.Event{
		"opened elsewhere":       {{What: worker.Opened, Places: []worker.Place{{Split: "in/0", Offset: 9}, {Split: "in/1", Offset: 20}}}},
		"opened at fewer splits": {{What: worker.Opened, Places: []worker.Place{{Split: "in/0", Offset: 10}}}},
		"read before it":         {opened, first("in/0", 9)},
		"left something out":     {opened, first("in/1", 21)},
		"never opened":           {},
		"a part of no epoch":     {opened, {What: worker.Put, Part: "x"}},
	} {
		if _, err := readTrace(events, point); err == nil {
			t.Errorf("%s: taken for good", name)
		}
	}
	if _, err := readTrace([]worker.Event{{What: worker.Opened}, first("in/0", 0)}, nil); err != nil {
		t.Errorf("the first process begins at 0: %v", err)
	}
}

func TestBudgetsAreJudged(t *testing.T) {
	row := StateRow{Store: StoreUse{ChangedShare: 0.01, Share: 0.031}, Restarts: []float64{1, 4.9}}
	row.judge()
	if got := stats.Verdict(row.Budgets); got != "over: share 0.031 > 0.03" {
		t.Errorf("%q", got)
	}
	row = StateRow{Restarts: []float64{5}}
	row.judge()
	if got := stats.Verdict(row.Budgets); got != "ok" {
		t.Errorf("%q", got)
	}
	for _, tt := range []struct {
		k    kind
		r    PipelineRow
		want string
	}{
		{kind{worker.Window, time.Second}, PipelineRow{CPUPerMillion: 0.9, PeakRSSMB: 120, ToPlain: 1.05}, "ok"},
		{kind{worker.YAML, time.Second}, PipelineRow{CPUPerMillion: 1.21, PeakRSSMB: 121}, "over: CPU 1.21 > 1.2, MiB 121 > 120"},
		{kind{worker.Window, 0}, PipelineRow{CPUPerMillion: 9}, "-"},
		{kind{worker.Pass, 100 * time.Millisecond}, PipelineRow{VisibleP50: 60, VisibleP99: 131}, "over: p99 131 > 130"},
		{kind{worker.Pass, 100 * time.Millisecond}, PipelineRow{VisibleP50: -1, VisibleP99: -1}, "-"},
	} {
		if got := stats.Verdict(budgetsOf(tt.k, tt.r)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.k, got, tt.want)
		}
	}
}

func TestEveryMistakeAboutStateIsNamedAtOnce(t *testing.T) {
	err := StateConfig{Shapes: []string{"x"}, Kills: -1, Lab: LabConfig{Nodes: 2}}.Validate()
	for _, want := range []string{"2 nodes", "0 orders", "0 keys", "event time", "negative", "too short", "share", `no shape "x"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
