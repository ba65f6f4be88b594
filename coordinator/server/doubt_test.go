package server

import (
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// busySessions have as many rounds open as a group with many scopes has at any time.
type busySessions struct {
	noSessions
	rounds int
}

func (b busySessions) Living(ledger.ScopeID) Living {
	var l Living
	for n := range b.rounds {
		l.Rounds = append(l.Rounds, LivingRound{Epoch: ledger.Epoch{Generation: 1, N: uint64(n) + 10}, Missing: []string{"a"}, Left: time.Second})
	}
	return l
}

func TestOpenRoundsHideNothingThatAPersonMustSee(t *testing.T) {
	m := doubtful(t, 3)
	scope := ledger.ScopeID{Pipeline: "p"}
	epoch := ledger.Epoch{Generation: 1, N: 1}
	lost := ledger.Resolve{
		Txn: ledger.EpochTxn(scope, epoch), Branch: ledger.BranchID{Member: "a", Resource: "out"},
		Proof: ledger.Proof{Verdict: ledger.ProvenRolledBack, Evidence: "gone"},
	}
	if r, _ := m.Apply(ledger.Command{At: 2000, Actor: "test", Body: lost}); !r.OK() {
		t.Fatal(r.Text)
	}
	s := &transactions{s: &Server{c: Config{Node: shown{m: m}, Sessions: busySessions{rounds: 50}}}}
	for limit, want := range map[uint32]struct{ broken, byHand, undecided int }{
		1:  {1, 0, 0},
		3:  {1, 1, 1},
		10: {1, 3, 6},
		80: {1, 3, 50},
	} {
		got, err := s.ListTransactions(t.Context(), &unisinkv1.ListTransactionsRequest{InDoubt: true, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		broken, byHand, undecided := 0, 0, 0
		for _, x := range got.GetTransactions() {
			switch {
			case x.GetHeuristic() != "":
				broken++
			case x.GetScope() == nil:
				byHand++
			case x.GetOutcome() == unisinkv1.Outcome_OUTCOME_PENDING:
				undecided++
			}
		}
		if broken != want.broken || byHand != want.byHand || undecided != want.undecided {
			t.Errorf("of %d: %d broken, %d by hand, %d undecided; want %+v", limit, broken, byHand, undecided, want)
		}
	}
}
