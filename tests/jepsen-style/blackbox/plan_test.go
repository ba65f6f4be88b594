package main

import (
	"slices"
	"testing"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/ground"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/judge"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

var everything = ground.Able{Networks: true, Disks: true}

func acts(p *plan, n int) (all []string) {
	for range n {
		all = append(all, p.next().String())
	}
	return all
}

func TestTheSameSeedHasTheSameFaults(t *testing.T) {
	one := acts(newPlan(7, 0, nodeFaults(), everything, time.Second), 100)
	two := acts(newPlan(7, 0, nodeFaults(), everything, time.Second), 100)
	other := acts(newPlan(8, 0, nodeFaults(), everything, time.Second), 100)
	if !slices.Equal(one, two) {
		t.Error("two plans of one seed differ")
	}
	if slices.Equal(one, other) {
		t.Error("two seeds have one plan")
	}
}

func TestAShortPlanHasEveryFault(t *testing.T) {
	for _, faults := range [][]fault{nodeFaults(), workerFaults()} {
		p := newPlan(3, 0, faults, everything, time.Second)
		seen := map[kind]bool{}
		for range faults {
			a := p.next()
			seen[a.kind] = true
			if a.lasts < a.least || a.lasts > a.most {
				t.Errorf("%s lasts %s, wanted %s to %s", a.kind, a.lasts, a.least, a.most)
			}
		}
		if len(seen) != len(faults) {
			t.Errorf("the first %d acts are of %d kinds", len(faults), len(seen))
		}
	}
}

func TestWhatIsNotPossibleIsNotPlanned(t *testing.T) {
	p := newPlan(3, 0, nodeFaults(), ground.Able{}, time.Second)
	for range 200 {
		if a := p.next(); a.family != killing && a.family != pausing {
			t.Fatalf("without networks and disks the plan has: %s", a.kind)
		}
	}
}

func TestOnlyNamedFaultsAreLeft(t *testing.T) {
	left := only(workerFaults(), string(killTeller)+","+string(powerWorkers))
	if len(left) != 2 || left[0].kind != killTeller || left[1].kind != powerWorkers {
		t.Errorf("left %v", left)
	}
	if all := only(nodeFaults(), ""); len(all) != len(nodeFaults()) {
		t.Errorf("without names %d of %d are left", len(all), len(nodeFaults()))
	}
}

func TestARunThatSawTooLittleDoesNotPass(t *testing.T) {
	kept := judge.Verdict{Rule: "money", Judged: 10}
	for _, c := range []struct {
		what   string
		report Report
		few    bool
		want   string
	}{
		{"all is well", Report{Rules: []judge.Verdict{kept}, done: done{Kills: 5}}, false, passed},
		{"too few kills", Report{Rules: []judge.Verdict{kept}, done: done{Kills: 4}}, false, incomplete},
		{"too few kills, which was asked for", Report{Rules: []judge.Verdict{kept}, done: done{Kills: 4}}, true, passed},
		{"nothing to judge by", Report{Rules: []judge.Verdict{kept, {Rule: "C2"}}, done: done{Kills: 5}}, false, incomplete},
		{"a finding", Report{Rules: []judge.Verdict{kept, {Rule: "C2", Judged: 1, Findings: []check.Finding{{Rule: "C2"}}}}, done: done{Kills: 5}}, true, broken},
		{"it did not come to its end", Report{Rules: []judge.Verdict{kept}, done: done{Kills: 5}, Problems: []string{"drain"}}, true, broken},
	} {
		c.report.conclude(map[string]int{"kills": 5}, c.few)
		if c.report.Verdict != c.want {
			t.Errorf("%s: %s, wanted %s", c.what, c.report.Verdict, c.want)
		}
	}
}
