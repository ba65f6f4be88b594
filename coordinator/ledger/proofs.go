package ledger

import (
	"fmt"
	"slices"
)

// byMember is the evidence of a branch that its own member called proven.
const byMember = "proven through, by its member"

// resolve records proofs. They may come in any order; that branch n + 1 is committed only after n
// is resolved is the finishers' rule, who take their work in the order of Outstanding.
func (m *Machine) resolve(s *step, c *Command, b Resolve) {
	id, at, isEpoch := b.Txn.Epoch()
	if !isEpoch {
		m.resolveByHand(s, c, b)
		return
	}
	sc := m.scopes[id]
	if sc == nil {
		s.refuse(NotFound, "there is no scope %s", id)
		return
	}
	g, final := sc.newest(), sc.final(at.Generation)
	if g == nil || at.Generation > g.Generation || at.Generation == 0 {
		s.refuse(NotFound, "scope %s has no generation %d", id, at.Generation)
		return
	}
	s.Final = final
	if b.ProvenThrough != 0 {
		if b.ProvenThrough > final {
			s.refuse(Invalid, "member %q claims %d of generation %d as proven, the last decided is %d", b.Branch.Member, b.ProvenThrough, at.Generation, final)
			s.Final = final
			return
		}
		m.proveThrough(s, c, sc, at.Generation, b.Branch.Member, b.ProvenThrough)
		return
	}
	if at.N == 0 || at.N > final && at.Generation == g.Generation && g.Open {
		s.refuse(Stale, "epoch %s of scope %s is not decided", at, id)
		return
	}
	if b.Proof.Verdict != ProvenCommitted && b.Proof.Verdict != ProvenRolledBack {
		s.refuse(Invalid, "a proof shows a branch committed or rolled back")
		return
	}
	if at.N > final {
		m.resolveAborted(s, c, sc, at, b)
		return
	}
	m.resolveBranch(s, c, sc, at, b)
}

// resolveAborted takes a proof about an epoch that ended with its generation. Rolled back is as it
// should be and leaves no trace; committed is a broken promise, and the halt keeps its evidence.
func (m *Machine) resolveAborted(s *step, c *Command, sc *scope, at Epoch, b Resolve) {
	s.Outcome = Aborted
	if b.Proof.Verdict != ProvenCommitted {
		return
	}
	if m.pipelines[sc.id.Pipeline] == nil {
		s.refuse(NotFound, "the pipeline of scope %s was deleted", sc.id)
		return
	}
	m.brokenPromise(s, c, sc, at, b.Branch, Aborted, b.Proof)
}

func (m *Machine) resolveBranch(s *step, c *Command, sc *scope, at Epoch, b Resolve) {
	e := sc.find(at)
	if e == nil { // resolved and retired
		if b.Proof.Verdict != ProvenCommitted {
			s.refuse(Contradicts, "epoch %s of scope %s was proven long ago", at, sc.id)
		}
		return
	}
	i := slices.IndexFunc(e.Branches, func(o Branch) bool { return o.ID == b.Branch })
	if i < 0 {
		s.refuse(NotFound, "epoch %s of scope %s has no branch %s", at, sc.id, b.Branch)
		return
	}
	if why := m.standing(&e.Branches[i], b.Proof); why != "" {
		s.refuse(Contradicts, "branch %s of epoch %s: %s", b.Branch, at, why)
		return
	}
	if !m.firstProof(&e.Branches[i]) {
		return
	}
	forced := e.Branches[i].Forced != ""
	proof := b.Proof
	proof.Evidence = clip(proof.Evidence)
	m.editBranches(s, c, sc, e, func(bs []Branch) { bs[i].Proof = proof })
	if proof.Verdict == ProvenRolledBack && !forced {
		m.brokenPromise(s, c, sc, at, b.Branch, Committed, proof)
	}
}

// firstProof reports that no proof of the branch stands yet.
func (m *Machine) firstProof(b *Branch) bool {
	return b.Proof.Verdict == verdictUnset || m.unguarded.firstProof
}

// standing says why a proof cannot be taken: another verdict was proven first.
func (m *Machine) standing(b *Branch, p Proof) string {
	if b.Proof.Verdict == verdictUnset || b.Proof.Verdict == p.Verdict || m.unguarded.firstProof {
		return ""
	}
	return fmt.Sprintf("it was proven %s first (%s), that stands; now it is said to be %s (%s)",
		b.Proof.Verdict, b.Proof.Evidence, p.Verdict, p.Evidence)
}

// proveThrough takes a member's word for all its branches of a generation up to n.
func (m *Machine) proveThrough(s *step, c *Command, sc *scope, g Generation, member string, n uint64) {
	if n == 0 {
		return
	}
	for _, e := range slices.Clone(sc.open) {
		if e.Epoch.Generation != g || e.Epoch.N > n {
			continue
		}
		if !slices.ContainsFunc(e.Branches, func(b Branch) bool { return b.ID.Member == member && !b.resolved() }) {
			continue
		}
		m.editBranches(s, c, sc, e, func(bs []Branch) {
			for i := range bs {
				if bs[i].ID.Member == member && !bs[i].resolved() {
					bs[i].Proof = Proof{Verdict: ProvenCommitted, Evidence: byMember}
				}
			}
		})
	}
}

