package sim_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"

	"github.com/unisink/unisink/tests/jepsen-style/check"
)

var (
	seeds = flag.Int("seeds", 2, "how many seeds the simulation takes")
	seed  = flag.Uint64("seed", 1, "the first of them")
	trace = flag.Bool("trace", false, "print the trace of a run that passes, too")
)

// TestSimulation runs the whole system under the plan of each seed, and judges what was seen.
func TestSimulation(t *testing.T) {
	for i := range *seeds {
		s := *seed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) { simulate(t, s) })
	}
}

func simulate(t *testing.T, seed uint64) {
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, newPlan(seed))
		w.run(t.Context())
	})
	events := w.hist.Events()
	found := check.All(events, w.bounds())
	if len(found) > 0 {
		t.Errorf("broken:\n%s", join(found))
	}
	if t.Failed() || *trace {
		fmt.Fprintf(os.Stderr, "%s\n%s\n", w.plan, check.Trace(events, false))
	}
	if t.Failed() {
		t.Logf("replay with: make sim SEED=%d SEEDS=1", seed)
	}
}
