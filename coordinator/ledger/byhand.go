package ledger

import (
	"fmt"
	"slices"

	"github.com/unisink/unisink/internal/mutant"
)

// admit refuses a hand-run id without a record, unless it may get one: its time must lie at the
// floor or above, where no record has ever been dropped, and not far in the future, where it would
// hold the floor's promise up (P10).
func (m *Machine) admit(s *step, id TxnID, now int64) (at int64, ok bool) {
	at, ok = id.Time()
	switch {
	case !ok:
		s.refuse(Invalid, "%q is no id of a transaction run by hand; one is a UUIDv7 in lower case", id)
	case at < m.floor && !m.unguarded.floorCheck, at < m.forgotten && !mutant.On("ledger/restored-presumes-nothing"):
		s.refuse(TooOld, "transaction %s is older than what the ledger remembers; whether it was committed shows in its resources only", id)
	case at > now+MaxAhead && !m.unguarded.aheadCheck:
		s.refuse(TooNew, "the id of transaction %s lies %d ms ahead of the coordinator: check the client's clock", id, at-now)
	default:
		return at, true
	}
	return 0, false
}

// Admits tells what a command about a hand-run id without a record would be refused for if it were
// applied at now, Unix milliseconds.
func (m *Machine) Admits(id TxnID, now int64) Result {
	var s step
	m.admit(&s, id, now)
	return s.Result
}

// checkHand wants distinct resource names and, with handles, handles that can be finished.
func checkHand(bs []HandBranch, handles bool) string {
	if len(bs) > MaxBranches {
		return fmt.Sprintf("%d branches, at most %d are allowed", len(bs), MaxBranches)
	}
	size := 0
	for i, b := range bs {
		if err := CheckName("resource", b.Resource, MaxResource); err != nil {
			return err.Error()
		}
		if slices.ContainsFunc(bs[:i], func(o HandBranch) bool { return o.Resource == b.Resource }) {
			return fmt.Sprintf("resource %q has two branches", b.Resource)
		}
		if handles {
			if err := checkHandle("resource "+b.Resource, b.Handle); err != nil {
				return err.Error()
			}
		}
		size += len(b.Resource) + handleSize(b.Handle) + 32
	}
	if size > MaxCommand {
		return fmt.Sprintf("%d bytes of handles, at most %d are allowed", size, MaxCommand)
	}
	return ""
}

// handBranches makes branches of what a command names, sorted; like are those that are kept already.
func handBranches(bs []HandBranch, like []Branch) []Branch {
	out := make([]Branch, len(bs))
	for i, b := range bs {
		out[i] = Branch{ID: BranchID{Resource: b.Resource}, Handle: b.Handle}
	}
	slices.SortFunc(out, func(x, y Branch) int { return x.ID.Compare(y.ID) })
	ownTexts(out, like)
	return out
}

// announce registers a transaction before its branches are prepared.
func (m *Machine) announce(s *step, c *Command, b Announce) {
	if len(b.Branches) == 0 {
		s.refuse(Invalid, "transaction %s announces no branch: name the resource of each branch that is to be prepared", b.Txn)
		return
	}
	if bad := checkHand(b.Branches, false); bad != "" {
		s.refuse(Invalid, "transaction %s is announced badly: %s", b.Txn, bad)
		return
	}
	branches := handBranches(b.Branches, nil)
	if t := m.txns[b.Txn]; t != nil {
		s.Outcome, s.Deadline = t.Outcome, t.Deadline
		if t.Outcome != Pending || !slices.EqualFunc(t.Branches, branches, sameBranch) {
			s.refuse(Contradicts, "transaction %s is known already, %s", b.Txn, t.Outcome)
		}
		return
	}
	at, ok := m.admit(s, b.Txn, c.At)
	if !ok {
		return
	}
	deadline := b.Deadline
	if deadline == 0 {
		deadline = c.At + AnnounceFor
	}
	if deadline <= c.At || deadline > c.At+MaxDeadline {
		s.refuse(Invalid, "transaction %s: the deadline must lie ahead, at most a week", b.Txn)
		return
	}
	m.addTxn(&txn{time: at, Txn: Txn{ID: b.Txn, Outcome: Pending, Branches: branches, BegunAt: c.At, Deadline: deadline}})
	s.Outcome, s.Deadline = Pending, deadline
}

// commit decides a transaction, announced or not. The order of the log alone decides between it and
// PresumeAbort: a deadline is the leader's reason to propose the second, not a clock in here.
func (m *Machine) commit(s *step, c *Command, b Commit) {
	if bad := checkHand(b.Branches, true); bad != "" {
		s.refuse(Invalid, "transaction %s: %s", b.Txn, bad)
		return
	}
	t := m.txns[b.Txn]
	var announced []Branch
	if t != nil {
		announced = t.Branches
	}
	branches := handBranches(b.Branches, announced)
	switch {
	case t == nil:
		at, ok := m.admit(s, b.Txn, c.At)
		if !ok {
			return
		}
		t = &txn{time: at, Txn: Txn{ID: b.Txn, Outcome: Committed, Branches: branches, BegunAt: c.At, DecidedAt: c.At}}
		m.addTxn(t)
	case t.Outcome == Committed:
		s.Outcome = Committed
		if !slices.EqualFunc(t.Branches, branches, sameBranch) {
			s.refuse(Contradicts, "transaction %s was committed with other branches", b.Txn)
		}
		return
	case t.Outcome == Aborted:
		s.refuse(Contradicts, "transaction %s was aborted: %s", b.Txn, t.Why)
		s.Outcome = Aborted
		return
	default:
		if b := unannounced(t, branches); b != "" {
			s.refuse(Invalid, "transaction %s did not announce resource %q", t.ID, b)
			s.Outcome = Pending
			return
		}
		t = m.changeTxn(t, func(t *txn) {
			t.Outcome, t.DecidedAt, t.Branches = Committed, c.At, branches
			t.handleSum = m.handleDigests(branches)
		})
	}
	s.Outcome = Committed
	m.decidedTxn(s, t)
}

