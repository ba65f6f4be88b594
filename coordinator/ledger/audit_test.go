package ledger

import (
	"fmt"
	"strings"
	"testing"
)

// raised is a machine of one node at the level, with pipeline p.
func raised(t *testing.T, level uint32) *Machine {
	t.Helper()
	m := New()
	apply(t, m, 1000, Init{Namespace: "test", Incarnation: 1}, PutNode{Node: Node{ID: "n1", ClientAddress: "c", FeatureLevel: CurrentFeatureLevel}},
		RaiseFeatureLevel{Level: level}, PutPipeline{Pipeline: Pipeline{Name: "p", Fingerprint: "f", Members: []MemberSpec{{Name: "a"}}}})
	return m
}

func actsOf(m *Machine) string {
	var b strings.Builder
	for _, a := range m.Acts() {
		fmt.Fprintf(&b, "%d %d %s: %s, %q, %s, %q\n", a.N, a.At, a.Actor, a.Kind, a.Pipeline, a.What, a.Why)
	}
	return b.String()
}

func TestTheTrailSaysWhoDidWhatAndWhy(t *testing.T) {
	m := raised(t, 2)
	p := ScopeID{Pipeline: "p"}
	for i, b := range []Body{
		SetDesired{Pipeline: "p", From: Running, To: Stopped},
		OpenGeneration{Scope: p}, // refused, which is no act
		CloseGeneration{Scope: p, Cause: "x", Halt: "emptied"},
		Resume{Scope: p, Why: "compared"},
		Note{Kind: "backup", What: "all", Why: "friday"},
		Note{Kind: "backup"}, // refused
		PutNode{Node: Node{ID: "n1"}},
		Retire{KeepFor: 1},
	} {
		m.Apply(Command{Actor: "olga", At: 2000 + int64(i), Request: fmt.Sprint(i), Body: b})
		check(t, m)
	}
	want := `1 1000 test: raise feature level, "", to 2, ""
2 1000 test: put pipeline, "p", revision 1, ""
3 2000 olga: set desired state, "p", from running to stopped, ""
4 2003 olga: resume, "p", p/0, "compared"
5 2004 olga: backup, "", all, "friday"
6 2006 olga: remove node, "", n1, ""
`
	if got := actsOf(m); got != want {
		t.Errorf("the trail:\n%swant:\n%s", got, want)
	}
	loaded, err := Load(m.State())
	if err != nil || actsOf(loaded) != want || loaded.Digest() != m.Digest() || loaded.Hash() != m.Hash() {
		t.Errorf("loaded: %v\n%s", err, actsOf(loaded))
	}
}

func TestARepeatIsNoAct(t *testing.T) {
	m := raised(t, 2)
	stop := Command{Actor: "olga", At: 2000, Request: "r", Body: SetDesired{Pipeline: "p", From: Running, To: Stopped}}
	m.Apply(stop)
	before := actsOf(m)
	if r, _ := m.Apply(stop); !r.OK() || actsOf(m) != before {
		t.Errorf("the repeat: %v, and the trail is\n%s", r, actsOf(m))
	}
}

func TestTheTrailKeepsTheNewestActs(t *testing.T) {
	m := raised(t, 2)
	early := m.State()
	for i := range MaxActs + 10 {
		m.Apply(Command{Actor: "olga", At: int64(2000 + i), Body: Note{Kind: "backup", What: "all"}})
	}
	acts := m.Acts()
	if len(acts) != MaxActs || acts[0].N != 13 || acts[MaxActs-1].N != MaxActs+12 {
		t.Fatalf("%d acts are kept, %d to %d", len(acts), acts[0].N, acts[len(acts)-1].N)
	}
	check(t, m)
	if len(early.Acts) != 2 || early.Acts[1].Kind != "put pipeline" {
		t.Errorf("a state that was handed out has changed: %v", early.Acts)
	}
	loaded, err := Load(m.State())
	if err != nil || loaded.Digest() != m.Digest() {
		t.Errorf("loaded: %v", err)
	}
}

// P26: what is kept depends on the level in the state, not on the binary.
func TestP26_BelowItsLevelThereIsNoTrail(t *testing.T) {
	m := raised(t, 1)
	if r, _ := m.Apply(Command{At: 2000, Body: Note{Kind: "backup", What: "all"}}); r.Refusal != Unsupported {
		t.Errorf("a note at level 1: %v", r)
	}
	if len(m.Acts()) != 0 || m.State().Acts != nil {
		t.Errorf("acts at level 1:\n%s", actsOf(m))
	}
	bad := m.State()
	bad.Acts = []Act{{N: 1, Kind: "x"}}
	if _, err := Load(bad); err == nil || !strings.Contains(err.Error(), "feature level 1") {
		t.Errorf("a state with acts at level 1: %v", err)
	}
	apply(t, m, 3000, RaiseFeatureLevel{Level: 2})
	if got := actsOf(m); got != "1 3000 test: raise feature level, \"\", to 2, \"\"\n" {
		t.Errorf("the raise:\n%s", got)
	}
}
