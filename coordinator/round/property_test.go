package round

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rapidly struct{ t *rapid.T }

func (r rapidly) pick(n int, what string) int { return rapid.IntRange(0, n-1).Draw(r.t, what) }

type randomly struct{ *rand.Rand }

func (r randomly) pick(n int, _ string) int { return r.IntN(n) }

func seeded(seed uint64) randomly { return randomly{rand.New(rand.NewPCG(seed, 0))} }

// TestRound_KeepsItsPromisesUnderFaults: whatever is lost, doubled, reordered or led by two, epochs
// are decided without gaps and with every member's own vote, no source skips a barrier, no more are
// open than may be, nothing is proposed too late, nothing is closed for no reason; and once the
// faults stop, the next epochs are decided, or the last one is decided and proven.
func TestRound_KeepsItsPromisesUnderFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if w := run(rapidly{t}, switchedOff(), rapid.IntRange(0, 150).Draw(t, "steps")); w.err != nil {
			t.Fatal(w.err)
		}
	})
}

// TestRound_ManySeeds does the same for long runs, and checks that they go through everything. A
// failure names its seed; SEEDS sets their number.
func TestRound_ManySeeds(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	if text := os.Getenv("SEEDS"); text != "" {
		if _, err := fmt.Sscan(text, &seeds); err != nil {
			t.Fatal(err)
		}
	}
	reached := map[string]int{}
	for seed := range seeds {
		w := run(seeded(seed), switchedOff(), 400)
		if w.err != nil {
			t.Fatalf("seed %d: %v", seed, w.err)
		}
		for what, n := range w.reached {
			reached[what] += n
		}
	}
	t.Logf("%d runs: %v", seeds, reached)
	for _, what := range []string{
		"leader", "decided", "taken over and decided", "last", "refused", "closed", "round.SendBarrier",
		"round.ProposeDecide", "round.SendCommitted", "round.ProposeClose", "round.VoteAgain", "round.AllProven",
	} {
		if reached[what] < 20 {
			t.Errorf("the runs reached %q %d times only; they show too little", what, reached[what])
		}
	}
}