func unannounced(t *txn, branches []Branch) string {
	for _, b := range branches {
		if !slices.ContainsFunc(t.Branches, func(o Branch) bool { return o.ID == b.ID }) {
			return b.ID.Resource
		}
	}
	return ""
}

// presumeAbort decides against a transaction. One that nobody knows gets a record that says so, or a
// commit that is still on its way would contradict the answer.
func (m *Machine) presumeAbort(s *step, c *Command, b PresumeAbort) {
	why := clip(b.Why)
	t := m.txns[b.Txn]
	switch {
	case t == nil:
		at, ok := m.admit(s, b.Txn, c.At)
		if !ok {
			return
		}
		t = &txn{time: at, Txn: Txn{ID: b.Txn, Outcome: Aborted, BegunAt: c.At, DecidedAt: c.At, Why: why}}
		m.addTxn(t)
	case t.Outcome == Committed:
		s.refuse(Contradicts, "transaction %s was committed", b.Txn)
		s.Outcome = Committed
		return
	case t.Outcome == Aborted:
		s.Outcome = Aborted
		return
	default:
		t = m.changeTxn(t, func(t *txn) { t.Outcome, t.DecidedAt, t.Why = Aborted, c.At, why })
	}
	s.Outcome = Aborted
	m.decidedTxn(s, t)
}

func (m *Machine) decidedTxn(s *step, t *txn) {
	s.effect(Effect{Kind: EffectTxn, Txn: t.ID, Outcome: t.Outcome, Text: t.Why})
	if allResolved(t.Branches) {
		s.effect(Effect{Kind: EffectResolved, Txn: t.ID, Outcome: t.Outcome})
	}
}

func (m *Machine) resolveByHand(s *step, c *Command, b Resolve) {
	t := m.txns[b.Txn]
	switch {
	case t == nil:
		s.refuse(NotFound, "there is no transaction %s", b.Txn)
		return
	case t.Outcome == Pending:
		s.refuse(Stale, "transaction %s is not decided", b.Txn)
		s.Outcome = Pending
		return
	case b.Proof.Verdict != ProvenCommitted && b.Proof.Verdict != ProvenRolledBack || b.ProvenThrough != 0:
		s.refuse(Invalid, "a proof shows one branch committed or rolled back")
		return
	}
	i := slices.IndexFunc(t.Branches, func(o Branch) bool { return o.ID == b.Branch })
	if i < 0 {
		s.refuse(NotFound, "transaction %s has no branch %s", b.Txn, b.Branch)
		return
	}
	if why := m.standing(&t.Branches[i], b.Proof); why != "" {
		s.refuse(Contradicts, "branch %s of transaction %s: %s", b.Branch, b.Txn, why)
		return
	}
	s.Outcome = t.Outcome
	if !m.firstProof(&t.Branches[i]) {
		return
	}
	forced := t.Branches[i].Forced != ""
	proof := b.Proof
	proof.Evidence = clip(proof.Evidence)
	t = m.editTxn(s, t, func(bs []Branch) { bs[i].Proof = proof })
	if t.Branches[i].heuristic(t.Outcome) && !forced {
		why := clip(fmt.Sprintf("branch %s was decided %s and is proven %s: %s", b.Branch, t.Outcome, proof.Verdict, proof.Evidence))
		t = m.changeTxn(t, func(t *txn) { t.Heuristic = why })
		s.effect(Effect{Kind: EffectHeuristic, Txn: t.ID, Text: t.Heuristic, Outcome: t.Outcome})
	}
}

// editTxn changes branches of a decided transaction.
func (m *Machine) editTxn(s *step, old *txn, change func([]Branch)) *txn {
	bs := slices.Clone(old.Branches)
	change(bs)
	t := m.changeTxn(old, func(t *txn) { t.Branches = bs })
	if old.unproven > 0 && t.unproven == 0 {
		s.effect(Effect{Kind: EffectResolved, Txn: t.ID, Outcome: t.Outcome})
	}
	return t
}

func (m *Machine) forceByHand(s *step, c *Command, b Force, note string) {
	t := m.txns[b.Txn]
	if t == nil {
		s.refuse(NotFound, "there is no transaction %s", b.Txn)
		return
	}
	if t.Outcome == Pending {
		s.refuse(Stale, "transaction %s is not decided: abort it first", b.Txn)
		return
	}
	i := slices.IndexFunc(t.Branches, func(o Branch) bool { return o.ID == b.Branch })
	if i < 0 {
		s.refuse(NotFound, "transaction %s has no branch %s", b.Txn, b.Branch)
		return
	}
	if forceable(s, &t.Branches[i], t.Outcome, note) {
		m.editTxn(s, t, func(bs []Branch) { bs[i].Forced = note })
	}
}
