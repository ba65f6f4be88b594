package ledger

import (
	"slices"
)

// idle finds a scope of a pipeline whose newest generation is closed; it refuses otherwise.
func (m *Machine) idle(s *step, id ScopeID) *scope {
	sc := m.scopes[id]
	if sc == nil || m.pipelines[id.Pipeline] == nil {
		s.refuse(NotFound, "there is no scope %s", id)
		return nil
	}
	if g := sc.newest(); g != nil && g.Open {
		s.refuse(Busy, "generation %d of scope %s is open: close it first", g.Generation, id)
		return nil
	}
	return sc
}

// rewind sets where the next generation starts. What was decided after that point stays decided and
// is finished; a newer generation never takes an older one's numbers (I5).
func (m *Machine) rewind(s *step, c *Command, b Rewind) {
	sc := m.scopes[b.Scope]
	if sc != nil && repeated(c, sc.lastRequest) {
		return
	}
	if sc = m.idle(s, b.Scope); sc == nil {
		return
	}
	if b.Why == "" {
		s.refuse(Invalid, "an operator's act needs a reason")
		return
	}
	m.startFrom(s, c, sc, b.To)
}

// startFrom sets the restore point to a kept one.
func (m *Machine) startFrom(s *step, c *Command, sc *scope, to Epoch) {
	if sc.restorePoint(to) == nil {
		s.refuse(NotFound, "scope %s keeps no restore point %s", sc.id, to)
		return
	}
	m.unfinal(sc, to)
	sc.putAside(to)
	sc.restore, sc.barren, sc.openAfter = to, 0, 0
	sc.lastRequest = c.Request
	m.sealScope(sc)
}

// putAside notes that the next generation goes on from a point, and which epochs were decided by then: they stay in
// the sinks, and nothing else tells them from those that count. Several rewinds with no decision between are one.
func (s *scope) putAside(to Epoch) {
	if len(s.epoch) == 0 {
		return
	}
	r := Rewound{To: to, Newest: s.epoch[len(s.epoch)-1].Epoch}
	keep := s.rewinds
	if n := len(keep); n > 0 && keep[n-1].Newest == r.Newest {
		keep = keep[:n-1]
	}
	if to != r.Newest {
		keep = append(slices.Clone(keep), r)
	}
	s.rewinds = keep[max(0, len(keep)-MaxRewinds):]
}

// resume ends a halt.
func (m *Machine) resume(s *step, c *Command, b Resume) {
	sc := m.scopes[b.Scope]
	if sc != nil && repeated(c, sc.lastRequest) {
		return
	}
	if sc = m.idle(s, b.Scope); sc == nil {
		return
	}
	switch {
	case sc.halted == "":
		s.refuse(Stale, "scope %s is not halted", b.Scope)
		return
	case b.Why == "":
		s.refuse(Invalid, "an operator's act needs a reason")
		return
	case !b.From.IsZero():
		if m.startFrom(s, c, sc, b.From); !s.OK() {
			return
		}
	}
	sc.halted, sc.barren, sc.openAfter = "", 0, 0
	if g := sc.newest(); g != nil {
		sc.resumed = g.Generation
	}
	sc.lastRequest = c.Request
	m.sealScope(sc)
}

// pin keeps a restore point, or gives it up.
func (m *Machine) pin(s *step, c *Command, b Pin) {
	sc := m.scopes[b.Scope]
	switch {
	case sc == nil || m.pipelines[b.Scope.Pipeline] == nil:
		s.refuse(NotFound, "there is no scope %s", b.Scope)
		return
	case b.Unpin:
		sc.pinned = slices.DeleteFunc(slices.Clone(sc.pinned), func(e Epoch) bool { return e == b.Epoch })
	case sc.isPinned(b.Epoch):
		return
	case sc.restorePoint(b.Epoch) == nil:
		s.refuse(NotFound, "scope %s keeps no restore point %s", b.Scope, b.Epoch)
		return
	case len(sc.pinned) >= MaxPinned:
		s.refuse(Invalid, "scope %s has %d pinned restore points, that is the most: unpin one", b.Scope, MaxPinned)
		return
	default:
		sc.pinned = append(slices.Clone(sc.pinned), b.Epoch)
		slices.SortFunc(sc.pinned, Epoch.Compare)
	}
	m.sealScope(sc)
}

