package round

import (
	"os"
	"testing"
)

// TestGuards_EachIsNeeded switches the rules off one at a time. A scenario must then give other
// orders; and where the rule keeps a promise that the random runs or the walk through small cases
// check, they must find it broken.
func TestGuards_EachIsNeeded(t *testing.T) {
	for name, guard := range map[string]struct {
		off       guards
		scenarios []string
		found     bool // by the random runs
		walked    bool // by the walk through small cases
	}{
		"P8/a vote stands": {
			guards{promise: true},
			[]string{"P8-vote-replaced"},
			false, false, // members of the runs keep their word
		},
		"P14/time left counts from the stamp": {
			guards{stamp: true},
			[]string{"P14-stamp-of-another-term", "P14-delayed-vote"},
			true, false,
		},
		"T1/no late proposal": {
			guards{budget: true},
			[]string{"T1-deadline-while-waiting", "T1-late-proposal", "P14-delayed-vote"},
			true, false,
		},
		"P15/every barrier since the last decision": {
			guards{everyOne: true},
			[]string{"P15-missing-barriers"},
			true, true,
		},
		"P15/no barrier before every source has told": {
			guards{sourcesTell: true},
			[]string{"P15-sources-tell-first"},
			true, true,
		},
		"P18/standings carry what is proven": {
			guards{provenClaim: true},
			[]string{"P18-proven-through", "P18-last-epoch-proven"},
			true, true,
		},
		"P5/in order": {
			guards{inOrder: true},
			[]string{"P5-decided-in-order", "E5-no-epoch-is-squashed"},
			false, false, // the ledger refuses what is out of order
		},
		"E6/every vote": {
			guards{fullSet: true},
			[]string{"E6-never-on-a-partial-set"},
			true, true,
		},
		"E1/no barrier without work": {
			guards{idle: true},
			[]string{"E1-interval-without-records"},
			false, false, // harmless, only waste
		},
		"S5/pending is bounded": {
			guards{bound: true},
			[]string{"S5-pending-is-bounded"},
			true, true,
		},
		"E2/a final epoch is always decided, also when idle": {
			guards{finishIdle: true},
			[]string{"E2-empty-epoch-is-decided"},
			false, false, // members of the runs are never idle for long
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, scenario := range guard.scenarios {
				source, err := os.ReadFile("testdata/" + scenario + ".txt")
				if err != nil {
					t.Fatal(err)
				}
				got, err := play(string(source), guard.off)
				if err != nil {
					t.Fatal(err)
				}
				if got == string(source) {
					t.Errorf("%s gives the same orders without the rule", scenario)
				}
			}
			if seed, found := search(guard.off); found != guard.found {
				t.Errorf("random runs found it: %v (seed %d), want %v", found, seed, guard.found)
			}
			if guard.walked && !testing.Short() && !walkFinds(guard.off) {
				t.Error("the walk through small cases did not find it")
			}
		})
	}
}

// search looks for a broken promise.
func search(off guards) (seed uint64, found bool) {
	for seed := range uint64(600) {
		if run(seeded(seed), off, 400).err != nil {
			return seed, true
		}
	}
	return 0, false
}

// walkFinds reports whether some small case breaks a promise.
func walkFinds(off guards) bool {
	for _, c := range smallCases() {
		c.most = 20000
		if explore(c, off).err != nil {
			return true
		}
	}
	return false
}
