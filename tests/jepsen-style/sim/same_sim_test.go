package sim_test

import (
	"slices"
	"testing"

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
	for range 2 {
		if got := struck(simulate(t, seed)); !slices.Equal(got, planned) {
			t.Errorf("struck %q, planned %q", got, planned)
		}
	}
}

// A run in which nothing happens is no simulation.
func TestARunWithTooLittleInItFails(t *testing.T) {
	y := newTally()
	if few := y.tooFew(30); len(few) < 5+len(otherKinds) {
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
			check.Event{Kind: check.Return, Op: "commit", Answer: check.AnswerCommitted})
	}
	return all
}
