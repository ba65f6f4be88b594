package server

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unisink/unisink/coordinator/alloctest"
	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Each piece of the duties by hand goes on where the one before ended, and has all that is of epochs.
func TestDutiesByHandComeInPieces(t *testing.T) {
	const byHand = 250
	node := applied{shown: shown{m: doubtful(t, byHand)}, barriers: new(int)}
	r := &resolution{s: &Server{c: Config{Node: node, Sessions: noSessions{}}}, reports: &reports{}}
	ask := func(most uint32, after string) *unisinkv1.ListDutiesResponse {
		got, err := r.ListDuties(t.Context(), &unisinkv1.ListDutiesRequest{ByHandAtMost: most, After: after})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var txns []string
	after := ""
	for _, want := range []int{100, 100, 50} {
		got := ask(100, after)
		if n := len(got.GetDuties()); n != 1+want || got.GetDuties()[0].GetBranch().GetTxn() != "" {
			t.Fatalf("behind %q: %d duties, want one of an epoch and %d by hand", after, n, want)
		}
		for _, d := range got.GetDuties()[1:] {
			txns = append(txns, d.GetBranch().GetTxn())
		}
		after = got.GetNext()
		if (after == "") != (want == 50) {
			t.Fatalf("after %d by hand the next begins at %q", len(txns), after)
		}
	}
	slices.Sort(txns)
	if n := len(slices.Compact(txns)); n != byHand {
		t.Errorf("%d of %d by hand are listed", n, byHand)
	}
	for most, want := range map[uint32]int{0: byHand, 1000: byHand, 1: 1} {
		if got := ask(most, "no place"); len(got.GetDuties()) != 1+want {
			t.Errorf("at most %d: %d duties, want %d by hand", most, len(got.GetDuties()), want)
		}
	}
}

// standing is a node that says nothing of itself.
type standing struct{ applied }

func (standing) NodeStatus() NodeStatus { return NodeStatus{} }

// What is asked again and again costs what its answer does, not what the ledger keeps.
func TestAnAnswerCostsNoLookAtAllThatIsKept(t *testing.T) {
	for _, c := range []struct {
		what      string
		few, many *ledger.Machine
		ask       func(*Server) error
	}{
		{"a piece of the duties", doubtful(t, 40), doubtful(t, 4000), func(s *Server) error {
			_, err := (&resolution{s: s, reports: &reports{}}).ListDuties(t.Context(), &unisinkv1.ListDutiesRequest{ByHandAtMost: 20})
			return err
		}},
		{"a page by hand", doubtful(t, 40), doubtful(t, 4000), func(s *Server) error {
			_, err := (&transactions{s: s}).ListTransactions(t.Context(), &unisinkv1.ListTransactionsRequest{Limit: 20})
			return err
		}},
		{"what is in doubt", proven(t, 10), proven(t, 1000), func(s *Server) error {
			_, err := (&transactions{s: s}).ListTransactions(t.Context(), &unisinkv1.ListTransactionsRequest{InDoubt: true, Limit: 20})
			return err
		}},
		{"the proven cut", pipelined(t, 5), pipelined(t, 1000), func(s *Server) error {
			_, err := (&pipelines{s: s}).ProvenCut(t.Context(), &unisinkv1.ProvenCutRequest{Pipeline: "p"})
			return err
		}},
		{"the number of pipelines", pipelined(t, 5), pipelined(t, 1000), func(s *Server) error {
			c := s.c
			c.Registry = prometheus.NewRegistry()
			newMetrics(c)
			_, err := c.Registry.Gather()
			return err
		}},
	} {
		cost := func(m *ledger.Machine) uint64 {
			node := standing{applied{shown: shown{m: m}, barriers: new(int)}}
			s := &Server{c: Config{Node: node, Sessions: noSessions{}, InDoubt: func() InDoubt { return InDoubt{} }}}
			return alloctest.Least(func() {
				if err := c.ask(s); err != nil {
					t.Errorf("%s: %v", c.what, err)
				}
			})
		}
		cost(c.few) // what is made once
		if few, many := cost(c.few), cost(c.many); many > 2*few+alloctest.Slack {
			t.Errorf("%s: %d bytes with little in the ledger, %d with a hundred times as much", c.what, few, many)
		}
	}
}

// proven is a ledger with so many epochs that are proven, and one that is not.
func proven(t *testing.T, epochs int) *ledger.Machine {
	t.Helper()
	m := doubtful(t, 0)
	scope := ledger.ScopeID{Pipeline: "p"}
	for n := uint64(2); n <= uint64(epochs)+1; n++ {
		r, _ := m.Apply(ledger.Command{At: 1000, Actor: "test", Body: ledger.Decide{Scope: scope, Epoch: ledger.Epoch{Generation: 1, N: n}, Votes: []ledger.Vote{{
			Member: "a", Instance: "1", ProvenThrough: n - 1,
			Branches: []ledger.Prepared{{Resource: "out", Handle: ledger.Handle{Kind: "memory", Version: 1, Identity: "i", Name: fmt.Sprint(n)}}},
		}}}})
		if !r.OK() {
			t.Fatal(r.Text)
		}
	}
	return m
}

// pipelined is a ledger with so many other pipelines.
func pipelined(t *testing.T, others int) *ledger.Machine {
	t.Helper()
	m := doubtful(t, 0)
	p, _ := m.Pipeline("p")
	for n := range others {
		if r, _ := m.Apply(ledger.Command{At: 1000, Actor: "test", Body: ledger.PutPipeline{Pipeline: ledger.Pipeline{Name: fmt.Sprint("other", n), Members: p.Members}}}); !r.OK() {
			t.Fatal(r.Text)
		}
	}
	return m
}

// A resource that was set back leaves thousands of branches by hand of which nobody can tell, and each is told again and
// again. A report costs the same however many there are; and what is resolved is forgotten.
func TestReportsOfManyUndeterminableBranchesDoNotAddUp(t *testing.T) {
	told := func(n int) (*Server, uint64) {
		m := doubtful(t, n)
		s := &Server{c: Config{Node: shown{m: m}}, metrics: &metrics{broken: prometheus.NewCounter(prometheus.CounterOpts{Name: "broken"})}}
		return s, alloctest.Bytes(func() {
			for _, x := range m.Txns(true, "", 0) {
				s.byHandUndeterminable(x.ID, x.Branches[0].ID, "gone")
			}
		})
	}
	_, few := told(200)
	s, many := told(4000)
	if many > 4*20*few {
		t.Errorf("%d bytes for 200 reports, %d for 4,000", few, many)
	}
	if n := len(s.told.undeterminable); n != 4000 {
		t.Errorf("%d are remembered, want 4,000", n)
	}
	m := s.c.Node.(shown).m
	for _, x := range m.Txns(true, "", 3990) {
		if r, _ := m.Apply(ledger.Command{At: 2000, Body: ledger.Resolve{Txn: x.ID, Branch: x.Branches[0].ID, Proof: ledger.Proof{Verdict: ledger.ProvenCommitted}}}); !r.OK() {
			t.Fatal(r.Text)
		}
		s.byHandUndeterminable(x.ID, x.Branches[0].ID, "gone")
	}
	if n := len(s.told.undeterminable); n != 10 {
		t.Errorf("%d are remembered once all others are proven, want 10", n)
	}
}
