package ledger

import (
	"errors"
	"strings"
	"testing"
)

func TestStateStaysAsItIsWhileTheMachineMovesOn(t *testing.T) {
	m := running(t)
	apply(t, m, 1000, deciding("p", Epoch{1, 1}, "1", 0), deciding("p", Epoch{1, 2}, "1", 0),
		Announce{Txn: handID(1000, 1), Branches: []HandBranch{{Resource: "r"}}},
		Pin{Scope: theScope, Epoch: Epoch{1, 1}})
	state, before := m.State(), m.Hash()
	view, _ := m.Scope(theScope)
	record, _ := m.Epoch(theScope, Epoch{1, 1})

	apply(t, m, 2000, proving("p", Epoch{1, 1}, "a", "out", ProvenCommitted), deciding("p", Epoch{1, 3}, "1", 2),
		Pin{Scope: theScope, Epoch: Epoch{1, 1}, Unpin: true}, Pin{Scope: theScope, Epoch: Epoch{1, 2}},
		Commit{Txn: handID(1000, 1), Branches: []HandBranch{{Resource: "r", Handle: Handle{Kind: "k"}}}},
		CloseGeneration{Scope: theScope, Generation: 1, Cause: "end"},
		Swept{Scope: theScope, Generation: 1, Branch: BranchID{"a", "out"}}, Retire{})

	if m.Hash() == before {
		t.Fatal("the machine did not move")
	}
	old, err := Load(state)
	if err != nil {
		t.Fatal(err)
	}
	if old.Hash() != before {
		t.Error("the state taken before is another one now")
	}
	if record.Branches[0].Proof.Verdict != verdictUnset || len(record.Votes) != 2 {
		t.Errorf("the record taken before has changed: %+v", record)
	}
	if len(view.Epochs) != 2 || !view.Generations[0].Open || view.Pinned[0] != (Epoch{1, 1}) {
		t.Errorf("the view taken before has changed: %+v", view)
	}
}

func TestLoadRefusesWhatCannotArise(t *testing.T) {
	for name, spoil := range map[string]func(*State){
		"a newer feature level":            func(s *State) { s.FeatureLevel = CurrentFeatureLevel + 1 },
		"a generation beyond the counter":  func(s *State) { s.LastGeneration = 0 },
		"a generation of two scopes":       func(s *State) { s.Scopes[1].Generations[0].Generation = 1 },
		"an epoch beyond final":            func(s *State) { s.Scopes[0].Generations[0].Final = 1 },
		"an epoch twice":                   func(s *State) { s.Scopes[0].Epochs[1].Epoch.N = 1 },
		"the last decided epoch is gone":   func(s *State) { s.Scopes[0].Epochs, s.Scopes[0].RestorePoint = s.Scopes[0].Epochs[:1], Epoch{1, 1} },
		"a restore point that is not kept": func(s *State) { s.Scopes[0].RestorePoint = Epoch{1, 9} },
		"a restore point without votes":    func(s *State) { s.Scopes[0].Epochs[1].Votes = nil },
		"an epoch without a vote":          func(s *State) { s.Scopes[0].Epochs[0].Votes = s.Scopes[0].Epochs[0].Votes[:1] },
		"proven without proof":             func(s *State) { s.Scopes[0].Epochs[0].ProvenAt = 5 },
		"open and halted":                  func(s *State) { s.Scopes[0].Halted = "why" },
		"open and in debt":                 func(s *State) { s.Scopes[0].Generations[0].Debts = []BranchID{{"a", "out"}} },
		"an undeclared member":             func(s *State) { s.Pipelines[0].Members = s.Pipelines[0].Members[:1] },
		"a scope without a pipeline":       func(s *State) { s.Pipelines = s.Pipelines[1:] },
		"a pipeline without a scope":       func(s *State) { s.Scopes = s.Scopes[:1] },
		"a pipeline twice":                 func(s *State) { s.Pipelines[1] = s.Pipelines[0] },
		"a bad pipeline":                   func(s *State) { s.Pipelines[0].Settings.Lease = -1 },
		"a transaction without outcome":    func(s *State) { s.Txns[0].Outcome = outcomeUnset },
		"a transaction with a bad id":      func(s *State) { s.Txns[0].ID = "x" },
		"in doubt below the floor":         func(s *State) { s.Floor = 5000 },
		"objects before the name":          func(s *State) { s.Namespace = "" },
	} {
		t.Run(name, func(t *testing.T) {
			m := running(t)
			apply(t, m, 1000, PutPipeline{Pipeline: twoMembers("q")}, opening("q", 0, "1"),
				deciding("p", Epoch{1, 1}, "1", 0), deciding("p", Epoch{1, 2}, "1", 0),
				Announce{Txn: handID(1000, 1), Branches: []HandBranch{{Resource: "r"}}})
			s := m.State()
			spoil(&s)
			if _, err := Load(s); err == nil {
				t.Error("it was loaded")
			} else if !strings.HasPrefix(err.Error(), "ledger: the state is not one that can arise: ") {
				t.Errorf("the error does not say what is wrong: %v", err)
			}
		})
	}
}

func TestABinaryThatCannotFollowStops(t *testing.T) {
	m := running(t)
	apply(t, m, 1000, PutNode{Node: Node{ID: "n1", ClientAddress: "c", FeatureLevel: CurrentFeatureLevel + 1}})
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "run a newer one") {
			t.Errorf("it went on: %v", v)
		}
	}()
	m.Apply(Command{At: 1000, Body: RaiseFeatureLevel{Level: CurrentFeatureLevel + 1}})
}

