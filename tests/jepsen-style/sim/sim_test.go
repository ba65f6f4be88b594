package sim_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

var (
	seeds = flag.Int("seeds", 2, "how many seeds the simulation takes")
	seed  = flag.Uint64("seed", 1, "the first of them")
	trace = flag.Bool("trace", false, "print the trace of a run that passes, too")
)

// TestSimulation runs the whole system under the plan of each seed, and judges what was seen.
func TestSimulation(t *testing.T) {
	began := time.Now()
	sum := newTally()
	for i := range *seeds {
		s := *seed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) { sum.add(simulate(t, s)) })
	}
	fmt.Printf("sim: seeds tried: %d, in %s\n%s", *seeds, time.Since(began).Round(time.Second), sum)
	if *seeds > 1 && !t.Failed() {
		for _, few := range sum.tooFew(*seeds) {
			t.Error(few)
		}
	}
}

// simulate runs one seed and returns what was seen.
func simulate(t *testing.T, seed uint64) []check.Event {
	t.Helper()
	var w *world
	t.Cleanup(func() { // also when the bubble itself has failed
		if t.Failed() || *trace {
			fmt.Fprintf(os.Stderr, "%s\n%s\n%s", w.plan, check.Trace(w.hist.Events(), false), w.standing)
		}
		if t.Failed() {
			without := ""
			if mutant.Enabled {
				without = os.Getenv(mutant.Env)
			}
			fmt.Printf("broken:\n%sreplay with: %s\n", join(w.found()), replay(seed, without))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, newPlan(seed))
		w.run(t.Context())
	})
	if found := w.found(); len(found) > 0 {
		t.Errorf("%d findings, of which the first is: %s", len(found), found[0])
	}
	return w.hist.Events()
}

// replay is the line that runs a seed again, without the protection that this run does without.
func replay(seed uint64, without string) string {
	line := fmt.Sprintf("make sim SEED=%d SEEDS=1", seed)
	if without != "" {
		line = fmt.Sprintf("%s=%s GOFLAGS=-tags=mutants %s", mutant.Env, without, line)
	}
	return line
}

func TestTheReplayLineNamesTheSeedAndTheMutant(t *testing.T) {
	if got, want := replay(7, ""), "make sim SEED=7 SEEDS=1"; got != want {
		t.Errorf("replay with: %s, not %s", got, want)
	}
	if got, want := replay(7, "raft/fail-stop"), "UNISINK_MUTANT=raft/fail-stop GOFLAGS=-tags=mutants make sim SEED=7 SEEDS=1"; got != want {
		t.Errorf("replay with: %s, not %s", got, want)
	}
}

// A disk that calls a write done before it is durable breaks the promise on which everything
// rests, and the simulation sees that.
func TestADiskThatLiesIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("tries the judge; what runs at once is what runs in TestSimulation")
	}
	for seed := uint64(1); seed <= 20; seed++ {
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(t, newPlan(seed))
			for _, n := range w.nodes.all {
				n.disk.lies = true
			}
			w.run(t.Context())
		})
		if found := w.found(); len(found) > 0 {
			t.Logf("seed %d: %s", seed, found[0])
			return
		}
	}
	t.Error("twenty runs on disks that lie, and nothing was seen")
}

// tally counts what the runs went through: a simulation in which nothing happens proves nothing.
type tally struct {
	decided, inRound, faults, leaders, generations, byHand int
	windows                                                windowTally
	kinds                                                  map[string]int
	recovery                                               []time.Duration
}

func newTally() *tally { return &tally{kinds: map[string]int{}} }

func (y *tally) add(events []check.Event) {
	decided, generations, terms := map[string]bool{}, map[string]bool{}, map[uint64]bool{}
	healed := time.Duration(-1)
	recovered := map[string]bool{}
	for _, e := range events {
		switch e.Kind {
		case check.Decided:
			decided[e.Branch.Transaction()] = true
			if healed >= 0 && !recovered[e.Branch.Scope] {
				recovered[e.Branch.Scope] = true
				y.recovery = append(y.recovery, e.At-healed)
			}
		case check.Committed:
			y.windows.visible(e)
		case check.Started:
			y.windows.started(e)
			generations[fmt.Sprint(e.Branch.Scope, e.Branch.Epoch.Generation)] = true
		case check.Leads:
			terms[e.Term] = true
		case check.Fault:
			y.faults++
			y.kinds[e.Fault]++
			if e.InRound {
				y.inRound++
			}
		case check.Return:
			if e.Op == "commit" && (e.Answer == check.AnswerCommitted || e.Answer == check.AnswerAborted) {
				y.byHand++
			}
		case check.Healed:
			healed = e.At
		default:
		}
	}
	y.decided += len(decided)
	y.generations += len(generations)
	y.leaders += max(0, len(terms)-1)
}

// tooFew says what did not happen often enough in so many runs.
func (y *tally) tooFew(seeds int) []string {
	var all []string
	least := func(what string, have, each int) {
		if have < each*seeds {
			all = append(all, fmt.Sprintf("%d %s in %d runs; at least %d make it a simulation", have, what, seeds, each*seeds))
		}
	}
	least("decided epochs", y.decided, 60)
	least("faults inside open rounds", y.inRound, 5)
	least("leader changes", y.leaders, 2)
	least("generations", y.generations, 4)
	least("transactions by hand", y.byHand, 15)
	least("results of windows", y.windows.results, 200)
	least("late records", y.windows.late, 10)
	least("restores of windows' state", y.windows.restores, 2)
	if seeds >= 20 {
		if y.windows.stored == 0 || y.windows.updates == 0 {
			all = append(all, fmt.Sprintf("no state of windows came from a store, or no result was sent again, in %d runs", seeds))
		}
		for _, kind := range slices.Concat(nodeKinds, memberKinds, otherKinds) {
			if y.kinds[kind] == 0 {
				all = append(all, fmt.Sprintf("the fault %q never came in %d runs", kind, seeds))
			}
		}
	}
	return all
}

func (y *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "     %d decided epochs, %d transactions by hand, %d faults, %d of them inside open rounds, %d leader changes, %d generations\n",
		y.decided, y.byHand, y.faults, y.inRound, y.leaders, y.generations)
	fmt.Fprintf(&b, "     %s\n", y.windows)
	if n := len(y.recovery); n > 0 {
		slices.Sort(y.recovery)
		fmt.Fprintf(&b, "     first decision after everything was healed: p50 %s, p99 %s, at most %s\n",
			y.recovery[n/2].Round(time.Millisecond), y.recovery[n*99/100].Round(time.Millisecond), y.recovery[n-1].Round(time.Millisecond))
	}
	var kinds []string
	for kind, n := range y.kinds {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(kinds)
	fmt.Fprintf(&b, "     %s\n", strings.Join(kinds, ", "))
	return b.String()
}
