package ledger

import (
	"encoding/json"
	"testing"
)

// Row F5. What is kept is bounded from the first day: debts, epochs, transactions by hand and the requests that
// were remembered for them go. What stays of a generation is where it ended, so that each epoch of it has its
// answer for ever: some bytes for a restart, none for an epoch.
func TestF5_TheLedgerDoesNotGrowWithItsAge(t *testing.T) {
	m := New()
	at, last := int64(1_000_000), Generation(0)
	apply(t, m, at, Init{Namespace: "test", Incarnation: 1}, PutPipeline{Pipeline: twoMembers("p")})
	a, b := BranchID{"a", "out"}, BranchID{"b", "dir"}
	live := func(generations int) (size int) {
		for range generations {
			last = apply(t, m, at, opening("p", last, "1")).Opened.Generation
			const epochs = 20
			var bodies []Body
			for n := uint64(1); n <= epochs; n++ {
				bodies = append(bodies, deciding("p", Epoch{last, n}, "1", n-1))
			}
			hand := handID(at+10_000, int(last))
			bodies = append(bodies,
				proving("p", Epoch{last, epochs}, "a", "out", ProvenCommitted), proving("p", Epoch{last, epochs}, "b", "dir", ProvenCommitted),
				CloseGeneration{Scope: theScope, Generation: last, Cause: "test"},
				Swept{Scope: theScope, Generation: last, Branch: a}, Swept{Scope: theScope, Generation: last, Branch: b},
				Announce{Txn: hand, Branches: []HandBranch{{Resource: "r"}}},
				Commit{Txn: hand, Branches: []HandBranch{{Resource: "r", Handle: Handle{Kind: "mem", Version: 1, Name: string(hand)}}}},
				Resolve{Txn: hand, Branch: BranchID{Resource: "r"}, Proof: Proof{Verdict: ProvenCommitted, Evidence: "seen"}},
				Retire{KeepFor: 3_600_000, KeepEpochs: 100},
			)
			apply(t, m, at+10_000, bodies...)
			at += 600_000
		}
		text, err := json.Marshal(m.State())
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	more := 200
	if testing.Short() {
		more = 40 // twice what is young
	}
	young, old := live(20), live(more)
	if most := young + more*150; old > most {
		t.Errorf("the state is %d bytes after 400 epochs and %d after %d more, want at most %d", young, old, 20*more, most)
	}
	if epochs := m.State().Scopes[0].Epochs; len(epochs) > 100+20 {
		t.Errorf("%d epochs are kept", len(epochs))
	}
}
