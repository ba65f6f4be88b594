package server

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// shown is a node of which a test looks at the ledger alone.
type shown struct {
	Node
	m *ledger.Machine
}

func (s shown) View(read func(*ledger.Machine)) { read(s.m) }

// doubtful is a ledger with one unfinished epoch and some unfinished transactions by hand.
func doubtful(t *testing.T, byHand int) *ledger.Machine {
	t.Helper()
	m := ledger.New()
	scope := ledger.ScopeID{Pipeline: "p"}
	handle := ledger.Handle{Kind: "memory", Version: 1, Identity: "i", Alias: "out", Name: "n"}
	bodies := []ledger.Body{
		ledger.Init{Namespace: "test", Incarnation: 1},
		ledger.PutPipeline{Pipeline: ledger.Pipeline{
			Name: "p", Fingerprint: "f",
			Members: []ledger.MemberSpec{{Name: "a", Source: true, Resources: []ledger.ResourceSpec{{Name: "out", Kind: "memory"}}}},
		}},
		ledger.OpenGeneration{Scope: scope, Fingerprint: "f", Cause: "test", Members: []ledger.MemberInstance{{Member: "a", Instance: "1"}}},
		ledger.Decide{Scope: scope, Epoch: ledger.Epoch{Generation: 1, N: 1}, Votes: []ledger.Vote{{
			Member: "a", Instance: "1", Branches: []ledger.Prepared{{Resource: "out", Handle: handle}},
		}}},
	}
	for n := range byHand {
		bodies = append(bodies, ledger.Commit{
			Txn:      ledger.TxnID(fmt.Sprintf("00000000-03e8-7000-8000-%012x", n)),
			Branches: []ledger.HandBranch{{Resource: "out", Handle: handle}},
		})
	}
	for _, b := range bodies {
		if r, _ := m.Apply(ledger.Command{At: 1000, Actor: "test", Body: b}); !r.OK() {
			t.Fatalf("%T: %s", b, r.Text)
		}
	}
	return m
}

func TestAListOfTransactionsIsNeverLongerThanItsLimit(t *testing.T) {
	s := &transactions{s: &Server{c: Config{Node: shown{m: doubtful(t, 3)}, Sessions: noSessions{}}}}
	for limit := range uint32(6) {
		want := min(int(limit), 4)
		if limit == 0 {
			want = 4 // the default
		}
		got, err := s.ListTransactions(t.Context(), &unisinkv1.ListTransactionsRequest{InDoubt: true, Limit: limit})
		if err != nil || len(got.GetTransactions()) != want {
			t.Errorf("limit %d: %d transactions, %v; want %d", limit, len(got.GetTransactions()), err, want)
		}
	}
}

// A page of those by hand begins behind the last of the page before, and has no epochs.
func TestTransactionsByHandAreListedInPages(t *testing.T) {
	s := &transactions{s: &Server{c: Config{Node: shown{m: doubtful(t, 5)}, Sessions: noSessions{}}}}
	var ids []string
	for _, want := range []int{2, 2, 1, 0} {
		req := &unisinkv1.ListTransactionsRequest{InDoubt: true, ByHand: true, Limit: 2}
		if len(ids) > 0 {
			req.After = ids[len(ids)-1]
		}
		got, err := s.ListTransactions(t.Context(), req)
		if err != nil || len(got.GetTransactions()) != want {
			t.Fatalf("behind %q: %d transactions, %v; want %d", req.GetAfter(), len(got.GetTransactions()), err, want)
		}
		for _, x := range got.GetTransactions() {
			if x.GetScope() != nil {
				t.Errorf("%s is an epoch", x.GetTxn())
			}
			ids = append(ids, x.GetTxn())
		}
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != 5 {
		t.Errorf("listed are %q", ids)
	}
}

// overtaken is a node on which a transaction is committed just before the next command.
type overtaken struct {
	shown
	commit ledger.Commit
}

func (o overtaken) Barrier(context.Context) error { return nil }

func (o overtaken) Propose(_ context.Context, c ledger.Command) (ledger.Result, error) {
	if r, _ := o.m.Apply(ledger.Command{At: 1000, Actor: "test", Body: o.commit}); !r.OK() {
		return r, nil
	}
	c.At = 1000
	r, _ := o.m.Apply(c)
	return r, nil
}

// Who asks for an outcome while it is being decided is told it, not that it is decided otherwise.
func TestAQuestionThatACommitOvertakesIsAnsweredCommitted(t *testing.T) {
	const id = "00000000-03e8-7000-8000-000000000001"
	handle := ledger.Handle{Kind: "memory", Version: 1, Identity: "i", Alias: "out", Name: "n"}
	node := overtaken{shown{m: doubtful(t, 0)}, ledger.Commit{Txn: id, Branches: []ledger.HandBranch{{Resource: "out", Handle: handle}}}}
	s := &transactions{s: &Server{c: Config{Node: node}, asked: newQuota(10, 5)}}
	got, err := s.Outcome(t.Context(), &unisinkv1.OutcomeRequest{Txn: id})
	if err != nil || got.GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
		t.Errorf("told %v, %v", got, err)
	}
}
