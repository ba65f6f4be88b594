package ledger

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// handID is a hand-run id of the given time; n tells ids of one time apart.
func handID(ms int64, n int) TxnID {
	h := fmt.Sprintf("%012x", ms)
	return TxnID(fmt.Sprintf("%s-%s-7000-8000-%012x", h[:8], h[8:], n))
}

// twoMembers is a pipeline of members a and b with one resource each.
func twoMembers(name string) Pipeline {
	return Pipeline{
		Name: name, Fingerprint: "v1",
		Members: []MemberSpec{
			{Name: "a", Source: true, Resources: []ResourceSpec{{Name: "out", Kind: "kafka"}}},
			{Name: "b", Resources: []ResourceSpec{{Name: "dir", Kind: "file"}}},
		},
	}
}

// clone copies a machine without recomputing anything, for tests that go many ways from one state.
func (m *Machine) clone() *Machine {
	o := *m
	o.enc = encoder{}
	o.nodes = maps.Clone(m.nodes)
	o.refs = maps.Clone(m.refs)
	o.unguarded.refused = maps.Clone(m.unguarded.refused)
	o.pipelines = make(map[string]*pipeline, len(m.pipelines))
	for k, p := range m.pipelines {
		c := *p
		o.pipelines[k] = &c
	}
	o.scopes, o.sorted = make(map[ScopeID]*scope, len(m.scopes)), make([]*scope, len(m.sorted))
	for i, s := range m.sorted {
		o.sorted[i] = s.clone()
		o.scopes[s.id] = o.sorted[i]
	}
	o.txns = maps.Clone(m.txns) // records never change
	for _, x := range []*order{&o.hand.byID, &o.hand.inDoubt, &o.hand.undecided, &o.hand.unfinished} {
		x.runs = slices.Clone(x.runs)
		for i := range x.runs {
			x.runs[i] = slices.Clone(x.runs[i])
		}
	}
	return &o
}

func (s *scope) clone() *scope {
	c := *s
	c.gens = make([]*GenerationRecord, len(s.gens))
	for i, g := range s.gens {
		r := *g
		c.gens[i] = &r
	}
	c.epoch, c.open, c.bad = make([]*epoch, len(s.epoch)), nil, nil
	for i, e := range s.epoch {
		r := *e
		c.epoch[i] = &r
		if slices.Contains(s.open, e) {
			c.open = append(c.open, &r)
		}
		if slices.Contains(s.bad, e) {
			c.bad = append(c.bad, &r)
		}
	}
	return &c
}

// apply applies commands that must succeed.
func apply(t testing.TB, m *Machine, at int64, bodies ...Body) Result {
	t.Helper()
	var r Result
	for _, b := range bodies {
		r, _ = m.Apply(Command{At: at, Actor: "test", Body: b})
		if !r.OK() {
			t.Fatalf("%#v: %s: %s", b, r.Refusal, r.Text)
		}
	}
	check(t, m)
	return r
}

// check wants every invariant, and the same state back from a snapshot.
func check(t testing.TB, m *Machine) {
	t.Helper()
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	o, err := Load(m.State())
	if err != nil {
		t.Fatal(err)
	}
	if o.Hash() != m.Hash() || o.Digest() != m.Digest() {
		t.Fatal("a machine loaded from the state is not equal")
	}
}

// running is a machine with pipeline p, whose generation 1 is open.
func running(t testing.TB) *Machine {
	t.Helper()
	m := New()
	apply(t, m, 1000, Init{Namespace: "test", Incarnation: 1}, PutPipeline{Pipeline: twoMembers("p")}, opening("p", 0, "1"))
	return m
}

func opening(name string, from Generation, instance string) OpenGeneration {
	return OpenGeneration{
		Scope: ScopeID{Pipeline: name}, From: from, Fingerprint: "v1", Cause: "test",
		Members: []MemberInstance{{Member: "b", Instance: "b" + instance}, {Member: "a", Instance: "a" + instance}},
	}
}

// deciding is the decision of an epoch with a branch in each resource.
func deciding(name string, e Epoch, instance string, through uint64) Decide {
	vote := func(member, resource string) Vote {
		return Vote{
			Member: member, Instance: member + instance, ProvenThrough: through,
			Branches:  []Prepared{{Resource: resource, Handle: Handle{Kind: "mem", Version: 1, Name: e.String() + "." + member}}},
			Positions: []Position{{Resource: "in", Split: "0", Offset: int64(e.N)}},
			Parts:     []StatePart{{ID: e.String() + "." + member, Store: "s"}},
		}
	}
	return Decide{Scope: ScopeID{Pipeline: name}, Epoch: e, Votes: []Vote{vote("b", "dir"), vote("a", "out")}}
}

func proving(name string, e Epoch, member, resource string, v Verdict) Resolve {
	return Resolve{
		Txn: EpochTxn(ScopeID{Pipeline: name}, e), Branch: BranchID{Member: member, Resource: resource},
		Proof: Proof{Verdict: v, Evidence: "seen"},
	}
}
