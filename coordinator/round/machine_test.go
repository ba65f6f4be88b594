package round

import (
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

func two() Config {
	return Config{
		Scope: ledger.ScopeID{Pipeline: "orders"}, Generation: 7,
		Members:  []Member{{Name: "src", Instance: "1", Source: true}, {Name: "sink", Instance: "1"}},
		Interval: time.Second, PrepareTimeout: time.Minute, CommitBudget: time.Second, MaxPending: 2,
	}
}

// The views follow the events.
func TestViews(t *testing.T) {
	m := New(two(), 5)
	if m.LastDecidedAt() != 5 {
		t.Errorf("nothing decided yet: %d, want the machine's beginning", m.LastDecidedAt())
	}
	if m.Ended() {
		t.Error("the source has not reached its end")
	}
	m.Work("src", false, true, 6)
	if !m.Ended() {
		t.Error("the only source has reached its end")
	}
	m.Decided(1, false, 7)
	if n, last := m.Final(); n != 1 || last || m.LastDecidedAt() != 7 || m.Pending() != 1 {
		t.Errorf("after the decision: %d %v at %d, pending %d", n, last, m.LastDecidedAt(), m.Pending())
	}
	sinks := two()
	sinks.Members = sinks.Members[1:]
	if New(sinks, 0).Ended() {
		t.Error("without sources nothing has ended")
	}
}

// What is proven as of the log counts before the members have attached.
func TestP18_ProvenAsOfTheLog(t *testing.T) {
	c := two()
	c.Final = 9
	for i := range c.Members {
		c.Members[i].ProvenThrough = 8
	}
	if m := New(c, 0); m.Pending() != 1 {
		t.Errorf("pending %d, want 1", m.Pending())
	}
}

// Members that the generation does not have are nobody's business here.
func TestUnknownMembersAreIgnored(t *testing.T) {
	m := New(two(), 0)
	m.Finish(false, 0)
	for name, orders := range map[string][]Order{
		"attached": m.Attached("other", Standing{NewestBarrier: 3}, 1),
		"detached": m.Detached("other", 1),
		"work":     m.Work("other", true, true, 1),
		"vote":     m.Vote("other", "1", Vote{N: 1, Kind: No}, 1),
		"proven":   m.Proven("other", 3, 1),
	} {
		if len(orders) != 0 {
			t.Errorf("%s: %s", name, text(orders))
		}
	}
}

// The slices that a vote brings stand in the decision, and the command names who voted.
func TestDecisionCarriesTheVotes(t *testing.T) {
	m := New(two(), 0)
	m.Attached("src", Standing{}, 0)
	m.Attached("sink", Standing{}, 0)
	m.Finish(false, 0)
	part := ledger.StatePart{ID: "p1", Operator: "win", KeyGroupLast: 127, Body: []byte("state")}
	v := Vote{N: 1, Kind: ReadOnly, Final: true, Ledger: ledger.Vote{Parts: []ledger.StatePart{part}}}
	m.Vote("src", "1", v, 1)
	m.Vote("src", "1", v, 1) // a repeat
	orders := m.Vote("sink", "1", Vote{N: 1, Kind: ReadOnly, Final: true}, 1)
	d, ok := orders[0].(ProposeDecide)
	if !ok || !d.Decide.Final || len(d.Decide.Votes) != 2 {
		t.Fatalf("no decision: %s", text(orders))
	}
	if got := d.Decide.Votes[0]; got.Member != "src" || got.Instance != "1" || !samePart(got.Parts[0], part) {
		t.Errorf("the first vote is %+v", got)
	}
}

func TestVoteKindNames(t *testing.T) {
	for kind, want := range map[VoteKind]string{voteKindUnset: "unset", Yes: "yes", ReadOnly: "readonly", No: "no", Lost: "lost"} {
		if kind.String() != want {
			t.Errorf("%d is called %q, want %q", kind, kind, want)
		}
	}
}
