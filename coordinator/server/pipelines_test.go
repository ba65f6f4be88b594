package server

import (
	"context"
	"testing"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// written is a node of which a test looks at the ledger, and whose log is applied at once.
type written struct{ shown }

func (w written) Propose(_ context.Context, c ledger.Command) (ledger.Result, error) {
	c.At = 5000
	r, _ := w.m.Apply(c)
	return r, nil
}

func (written) NodeStatus() NodeStatus { return NodeStatus{} }

// nobody is a leader without members.
type nobody struct{ Sessions }

func (nobody) Living(ledger.ScopeID) Living { return Living{} }

func TestAScopeGoesBackToAKeptRestorePointAndNowhereElse(t *testing.T) {
	m := doubtful(t, 0) // 1.1 is decided, generation 1 is open
	s := &pipelines{s: &Server{c: Config{Node: written{shown{m: m}}, Sessions: nobody{}}}}
	id := ledger.ScopeID{Pipeline: "p"}
	scope := &unisinkv1.Scope{Pipeline: "p"}
	for n := uint64(2); n <= 3; n++ {
		r, _ := m.Apply(ledger.Command{At: 1000 * int64(n), Actor: "test", Body: ledger.Decide{
			Scope: id, Epoch: ledger.Epoch{Generation: 1, N: n}, Votes: []ledger.Vote{{Member: "a", Instance: "1", ProvenThrough: n - 1}},
		}})
		if !r.OK() {
			t.Fatal(r.Text)
		}
	}
	rewind := func(g, n uint64, why string) string {
		_, err := s.Rewind(t.Context(), &unisinkv1.RewindRequest{Scope: scope, RestorePoint: &unisinkv1.Epoch{Generation: g, N: n}, Why: why})
		reason, _ := grpcerr.Reason(err)
		if err != nil && reason == "" {
			t.Fatalf("an error without a reason: %v", err)
		}
		return reason
	}
	if got := rewind(1, 1, "wrong rates"); got != grpcerr.Busy {
		t.Errorf("while the generation is open: %q", got)
	}
	if r, _ := m.Apply(ledger.Command{At: 4000, Actor: "test", Body: ledger.CloseGeneration{Scope: id, Generation: 1, Cause: "test"}}); !r.OK() {
		t.Fatal(r.Text)
	}
	for _, c := range []struct {
		g, n uint64
		why  string
		want string
	}{
		{0, 0, "wrong rates", grpcerr.Invalid},
		{1, 1, "", grpcerr.Invalid},
		{1, 4, "wrong rates", grpcerr.NotFound},
		{2, 1, "wrong rates", grpcerr.NotFound},
		{1, 1, "wrong rates", ""},
	} {
		if got := rewind(c.g, c.n, c.why); got != c.want {
			t.Errorf("to %d.%d because of %q: %q, want %q", c.g, c.n, c.why, got, c.want)
		}
	}
	current, pinned := kept(t, s)
	if current != "1.1" || pinned != "" {
		t.Errorf("the restore point is %s, pinned is %s", current, pinned)
	}
	for _, unpin := range []bool{false, false, true, true} { // repeats are no errors
		req := &unisinkv1.PinRequest{Scope: scope, RestorePoint: &unisinkv1.Epoch{Generation: 1, N: 2}, Unpin: unpin}
		if _, err := s.Pin(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		want := "1.2"
		if unpin {
			want = ""
		}
		if _, pinned := kept(t, s); pinned != want {
			t.Errorf("pinned is %q, want %q", pinned, want)
		}
	}
}

// kept checks that the three restore points are shown, with their age, and returns which is the
// current one and which is pinned.
func kept(t *testing.T, s *pipelines) (current, pinned string) {
	t.Helper()
	g, err := s.GetPipeline(t.Context(), &unisinkv1.GetPipelineRequest{Name: "p"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.ListEpochs(t.Context(), &unisinkv1.ListEpochsRequest{Scope: &unisinkv1.Scope{Pipeline: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	points := g.GetScopes()[0].GetRestorePoints()
	if len(points) != 3 || len(list.GetEpochs()) != 3 {
		t.Fatalf("%d restore points of %d epochs", len(points), len(list.GetEpochs()))
	}
	for i, p := range points {
		e := list.GetEpochs()[2-i]
		at := ledger.Epoch{Generation: 1, N: uint64(i) + 1}.String()
		if p.GetEpoch().GetN() != uint64(i)+1 || p.GetDecidedAtMs() != int64(i+1)*1000 || p.GetAgeMs() <= 0 {
			t.Errorf("restore point %d is %v", i, p)
		}
		if !e.GetKept() || e.GetPinned() != p.GetPinned() || e.GetRestorePoint() != p.GetCurrent() {
			t.Errorf("the list says %v of restore point %v", e, p)
		}
		if p.GetCurrent() {
			current += at
		}
		if p.GetPinned() {
			pinned += at
		}
	}
	return current, pinned
}

func TestSettingsAreToldWithoutLookingAtAnyScope(t *testing.T) {
	s := &pipelines{s: &Server{c: Config{Node: written{shown{m: doubtful(t, 0)}}}}} // a scope's state would need Sessions
	got, err := s.GetPipeline(t.Context(), &unisinkv1.GetPipelineRequest{Name: "p", SettingsOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetPipeline().GetName() != "p" || got.GetPipeline().GetSettings().GetMaxPending() == 0 || len(got.GetScopes()) != 0 {
		t.Errorf("got %v", got)
	}
}