func TestARemovedNodeHoldsNothingBack(t *testing.T) {
	m := running(t)
	apply(t, m, 1000, PutNode{Node: Node{ID: "n1", ClientAddress: "c", FeatureLevel: 1}}, PutNode{Node: Node{ID: "n2", ClientAddress: "c", FeatureLevel: 1}},
		PutNode{Node: Node{ID: "n1"}}, PutNode{Node: Node{ID: "n9"}})
	if ns := m.Nodes(); len(ns) != 1 || ns[0].ID != "n2" {
		t.Errorf("the nodes are %v", ns)
	}
}

func TestLimitsOfACommand(t *testing.T) {
	m := running(t)
	refused := func(b Body, want Refusal, words string) {
		t.Helper()
		before := m.Digest()
		if r, _ := m.Apply(Command{At: 1000, Body: b}); r.Refusal != want || !strings.Contains(r.Text, words) {
			t.Errorf("%s: %s, want %s about %q", r.Refusal, r.Text, want, words)
		}
		if m.Digest() != before {
			t.Error("a refusal changed the state")
		}
	}
	d := deciding("p", Epoch{1, 1}, "1", 0)
	d.Votes[0].Branches[0].Handle.Body = make([]byte, MaxHandle)
	refused(d, Invalid, "at most 16384")
	d = deciding("p", Epoch{1, 1}, "1", 0)
	d.Votes[0].Parts[0].Body = make([]byte, MaxCommand)
	refused(d, Invalid, "at most 1048576")
	d = deciding("p", Epoch{1, 1}, "1", 0)
	d.Votes[0].Branches[0].Handle.Kind = ""
	refused(d, Invalid, "no adapter kind")
	d = deciding("p", Epoch{1, 1}, "1", 0)
	d.Votes[0].Branches[0].Resource = "other"
	refused(d, Invalid, "not declared")
	d = deciding("p", Epoch{1, 1}, "1", 0)
	d.Votes[0].Branches = append(d.Votes[0].Branches, d.Votes[0].Branches...)
	refused(d, Invalid, "two branches")

	r := apply(t, m, 1000, CloseGeneration{Scope: theScope, Generation: 1, Cause: strings.Repeat("ä", MaxText), Halt: "\xff"})
	if g, _ := m.Newest(theScope); len(g.Cause) > MaxText || r.Final != 0 || m.Halted(theScope) != "?" {
		t.Errorf("a long reason was kept in %d bytes, halted %q", len(g.Cause), m.Halted(theScope))
	}
	if r, _ := m.Apply(Command{Request: strings.Repeat("x", MaxInstance+1), Body: Retire{}}); r.Refusal != Invalid {
		t.Error("a long request id was taken")
	}
}

func TestNamesThatCannotBePrefixesOfEachOther(t *testing.T) {
	for _, bad := range []string{"", "-a", "_a", "a.b", "a/b", "a@b", "ä", "a b", strings.Repeat("a", 41)} {
		if err := CheckName("pipeline", bad, MaxPipeline); !errors.Is(err, ErrName) {
			t.Errorf("%q is taken for a name", bad)
		}
	}
	for _, good := range []string{"a", "0", "a-b_c", strings.Repeat("a", 40)} {
		if err := CheckName("pipeline", good, MaxPipeline); err != nil {
			t.Errorf("%q is refused: %v", good, err)
		}
	}
	if ms, ok := handID(1<<47, 3).Time(); !ok || ms != 1<<47 {
		t.Errorf("the id's time is %d, %t", ms, ok)
	}
	for _, bad := range []TxnID{"", "018f0000-0000-4000-8000-000000000000", "018f0000-0000-7000-c000-000000000000", "018F0000-0000-7000-8000-000000000000"} {
		if _, ok := bad.Time(); ok {
			t.Errorf("%q is taken for a hand-run id", bad)
		}
	}
}

// A delay that the count cannot have caused comes from a leader's clock far ahead: the scope must
// not wait for that clock.
func TestABackOffFromAnotherClockIsNotWaitedFor(t *testing.T) {
	m := running(t)
	apply(t, m, 9_000_000, CloseGeneration{Scope: theScope, Generation: 1, Cause: "x"})
	apply(t, m, 1000, opening("p", 1, "2"))
}

func TestOutstandingIsInCommitOrder(t *testing.T) {
	m := running(t)
	apply(t, m, 1000, PutPipeline{Pipeline: twoMembers("a")}, opening("a", 0, "1"),
		deciding("p", Epoch{1, 1}, "1", 0), deciding("a", Epoch{2, 1}, "1", 0), deciding("p", Epoch{1, 2}, "1", 0),
		Commit{Txn: handID(1000, 1), Branches: []HandBranch{{Resource: "r", Handle: Handle{Kind: "k"}}}},
		proving("p", Epoch{1, 1}, "b", "dir", ProvenCommitted))
	var got []string
	for _, u := range m.Outstanding().Unfinished {
		got = append(got, string(u.Txn)+" "+u.Branch.String())
	}
	want := "a/0@2.1 a/out, a/0@2.1 b/dir, p/0@1.1 a/out, p/0@1.2 a/out, p/0@1.2 b/dir, " + string(handID(1000, 1)) + " r"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	if n := len(m.Txns(true, "", 1)); n != 1 {
		t.Errorf("%d transactions in doubt", n)
	}
}
