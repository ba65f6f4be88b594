package server

import (
	"fmt"
	"testing"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// at is a node whose ledger is at an index.
type at struct {
	shown
	index uint64
}

func (a *at) NodeStatus() NodeStatus                            { return NodeStatus{ID: "n1", LastIndex: a.index} }
func (a *at) Leader() (id, address string)                      { return "n1", "" }
func (a *at) ViewAt(read func(m *ledger.Machine, index uint64)) { read(a.m, a.index) }

// A hash walks the whole state: it is made once for an index, and
// made anew for another one, for another machine, and where nobody knows the index.
func TestTheStateIsHashedOnceForAnIndex(t *testing.T) {
	node := &at{shown{m: doubtful(t, 0)}, 7}
	s := &cluster{s: &Server{c: Config{Node: node}}}
	hash := func() string {
		st, err := s.Status(t.Context(), &unisinkv1.StatusRequest{StateHash: true})
		if err != nil {
			t.Fatal(err)
		}
		if st.GetStateIndex() != node.index {
			t.Errorf("index %d, want %d", st.GetStateIndex(), node.index)
		}
		return st.GetStateHash()
	}
	change := func(name string) { // as no entry does: the index stays
		if r, _ := node.m.Apply(ledger.Command{At: 1000, Actor: "test", Body: ledger.PutPipeline{Pipeline: ledger.Pipeline{
			Name: name, Fingerprint: "f", Members: []ledger.MemberSpec{{Name: "a", Source: true, Resources: []ledger.ResourceSpec{{Name: "out", Kind: "memory"}}}},
		}}}); !r.OK() {
			t.Fatal(r.Text)
		}
	}
	first := hash()
	change("q")
	if hash() != first {
		t.Error("it was hashed again at the same index")
	}
	node.index = 8
	second := hash()
	if second == first {
		t.Error("it has the hash of another index")
	}
	node.m = doubtful(t, 0)
	if hash() != first {
		t.Error("it has the hash of another machine")
	}
	node.index = 0
	change("q")
	if hash() != second {
		t.Error("a hash was kept of an index that nobody knows")
	}
}

// applying is a node that applies an entry whenever it is asked for anything.
type applying struct{ at }

func (b *applying) NodeStatus() NodeStatus { b.index++; return b.at.NodeStatus() }
func (b *applying) ViewAt(read func(m *ledger.Machine, index uint64)) {
	b.index++
	b.at.ViewAt(read)
}

// The log that a status tells of holds what its state was made of, however fast entries come.
func TestAStatusTellsOfNoEntryBeyondItsLog(t *testing.T) {
	node := &applying{at{shown{m: doubtful(t, 0)}, 7}}
	s := &cluster{s: &Server{c: Config{Node: node}}}
	st, err := s.Status(t.Context(), &unisinkv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if st.GetStateIndex() == 0 || st.GetStateIndex() > st.GetLastIndex() {
		t.Errorf("the state holds entry %d of %d", st.GetStateIndex(), st.GetLastIndex())
	}
}

// A status that nobody asked for a hash costs no walk: with a million transactions that takes seconds, in which the node
// applies nothing, and a node that is asked again and again while it reads its log would never come to its end.
func TestAStatusTellsTheDigestAndHashesOnlyWhenAsked(t *testing.T) {
	node := &at{shown{m: doubtful(t, 0)}, 7}
	c := &cluster{s: &Server{c: Config{Node: node}}}
	st, err := c.Status(t.Context(), &unisinkv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%016x", node.m.Digest()); st.GetStateDigest() != want {
		t.Errorf("digest %s, want %s", st.GetStateDigest(), want)
	}
	if st.GetStateHash() != "" || c.hashed.hash != "" {
		t.Error("the state was hashed though nobody asked")
	}
}
