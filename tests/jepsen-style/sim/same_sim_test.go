package sim_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// struck are the faults of a run, in order. Who had a role, and when an aimed one struck, is not a
// matter of the seed alone.
func struck(events []check.Event) []string {
	var all []string
	for _, e := range events {
		if e.Kind == check.Fault {
			all = append(all, e.Fault)
		}
	}
	return all
}

// What a seed determines is the plan: the group, the pipelines, the clients, and every fault with its
// kind, its target or role, its moment and its length. Goroutines are scheduled as the Go runtime
// likes, so two runs of a plan meet its faults in different states.
func TestTheSameSeedHasTheSameFaults(t *testing.T) {
	const seed = 3
	plan := newPlan(seed)
	if again := newPlan(seed); plan.String() != again.String() {
		t.Fatalf("two plans of one seed:\n%s\n%s", plan, again)
	}
	if other := newPlan(seed + 1); plan.String() == other.String() {
		t.Fatal("two seeds have one plan")
	}
	var planned []string
	for _, s := range plan.strikes {
		planned = append(planned, s.kind)
	}
	runs := 2
	if testing.Short() {
		runs = 1 // to the race detector, which runs the short tests, the second is the first once more
	}
	for range runs {
		if got := struck(simulate(t, seed)); !slices.Equal(got, planned) {
			t.Errorf("struck %q, planned %q", got, planned)
		}
	}
}

// What a run has left behind is right, and wrong as soon as one window's result is another, is missing or is there twice.
func TestAWindowThatCountsWronglyIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("judges a history in one goroutine, behind a run such as those of TestSimulation")
	}
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, newPlan(5))
		w.run(t.Context())
	})
	if found := w.found(); len(found) > 0 {
		t.Fatalf("%d findings before anything was spoilt, of which the first is: %s", len(found), found[0])
	}
	events := w.hist.Events()
	for what, spoil := range map[string]func(records []string) []string{
		"a result is missing":       func(r []string) []string { return r[1:] },
		"a result is there twice":   func(r []string) []string { return append(r, r[0]) },
		"a record did not count":    func(r []string) []string { return append([]string{r[0] + "0"}, r[1:]...) },
		"a result of another epoch": func(r []string) []string { return append(r, check.WindowResult("k1", 0, 10, 1, 1, false)) },
	} {
		for _, alias := range []string{"a", lateAlias} {
			spoilt := slices.Clone(events)
			i := lastOf(spoilt, alias)
			spoilt[i].Records = spoil(slices.Clone(spoilt[i].Records))
			found := check.All(spoilt, w.bounds())
			if len(found) != 1 || found[0].Rule != "C14" {
				t.Errorf("%s in %s: found %v", what, spoilt[i].Store, found)
			}
		}
	}
}

// lastOf is the last event in which something of windows became visible in a resource of that name.
func lastOf(events []check.Event, alias string) int {
	for i, e := range slices.Backward(events) {
		if e.Kind == check.Committed && e.Branch.Resource == alias && len(e.Records) > 0 && (strings.Contains(e.Records[0], "@") || strings.HasPrefix(e.Records[0], "late:")) {
			return i
		}
	}
	panic("no windows in this run")
}

// A run in which nothing happens is no simulation.
func TestARunWithTooLittleInItFails(t *testing.T) {
	y := newTally()
	if few := y.tooFew(30); len(few) < 9+len(otherKinds) {
		t.Errorf("of a run without anything in it only this is said: %q", few)
	}
	for range 2 {
		y.add(busy())
	}
	if few := y.tooFew(2); len(few) > 0 {
		t.Errorf("a busy run has too little in it: %q", few)
	}
	if few := y.tooFew(5); len(few) == 0 {
		t.Error("two busy runs pass for five")
	}
}

// busy is a history with enough in it for one run.
func busy() []check.Event {
	var all []check.Event
	for i := range uint64(70) {
		b := check.Branch{Scope: "p/0", Epoch: check.Epoch{Generation: i, N: 1}}
		all = append(all,
			check.Event{Kind: check.Decided, Branch: b}, check.Event{Kind: check.Started, Branch: b},
			check.Event{Kind: check.Fault, Fault: "crash", InRound: true}, check.Event{Kind: check.Leads, Term: i},
			check.Event{Kind: check.Return, Op: "commit", Answer: check.AnswerCommitted},
			check.Event{Kind: check.Committed, Records: slices.Repeat([]string{check.WindowResult("k1", 0, 10, 1, 1, false)}, 5)},
			check.Event{Kind: check.Committed, Records: []string{check.LateRecord(0, 1)}},
			check.Event{Kind: check.Started, Branch: b, Records: []string{"m1.window.1.1.0", "m1.window.1.1.1" + stored}})
	}
	return all
}
