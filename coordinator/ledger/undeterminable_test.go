package ledger

import (
	"strings"
	"testing"
)

func doubting(at Epoch) Undeterminable {
	return Undeterminable{Scope: theScope, Epoch: at, Branch: BranchID{"a", "out"}, Evidence: "the marker is gone"}
}

func TestWhyAScopeIsHaltedIsReadAgain(t *testing.T) {
	for _, evidence := range []string{"", "the marker is gone", "of epoch 1.1 is undeterminable: twice; `unisink", strings.Repeat("ä", MaxText), "half\xc3"} {
		u := doubting(Epoch{7, 12})
		u.Evidence = evidence
		text := u.String()
		if len(text) > MaxText || !strings.Contains(text, "unisink txn resolve p/0@7.12 --force accept-loss --branch a/out") {
			t.Errorf("%d bytes: %s", len(text), text)
		}
		got, ok := ParseUndeterminable(theScope, text)
		if !ok || got.String() != text || got.Epoch != u.Epoch || got.Branch != u.Branch || evidence != "" && got.Evidence == "" {
			t.Errorf("%q is read as %+v, %v", text, got, ok)
		}
	}
	for _, other := range []string{
		"", "branch a/out of epoch 7.12 was committed and is proven rolled-back: gone", "branch a/out of epoch 7.12 is undeterminable: gone",
		"branch out of epoch 7.12 is undeterminable: gone", "branch a/out of epoch x is undeterminable: gone",
	} {
		if u, ok := ParseUndeterminable(theScope, other); ok {
			t.Errorf("%q is read as %+v", other, u)
		}
	}
}

func FuzzParseUndeterminable(f *testing.F) {
	f.Add(doubting(Epoch{7, 12}).String())
	f.Add("branch a/out of epoch 7.12 is undeterminable: ")
	f.Fuzz(func(t *testing.T, text string) {
		if u, ok := ParseUndeterminable(theScope, text); ok && u.String() != text {
			t.Errorf("%q became %q", text, u.String())
		}
	})
}

// Promise 5: a branch that nobody can tell of halts its scope, and is neither proven nor forgotten.
func TestABranchThatNobodyCanTellOfHaltsItsScopeAlone(t *testing.T) {
	m := running(t)
	apply(t, m, 1000, PutPipeline{Pipeline: twoMembers("q")}, opening("q", 0, "1"), deciding("p", Epoch{1, 1}, "1", 0), deciding("p", Epoch{1, 2}, "1", 0))
	u := doubting(Epoch{1, 1})
	halt, due := m.HaltOver(u)
	if !due {
		t.Fatal("nothing is to be halted")
	}
	apply(t, m, 2000, halt)
	if g, _ := m.Newest(theScope); g.Open || m.Halted(theScope) != u.String() {
		t.Errorf("open %v, halted: %s", g.Open, m.Halted(theScope))
	}
	if q, _ := m.Newest(ScopeID{Pipeline: "q"}); !q.Open {
		t.Error("another scope was closed")
	}
	if e, _ := m.Epoch(theScope, u.Epoch); e.ProvenAt != 0 || e.Branches[0].Proof.Verdict != verdictUnset {
		t.Errorf("it counts as proven: %+v", e)
	}
	if _, again := m.HaltOver(u); again {
		t.Error("a scope that is halted is to be halted again")
	}
	// Resumed, and nothing has changed; then forced.
	apply(t, m, 3000, Resume{Scope: theScope, Why: "the table was restored"})
	if _, due := m.HaltOver(u); !due {
		t.Error("it is not halted again, though nobody can tell still")
	}
	apply(t, m, 4000, Force{Txn: EpochTxn(theScope, u.Epoch), Branch: u.Branch, Action: AcceptLoss, Why: "looked at the rows"})
	for at, what := range map[Epoch]string{{1, 1}: "what was forced", {1, 9}: "", {9, 1}: "what was never opened"} {
		if _, due := m.HaltOver(doubting(at)); due != (what == "") {
			t.Errorf("epoch %s, %s: halts %v", at, what, due)
		}
	}
	apply(t, m, 5000, proving("p", Epoch{1, 2}, "a", "out", ProvenCommitted))
	if _, due := m.HaltOver(doubting(Epoch{1, 2})); due {
		t.Error("what is proven halts the scope")
	}
	if _, due := m.HaltOver(Undeterminable{Scope: theScope, Epoch: Epoch{1, 2}, Branch: BranchID{"a", "other"}}); due {
		t.Error("a branch that is not there halts the scope")
	}
}