// retire drops what nobody needs. A restore point is one until a Retire says otherwise, so that a
// part is never unnamed by a decision in passing (P9).
func (m *Machine) retire(s *step, c *Command, b Retire) {
	if b.KeepFor < 0 {
		s.refuse(Invalid, "history cannot be kept for %d ms", b.KeepFor)
		return
	}
	before := c.At - b.KeepFor
	for _, sc := range m.sorted {
		if p := m.pipelines[sc.id.Pipeline]; p != nil && len(sc.epoch) > 0 {
			s.Retired = append(s.Retired, m.retireEpochs(sc, int(p.Settings.RestorePoints), before, b.KeepEpochs)...)
		}
		newest := sc.newest()
		m.trimGenerations(sc, func(g *GenerationRecord) bool { return g != newest && g.ClosedAt <= before })
	}
	m.retireTxns(before)
}

// retireEpochs strips the scope's old restore points of their votes, drops what is resolved and
// old, and returns the parts that nothing names any longer.
func (m *Machine) retireEpochs(sc *scope, keep int, before int64, most uint32) []Retired {
	var parts []Retired
	cut := sc.cut()
	kept := make([]*epoch, 0, len(sc.epoch))
	for i, e := range sc.epoch {
		if i >= len(sc.epoch)-keep || e.Epoch == sc.restore || sc.isPinned(e.Epoch) {
			kept = append(kept, e)
			continue
		}
		if len(e.Votes) > 0 {
			parts = append(parts, m.dropVotes(sc, e)...)
		}
		recent := e.ProvenAt > before && (most == 0 || i >= len(sc.epoch)-int(most))
		if e == cut || !m.droppable(e) || recent {
			kept = append(kept, e)
			continue
		}
		must(allResolved(e.Branches) || m.unguarded.retireUnresolved, "epoch %s of scope %s is retired unresolved", e.Epoch, sc.id)
		m.digest -= e.sum
	}
	if m.unguarded.retireUnresolved {
		sc.open = slices.DeleteFunc(slices.Clone(sc.open), func(e *epoch) bool { return !slices.Contains(kept, e) })
	}
	sc.epoch = kept
	return parts
}

// droppable reports an epoch of which nothing is left to be done or to be shown. A branch that an
// operator forced and nobody has proven is shown until it is.
func (m *Machine) droppable(e *epoch) bool {
	if m.unguarded.retireUnresolved {
		return true
	}
	for i := range e.Branches {
		if b := &e.Branches[i]; b.Proof.Verdict == verdictUnset || b.heuristic(Committed) {
			return false
		}
	}
	return true
}

// dropVotes makes the epoch no restore point any longer, and returns the parts that nothing names now.
func (m *Machine) dropVotes(sc *scope, e *epoch) []Retired {
	parts := m.refParts(e.Votes, -1)
	if m.unguarded.namedParts {
		parts = nil
		for _, v := range e.Votes {
			for _, p := range v.Parts {
				parts = append(parts, Retired{Member: v.Member, Part: p.ID})
			}
		}
	}
	for i := range parts {
		parts[i].Scope = sc.id
	}
	e.Votes = nil
	e.votesSum = m.votesDigest(nil)
	m.sealEpoch(sc, e)
	return parts
}

// trimGenerations makes old closed generations that owe nothing small: their number and final stay,
// and those that decided nothing go altogether, because final 0 is what is said of any other
// generation before the newest.
func (m *Machine) trimGenerations(sc *scope, old func(*GenerationRecord) bool) {
	if len(sc.gens) == 0 {
		return
	}
	newest := sc.newest()
	kept := make([]*GenerationRecord, 0, len(sc.gens))
	for _, g := range sc.gens {
		if g.Open || len(g.Debts) > 0 || !old(g) {
			kept = append(kept, g)
			continue
		}
		if g.Final == 0 && g != newest {
			m.digest -= m.genSum(sc, g)
			continue
		}
		if len(g.Members) > 0 {
			m.editGeneration(sc, g, func() { *g = GenerationRecord{Generation: g.Generation, Final: g.Final, ClosedAt: g.ClosedAt} })
		}
		kept = append(kept, g)
	}
	sc.gens = kept
}

// retireTxns lifts the floor and drops the hand-run transactions below it. A record goes only when
// the floor has passed its id's time: whoever asks for it afterwards is too old, and gets no verdict
// that could differ from the one that was given (P10).
func (m *Machine) retireTxns(before int64) {
	floor := before
	if t := m.hand.inDoubt.first(); t != nil {
		floor = min(floor, t.time) // ids begin with their time
	}
	if floor > m.floor {
		m.floor = floor
		m.sealHead()
	}
	m.hand.byID.thin(func(t *txn) bool { return t.time >= m.floor }, func(t *txn) bool {
		must(!t.inDoubt(), "transaction %s lies below the floor and is in doubt", t.ID)
		if slices.ContainsFunc(t.Branches, func(b Branch) bool { return b.Proof.Verdict == verdictUnset || b.heuristic(t.Outcome) }) {
			return false
		}
		m.digest -= t.sum
		delete(m.txns, t.ID)
		return true
	})
}