// editBranches changes a copy of the epoch's branches and brings what depends on them up to date.
func (m *Machine) editBranches(s *step, c *Command, sc *scope, e *epoch, change func([]Branch)) {
	was := allResolved(e.Branches)
	bs := slices.Clone(e.Branches)
	change(bs)
	e.Branches = bs
	now := allResolved(bs)
	must(now || !was, "epoch %s of scope %s became unresolved", e.Epoch, sc.id)
	if now && !was {
		e.ProvenAt = max(c.At, 1)
		sc.open = slices.DeleteFunc(slices.Clone(sc.open), func(o *epoch) bool { return o == e })
		m.resolvedEpoch(s, sc, e)
	}
	sc.blame(e)
	m.sealEpoch(sc, e)
}

func (m *Machine) resolvedEpoch(s *step, sc *scope, e *epoch) {
	s.effect(Effect{Kind: EffectResolved, Scope: sc.id, Epoch: e.Epoch, Txn: EpochTxn(sc.id, e.Epoch), Outcome: Committed})
}

// brokenPromise halts the scope and closes what is open of it, in the entry that shows the proof:
// from here on nothing may build on an epoch that is not there. What is decided is still finished.
func (m *Machine) brokenPromise(s *step, c *Command, sc *scope, at Epoch, b BranchID, decided Outcome, p Proof) {
	why := clip(fmt.Sprintf("branch %s of epoch %s was %s and is proven %s: %s", b, at, decided, p.Verdict, p.Evidence))
	s.effect(Effect{Kind: EffectHeuristic, Scope: sc.id, Epoch: at, Txn: EpochTxn(sc.id, at), Text: why, Outcome: decided})
	if m.unguarded.haltOnHeuristic {
		return
	}
	if g := sc.newest(); g.Open {
		m.close(s, c, sc, g, why)
	}
	m.halt(s, sc, why)
	m.sealScope(sc)
}

// swept pays a debt. A debt that is not there has been paid.
func (m *Machine) swept(s *step, b Swept) {
	sc := m.scopes[b.Scope]
	if sc == nil {
		s.refuse(NotFound, "there is no scope %s", b.Scope)
		return
	}
	newest := sc.newest()
	if newest == nil || b.Generation == 0 || b.Generation > newest.Generation {
		s.refuse(NotFound, "scope %s has no generation %d", b.Scope, b.Generation)
		return
	}
	if b.Generation == newest.Generation && newest.Open {
		s.refuse(Busy, "generation %d of scope %s is open: what it prepares is not dead", b.Generation, b.Scope)
		return
	}
	m.pay(sc, b.Generation, b.Branch, "")
}

// pay takes a debt off its generation, with a note if there is one; false if it is not there.
func (m *Machine) pay(sc *scope, gen Generation, b BranchID, note string) bool {
	g := sc.generation(gen)
	if g == nil || !slices.Contains(g.Debts, b) {
		return false
	}
	m.editGeneration(sc, g, func() {
		g.Debts = slices.DeleteFunc(slices.Clone(g.Debts), func(o BranchID) bool { return o == b })
		if note != "" {
			g.Cause = clip(g.Cause + "; " + note)
		}
	})
	return true
}

// force records an operator's act: a branch counts as resolved from then on, with the act as its
// evidence, and a proof that still comes is kept beside it.
func (m *Machine) force(s *step, c *Command, b Force) {
	if b.Action != AcceptLoss && b.Action != WriteOff {
		s.refuse(Invalid, "an operator accepts a loss or writes a resource off")
		return
	}
	if b.Why == "" {
		s.refuse(Invalid, "an operator's act needs a reason")
		return
	}
	note := clip(fmt.Sprintf("%s by %s: %s", b.Action, c.Actor, b.Why))
	if b.Txn == "" {
		m.writeOff(s, b, note)
		return
	}
	if id, at, isEpoch := b.Txn.Epoch(); isEpoch {
		m.forceEpoch(s, c, id, at, b, note)
		return
	}
	m.forceByHand(s, c, b, note)
}

func (m *Machine) writeOff(s *step, b Force, note string) {
	sc := m.scopes[b.Scope]
	if b.Action != WriteOff {
		s.refuse(Invalid, "a debt can be written off, nothing else")
		return
	}
	if sc == nil || !m.pay(sc, b.Generation, b.Branch, "debt of "+b.Branch.String()+" "+note) {
		s.refuse(NotFound, "generation %d of scope %s owes no sweep of %s", b.Generation, b.Scope, b.Branch)
	}
}

func (m *Machine) forceEpoch(s *step, c *Command, id ScopeID, at Epoch, b Force, note string) {
	var e *epoch
	sc := m.scopes[id]
	if sc != nil {
		e = sc.find(at)
	}
	if e == nil {
		s.refuse(NotFound, "epoch %s of scope %s is not decided, or was retired", at, id)
		return
	}
	i := slices.IndexFunc(e.Branches, func(o Branch) bool { return o.ID == b.Branch })
	if i < 0 {
		s.refuse(NotFound, "epoch %s of scope %s has no branch %s", at, id, b.Branch)
		return
	}
	if !forceable(s, &e.Branches[i], Committed, note) {
		return
	}
	m.editBranches(s, c, sc, e, func(bs []Branch) { bs[i].Forced = note })
}

// forceable refuses an act on a branch that went as decided, and a second act. The first stands; its
// repeat is answered.
func forceable(s *step, b *Branch, decided Outcome, note string) bool {
	switch {
	case b.Forced == note:
		return false
	case b.Forced != "":
		s.refuse(Contradicts, "branch %s was forced before: %s", b.ID, b.Forced)
		return false
	case b.Proof.Verdict != verdictUnset && !b.heuristic(decided):
		s.refuse(Contradicts, "branch %s is proven %s, as decided", b.ID, b.Proof.Verdict)
		return false
	}
	return true
}
