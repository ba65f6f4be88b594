package ledger

import (
	"cmp"
	"maps"
	"slices"
)

// scope is a scope in memory: what Scope shows, and what makes the frequent commands cheap.
type scope struct {
	id    ScopeID
	gens  []*GenerationRecord // ascending
	epoch []*epoch            // ascending
	// open are the epochs with a branch that is not resolved, ascending.
	open []*epoch
	// bad are the epochs with a heuristic branch that no operator has acknowledged, ascending.
	bad []*epoch
	// debts counts what the closed generations owe.
	debts       int
	restore     Epoch
	pinned      []Epoch // ascending
	halted      string
	barren      uint32
	openAfter   int64
	lastRequest string
	identities  []ResourceIdentity // by id; replaced, never changed in place
	acts
	sum uint64 // digest of the head
}

// acts of operators that a scope remembers.
type acts struct {
	resumed Generation
	rewinds []Rewound // replaced, never changed in place
}

// epoch is a decided epoch in memory. Its votes are nil once it is no restore point any longer.
type epoch struct {
	EpochRecord
	votesSum  uint64
	handleSum []uint64 // beside Branches
	sum       uint64
}

// txn is a hand-run transaction in memory.
type txn struct {
	Txn
	time      int64
	handleSum []uint64
	sum       uint64
}

func (s *scope) newest() *GenerationRecord {
	if len(s.gens) == 0 {
		return nil
	}
	return s.gens[len(s.gens)-1]
}

// generation finds the record of g; nil when it decided nothing and was dropped, or never was.
func (s *scope) generation(g Generation) *GenerationRecord {
	i, found := slices.BinarySearchFunc(s.gens, g, func(r *GenerationRecord, g Generation) int {
		return cmp.Compare(r.Generation, g)
	})
	if !found {
		return nil
	}
	return s.gens[i]
}

// find returns the record of a decided epoch; nil when it is not kept.
func (s *scope) find(e Epoch) *epoch {
	i, found := slices.BinarySearchFunc(s.epoch, e, func(r *epoch, e Epoch) int { return r.Epoch.Compare(e) })
	if !found {
		return nil
	}
	return s.epoch[i]
}

// restorePoint finds a kept restore point.
func (s *scope) restorePoint(e Epoch) *epoch {
	r := s.find(e)
	if r == nil || !r.Kept() {
		return nil
	}
	return r
}

func (s *scope) isPinned(e Epoch) bool { return slices.Contains(s.pinned, e) }

func (b *Branch) resolved() bool { return b.Proof.Verdict != verdictUnset || b.Forced != "" }

func allResolved(bs []Branch) bool {
	for i := range bs {
		if !bs[i].resolved() {
			return false
		}
	}
	return true
}

// heuristic reports a branch that a resource decided against the outcome and no operator has
// acknowledged.
func (b *Branch) heuristic(decided Outcome) bool {
	if b.Forced != "" {
		return false
	}
	return decided == Committed && b.Proof.Verdict == ProvenRolledBack ||
		decided == Aborted && b.Proof.Verdict == ProvenCommitted
}

// blame keeps the list of epochs with an unacknowledged heuristic branch.
func (s *scope) blame(e *epoch) {
	is := slices.ContainsFunc(e.Branches, func(b Branch) bool { return b.heuristic(Committed) })
	i, was := slices.BinarySearchFunc(s.bad, e.Epoch, func(o *epoch, at Epoch) int { return o.Epoch.Compare(at) })
	switch {
	case is && !was:
		s.bad = slices.Insert(s.bad, i, e)
	case was && !is:
		s.bad = slices.Delete(s.bad, i, i+1)
	}
}

// cut is the newest epoch before which, itself included, everything is proven as decided or
// acknowledged; nil if there is none. Retire keeps it, and everything after it that is not.
func (s *scope) cut() *epoch {
	end := len(s.epoch)
	for _, first := range [][]*epoch{s.open, s.bad} {
		if len(first) > 0 {
			i, _ := slices.BinarySearchFunc(s.epoch, first[0].Epoch, func(r *epoch, e Epoch) int { return r.Epoch.Compare(e) })
			end = min(end, i)
		}
	}
	if end == 0 {
		return nil
	}
	return s.epoch[end-1]
}

// inDoubt reports a hand-run transaction that is undecided, or has a branch that is not resolved.
func (t *txn) inDoubt() bool { return t.Outcome == Pending || !allResolved(t.Branches) }

