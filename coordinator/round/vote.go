package round

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/unisink/unisink/coordinator/ledger"
)

// ballot is one member's vote for one epoch.
type ballot struct {
	given   bool // a vote has arrived; from here on it stands
	counted bool // its time left, if it has one, is measured against this leader's clock
	kind    VoteKind
	vote    ledger.Vote

	limited  bool // a resource will drop its branch at deadline
	deadline Time
	resource string // that resource
	measured Time   // the stamp that deadline was counted from
}

// receive takes in one answer of a member.
func (m *Machine) receive(i int, v Vote, now Time) {
	who := &m.members[i]
	switch v.Kind {
	case Yes, ReadOnly:
		who.proven = max(who.proven, v.Ledger.ProvenThrough)
		m.count(i, v, now)
	case No:
		if e := m.epoch(v.N); e != nil && e.ballots[i].given {
			m.close("", "member %s takes back its vote for epoch %s and says no: %s", who.Name, m.name(v.N), v.Reason)
			return
		}
		m.close(haltReason(v), "member %s votes no for epoch %s: %s", who.Name, m.name(v.N), v.Reason)
	case Lost:
		m.close(haltReason(v), "member %s has lost undecided work of epoch %s: %s", who.Name, m.name(v.N), v.Reason)
	case voteKindUnset:
		m.close("", "member %s sent a vote without a kind for epoch %s", who.Name, m.name(v.N))
	}
}

func haltReason(v Vote) string {
	switch {
	case !v.Halt:
		return ""
	case v.Reason == "":
		return "a member asked for an operator and gave no reason"
	}
	return v.Reason
}

// count takes in a yes or read-only vote.
func (m *Machine) count(i int, v Vote, now Time) {
	who := &m.members[i]
	if v.N <= m.decided {
		if who.attached {
			m.tellCommitted(who.Name) // it votes, so it has not heard
		}
		return
	}
	if m.closing.cause != "" {
		return
	}
	if m.c.Solo && v.N > max(m.newest, m.decided+uint64(m.c.MaxPending)) {
		return // too far ahead; it repeats the vote
	}
	if !m.sighted(who, v.N, v.Final, now) {
		return
	}
	e := m.epoch(v.N)
	b := &e.ballots[i]
	v.Ledger.Member, v.Ledger.Instance = who.Name, who.Instance
	if b.given && !m.off.promise && (b.kind != v.Kind || !sameVote(b.vote, v.Ledger)) {
		m.close("", "member %s votes for epoch %s a second time, differently; a vote that has left a process stands", who.Name, m.name(v.N))
		return
	}
	b.given, b.kind, b.vote = true, v.Kind, v.Ledger
	if !m.measure(b, v, now) {
		m.askAgain(who.Name)
		return
	}
	if !b.counted {
		b.counted = true
		e.missing--
	}
}

// measure takes in how long the vote's branches will be kept. False: that is not known on this
// leader's clock, and the vote must not count yet.
func (m *Machine) measure(b *ballot, v Vote, now Time) bool {
	if len(v.TimeLeft) == 0 {
		return true
	}
	from := v.Stamp.Clock
	if m.off.stamp {
		from = now
	} else if v.Stamp.Term != m.c.Term || from > now {
		return b.counted // an earlier sending was measured
	}
	if b.limited && from < b.measured {
		return true // overtaken by a later measurement
	}
	least := slices.MinFunc(v.TimeLeft, func(a, b TimeLeft) int { return cmp.Compare(a.Left, b.Left) })
	at := from.Add(least.Left)
	if b.limited && from == b.measured && at >= b.deadline {
		return true
	}
	b.limited, b.deadline, b.resource, b.measured = true, at, least.Resource, from
	return true
}

// askAgain orders a vote to be measured again, once per event.
func (m *Machine) askAgain(name string) {
	if !slices.Contains(m.out, Order(VoteAgain{Member: name})) {
		m.emit(VoteAgain{Member: name})
	}
}

// sameVote reports whether two sendings promise the same. What is proven by now may have grown.
func sameVote(a, b ledger.Vote) bool {
	return slices.EqualFunc(a.Branches, b.Branches, func(a, b ledger.Prepared) bool {
		return a.Resource == b.Resource && sameHandle(a.Handle, b.Handle)
	}) && slices.EqualFunc(a.Positions, b.Positions, samePosition) &&
		slices.EqualFunc(a.Parts, b.Parts, samePart)
}

func sameHandle(a, b ledger.Handle) bool {
	return a.Kind == b.Kind && a.Version == b.Version && a.Identity == b.Identity && a.Alias == b.Alias &&
		a.Name == b.Name && a.Text == b.Text && bytes.Equal(a.Body, b.Body)
}

func samePosition(a, b ledger.Position) bool {
	return a.Resource == b.Resource && a.Split == b.Split && a.Offset == b.Offset &&
		a.LeaderEpoch == b.LeaderEpoch && bytes.Equal(a.Opaque, b.Opaque)
}

func samePart(a, b ledger.StatePart) bool {
	return a.ID == b.ID && a.Operator == b.Operator && a.KeyGroupFirst == b.KeyGroupFirst &&
		a.KeyGroupLast == b.KeyGroupLast && a.Store == b.Store && bytes.Equal(a.Body, b.Body)
}
