package sim_test

import (
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// What is left behind is a finding unless the very generation, member and resource are still to be swept.
func TestWhatIsLeftBehindIsFoundUnlessItIsOwed(t *testing.T) {
	w := newWorld(t, newPlan(1))
	w.owed = map[debt]bool{{"p/0", "m1", "a", 13}: true}
	owed := participant.BranchName{Namespace: participant.Namespace{Name: "sim", Incarnation: 1}, Pipeline: "p", Member: "m1", Resource: "a", Generation: 13, N: 2}
	older, other, byHand := owed, owed, owed
	older.Generation = 12
	other.Resource = "b"
	byHand.Txn = "0197a0b4-7a3c-7e1d-9a55-3f3c2b1a0d9e"
	for _, b := range []participant.BranchName{owed, older, other, byHand} {
		w.leftBehind("store", b)
	}
	held := 0
	for _, e := range w.hist.Events() {
		if e.Kind == check.Held {
			held++
		}
	}
	if held != 3 {
		t.Errorf("%d of 3 were found", held)
	}
}