func (s *scope) view() Scope {
	v := Scope{
		ID: s.id, RestorePoint: s.restore, Pinned: s.pinned, Halted: s.halted,
		Barren: s.barren, OpenAfter: s.openAfter, LastRequest: s.lastRequest,
		Identities: s.identities, Resumed: s.resumed, Rewinds: s.rewinds,
	}
	if len(s.gens) > 0 {
		v.Generations = make([]GenerationRecord, len(s.gens))
		for i, g := range s.gens {
			v.Generations[i] = *g
		}
	}
	if len(s.epoch) > 0 {
		v.Epochs = make([]EpochRecord, len(s.epoch))
		for i, e := range s.epoch {
			v.Epochs[i] = e.EpochRecord
		}
	}
	return v
}

func (m *Machine) scopeIDs() []ScopeID {
	return slices.SortedFunc(maps.Keys(m.scopes), ScopeID.Compare)
}

func (m *Machine) txnIDs() []TxnID { return slices.Sorted(maps.Keys(m.txns)) }

// State is the whole ledger as a plain value in a fixed order. It stays as it is while the
// machine moves on: only slices that the machine never changes in place are shared.
func (m *Machine) State() State {
	s := State{
		Namespace: m.namespace, Incarnation: m.incarnation, FeatureLevel: m.level,
		LastGeneration: m.lastGeneration, Floor: m.floor, Forgotten: m.forgotten,
		Nodes: m.Nodes(), Pipelines: m.Pipelines(),
	}
	for _, id := range m.scopeIDs() {
		s.Scopes = append(s.Scopes, m.scopes[id].view())
	}
	for _, id := range m.txnIDs() {
		s.Txns = append(s.Txns, m.txns[id].Txn)
	}
	if len(m.acts) > 0 {
		s.Acts = m.Acts()
	}
	return s
}

// Load makes a machine from a state, after checking every invariant; the error names the first
// that does not hold. It takes over the slices.
func Load(s State) (*Machine, error) {
	m := New()
	if err := m.fill(s); err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	return m, nil
}

// fill builds the machine's maps, counts and digests; what it cannot build is an error.
func (m *Machine) fill(s State) error {
	if s.FeatureLevel > CurrentFeatureLevel {
		return broken("the state is at feature level %d, this binary follows up to %d; run a newer one",
			s.FeatureLevel, CurrentFeatureLevel)
	}
	m.namespace, m.incarnation, m.level = s.Namespace, s.Incarnation, s.FeatureLevel
	m.lastGeneration, m.floor, m.forgotten = s.LastGeneration, s.Floor, s.Forgotten
	m.seal(&m.headSum, m.headDigest())
	for _, n := range s.Nodes {
		if _, found := m.nodes[n.ID]; found {
			return broken("node %q is there twice", n.ID)
		}
		m.setNode(n)
	}
	for _, p := range s.Pipelines {
		if _, found := m.pipelines[p.Name]; found {
			return broken("pipeline %q is there twice", p.Name)
		}
		m.setPipeline(p)
	}
	for i := range s.Scopes {
		if err := m.fillScope(&s.Scopes[i]); err != nil {
			return err
		}
	}
	for i := range s.Txns {
		if err := m.fillTxn(s.Txns[i]); err != nil {
			return err
		}
	}
	m.fillActs(s.Acts)
	return nil
}

func (m *Machine) fillScope(v *Scope) error {
	if _, found := m.scopes[v.ID]; found {
		return broken("scope %s is there twice", v.ID)
	}
	s := &scope{
		id: v.ID, restore: v.RestorePoint, pinned: v.Pinned, halted: v.Halted,
		barren: v.Barren, openAfter: v.OpenAfter, lastRequest: v.LastRequest,
		identities: v.Identities, acts: acts{resumed: v.Resumed, rewinds: v.Rewinds},
	}
	m.scopes[v.ID] = s
	for _, g := range v.Generations {
		if last := s.newest(); last != nil && last.Generation >= g.Generation {
			return broken("scope %s: generation %d stands after %d", v.ID, g.Generation, last.Generation)
		}
		s.gens = append(s.gens, &g)
		s.debts += len(g.Debts)
		m.digest += m.genSum(s, &g)
	}
	for _, r := range v.Epochs {
		if k := len(s.epoch); k > 0 && s.epoch[k-1].Epoch.Compare(r.Epoch) >= 0 {
			return broken("scope %s: epoch %s stands after %s", v.ID, r.Epoch, s.epoch[k-1].Epoch)
		}
		m.addEpoch(s, r)
	}
	m.sealScope(s)
	return nil
}

func (m *Machine) fillTxn(v Txn) error {
	if _, found := m.txns[v.ID]; found {
		return broken("transaction %s is there twice", v.ID)
	}
	at, ok := v.ID.Time()
	if !ok {
		return broken("%q is no id of a transaction run by hand", v.ID)
	}
	m.addTxn(&txn{Txn: v, time: at})
	return nil
}
