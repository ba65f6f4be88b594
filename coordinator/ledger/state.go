package ledger

import (
	"cmp"
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

// txn is a hand-run transaction in memory. A record is never changed: another takes its place, so that a snapshot can
// hold it while the machine moves on.
type txn struct {
	Txn
	time      int64
	unproven  int // branches that are not resolved, once it is decided
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

func allResolved(bs []Branch) bool { return unresolved(bs) == 0 }

// unresolved counts the branches that nobody has proven or forced.
func unresolved(bs []Branch) (n int) {
	for i := range bs {
		if !bs[i].resolved() {
			n++
		}
	}
	return n
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
func (t *txn) inDoubt() bool { return t.Outcome == Pending || t.unproven > 0 }

// head is the scope without its generations and epochs.
func (s *scope) head() Scope {
	return Scope{
		ID: s.id, RestorePoint: s.restore, Pinned: s.pinned, Halted: s.halted,
		Barren: s.barren, OpenAfter: s.openAfter, LastRequest: s.lastRequest,
		Identities: s.identities, Resumed: s.resumed, Rewinds: s.rewinds,
	}
}

func (s *scope) view() Scope {
	v := s.head()
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

// addScope takes in a scope that is not there yet.
func (m *Machine) addScope(s *scope) {
	m.scopes[s.id] = s
	i, _ := slices.BinarySearchFunc(m.sorted, s.id, func(o *scope, id ScopeID) int { return o.id.Compare(id) })
	m.sorted = slices.Insert(m.sorted, i, s)
}

// Frozen is the state as it was when it was taken, while the machine moves on.
type Frozen struct {
	head State // without transactions
	txns []*txn
}

// Freeze holds the state fast. Of a transaction run by hand it costs a pointer.
func (m *Machine) Freeze() *Frozen {
	f := &Frozen{head: State{
		Namespace: m.namespace, Incarnation: m.incarnation, FeatureLevel: m.level,
		LastGeneration: m.lastGeneration, Floor: m.floor, Forgotten: m.forgotten,
		Nodes: m.Nodes(), Pipelines: m.Pipelines(),
	}}
	for _, s := range m.sorted {
		f.head.Scopes = append(f.head.Scopes, s.view())
	}
	if len(m.acts) > 0 {
		f.head.Acts = m.Acts()
	}
	f.txns = slices.Concat(m.hand.byID.runs...)
	return f
}

// State is the whole ledger as a plain value in a fixed order. It may be called from any goroutine.
func (f *Frozen) State() State {
	s := f.head
	if len(f.txns) > 0 {
		s.Txns = make([]Txn, len(f.txns))
		for i, t := range f.txns {
			s.Txns[i] = t.Txn
		}
	}
	return s
}

// State is the whole ledger as a plain value in a fixed order. It stays as it is while the
// machine moves on: only slices that the machine never changes in place are shared.
func (m *Machine) State() State { return m.Freeze().State() }

// Load makes a machine from a state, after checking every invariant that a state can break; the error names the first
// that does not hold. It takes over the slices.
func Load(s State) (*Machine, error) {
	m := New()
	if err := m.fill(s); err != nil {
		return nil, err
	}
	if err := m.checkState(); err != nil {
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
	m.addScope(s)
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
