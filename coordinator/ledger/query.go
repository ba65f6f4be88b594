package ledger

import (
	"crypto/sha256"
	"maps"
	"slices"
)

// Hash of State; equal on all nodes at an equal index. It walks the whole state.
func (m *Machine) Hash() [32]byte {
	h := sha256.New()
	var e encoder
	flush := func() {
		h.Write(e.buf) // a hash never fails
		e.reset()
	}
	e.text(m.namespace)
	e.num(m.incarnation)
	e.num(uint64(m.level))
	e.num(uint64(m.lastGeneration))
	e.int(m.floor)
	if m.forgotten != 0 {
		e.int(m.forgotten)
	}
	e.num(uint64(len(m.nodes)))
	for _, n := range m.Nodes() {
		e.node(n)
	}
	e.num(uint64(len(m.pipelines)))
	for _, p := range m.Pipelines() {
		e.pipeline(p)
	}
	e.num(uint64(len(m.scopes)))
	for _, s := range m.sorted {
		e.wholeScope(s)
		flush()
	}
	e.num(uint64(len(m.txns)))
	for t := range m.hand.byID.all() {
		e.wholeTxn(&t.Txn)
		flush()
	}
	if m.level >= AuditLevel {
		e.num(uint64(len(m.acts)))
		for i := range m.acts {
			e.act(&m.acts[i])
		}
	}
	flush()
	return [32]byte(h.Sum(nil))
}

func (e *encoder) branches(bs []Branch) {
	e.num(uint64(len(bs)))
	for i := range bs {
		e.handle(bs[i].Handle)
		e.branch(&bs[i], 0)
	}
}

func (e *encoder) wholeScope(s *scope) {
	e.scopeHead(s)
	e.num(uint64(len(s.gens)))
	for _, g := range s.gens {
		e.generation(g)
	}
	e.num(uint64(len(s.epoch)))
	for _, r := range s.epoch {
		e.epoch(r.Epoch)
		e.flag(r.Final)
		e.int(r.DecidedAt)
		e.int(r.ProvenAt)
		e.votes(r.Votes)
		e.branches(r.Branches)
	}
}

func (e *encoder) wholeTxn(t *Txn) {
	e.text(string(t.ID))
	e.num(uint64(t.Outcome))
	e.int(t.BegunAt)
	e.int(t.DecidedAt)
	e.int(t.Deadline)
	e.text(t.Heuristic)
	e.text(t.Why)
	e.branches(t.Branches)
}

// Digest is a 64-bit digest of the state, kept up to date by every Apply at the cost of what the
// command changed. It depends on the state alone, not on the way that led to it.
func (m *Machine) Digest() uint64 { return m.digest }

// Namespace is the name and incarnation given by Init; empty before.
func (m *Machine) Namespace() (name string, incarnation uint64) { return m.namespace, m.incarnation }

// FeatureLevel that the state is at; 0 before Init.
func (m *Machine) FeatureLevel() uint32 { return m.level }

// Floor of hand-run ids, Unix milliseconds: an older id without a record is too old for a verdict.
func (m *Machine) Floor() int64 { return m.floor }

// LastGeneration is the newest generation of any scope.
func (m *Machine) LastGeneration() Generation { return m.lastGeneration }

// Nodes by id.
func (m *Machine) Nodes() []Node {
	ns := make([]Node, 0, len(m.nodes))
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		ns = append(ns, m.nodes[id].Node)
	}
	return ns
}

// Pipeline by name.
func (m *Machine) Pipeline(name string) (Pipeline, bool) {
	p, found := m.pipelines[name]
	if !found {
		return Pipeline{}, false
	}
	return p.Pipeline, true
}

// Pipelines by name.
func (m *Machine) Pipelines() []Pipeline {
	ps := make([]Pipeline, 0, len(m.pipelines))
	for _, name := range slices.Sorted(maps.Keys(m.pipelines)) {
		ps = append(ps, m.pipelines[name].Pipeline)
	}
	return ps
}

// PipelineCount is how many pipelines there are.
func (m *Machine) PipelineCount() int { return len(m.pipelines) }

// ScopeCount is how many scopes the pipelines that exist have.
func (m *Machine) ScopeCount() (n int) {
	for _, p := range m.pipelines {
		n += int(p.Shards)
	}
	return n
}

// EpochCount is how many decided epochs all scopes keep, restore points, unresolved ones and recent history. It takes a
// step for each scope.
func (m *Machine) EpochCount() (n int) {
	for _, sc := range m.sorted {
		n += len(sc.epoch)
	}
	return n
}

// Scopes of the pipelines that exist, in order.
func (m *Machine) Scopes() []ScopeID {
	var ids []ScopeID
	for _, p := range m.Pipelines() {
		for shard := range p.Shards {
			ids = append(ids, ScopeID{Pipeline: p.Name, Shard: shard})
		}
	}
	return ids
}

// Scope by id, with everything kept of it. Of a deleted pipeline's scope that is what its
// generations decided.
func (m *Machine) Scope(id ScopeID) (Scope, bool) {
	s := m.scopes[id]
	if s == nil {
		return Scope{}, false
	}
	return s.view(), true
}

// ScopeHead is Scope without generations and epochs, which may be many.
func (m *Machine) ScopeHead(id ScopeID) (Scope, bool) {
	s := m.scopes[id]
	if s == nil {
		return Scope{}, false
	}
	return s.head(), true
}

// Epochs of the scope that are kept, ascending.
func (m *Machine) Epochs(id ScopeID) []EpochRecord {
	s := m.scopes[id]
	if s == nil {
		return nil
	}
	return records(s.epoch)
}

// EpochsInDoubt are the epochs of the scope that have a branch which nobody has proven, or one that has ended against the
// decision and that no operator has accepted; ascending.
func (m *Machine) EpochsInDoubt(id ScopeID) []EpochRecord {
	s := m.scopes[id]
	if s == nil || len(s.open)+len(s.bad) == 0 {
		return nil
	}
	all := slices.Concat(s.open, s.bad)
	slices.SortFunc(all, func(a, b *epoch) int { return a.Epoch.Compare(b.Epoch) })
	return records(slices.Compact(all))
}

func records(es []*epoch) []EpochRecord {
	out := make([]EpochRecord, len(es))
	for i, e := range es {
		out[i] = e.EpochRecord
	}
	return out
}

// Generation is what is kept of a generation of the scope; false if it decided nothing and was dropped, or never was.
func (m *Machine) Generation(id ScopeID, g Generation) (GenerationRecord, bool) {
	if s := m.scopes[id]; s != nil {
		if r := s.generation(g); r != nil {
			return *r, true
		}
	}
	return GenerationRecord{}, false
}

// Newest generation of the scope; false if it never had one.
func (m *Machine) Newest(id ScopeID) (GenerationRecord, bool) {
	s := m.scopes[id]
	if s == nil || s.newest() == nil {
		return GenerationRecord{}, false
	}
	return *s.newest(), true
}

// Halted says why the scope is halted; empty if it is not.
func (m *Machine) Halted(id ScopeID) string {
	if s := m.scopes[id]; s != nil {
		return s.halted
	}
	return ""
}

// Broken reports that a branch of the scope has ended against its decision, and that no operator has accepted that.
func (m *Machine) Broken(id ScopeID) bool {
	s := m.scopes[id]
	return s != nil && len(s.bad) > 0
}

// Resumed is the newest generation of the scope when an operator last ended a halt.
func (m *Machine) Resumed(id ScopeID) Generation {
	if s := m.scopes[id]; s != nil {
		return s.resumed
	}
	return 0
}

// Epoch is the record of a decided epoch, while it is kept. Its votes are empty when it is no
// restore point any longer.
func (m *Machine) Epoch(id ScopeID, e Epoch) (EpochRecord, bool) {
	s := m.scopes[id]
	if s == nil {
		return EpochRecord{}, false
	}
	r := s.find(e)
	if r == nil {
		return EpochRecord{}, false
	}
	return r.EpochRecord, true
}

// EpochOutcome answers for any epoch of the scope, for ever: up to the final of its generation it
// is Committed; above, Aborted once the generation is closed; until then, and for generations that
// the scope has not seen yet, Pending. It is 0 for a scope or epoch that cannot be.
func (m *Machine) EpochOutcome(id ScopeID, e Epoch) Outcome {
	s := m.scopes[id]
	if s == nil || e.Generation == 0 || e.N == 0 {
		return outcomeUnset
	}
	g := s.newest()
	switch {
	case g == nil || e.Generation > g.Generation:
		return Pending
	case e.N <= s.final(e.Generation):
		return Committed
	case e.Generation == g.Generation && g.Open:
		return Pending
	default:
		return Aborted
	}
}

// ProvenCut is the newest epoch before which, itself included, every branch is proven as decided,
// or its loss acknowledged by an operator.
func (m *Machine) ProvenCut(id ScopeID) (EpochRecord, bool) {
	s := m.scopes[id]
	if s == nil || s.cut() == nil {
		return EpochRecord{}, false
	}
	return s.cut().EpochRecord, true
}

// Reopened repeats what OpenGeneration answered for the scope's newest generation, as long as that
// is open and has decided nothing: what a new leader sends in Restore. A branch that has been
// proven since is not among the unfinished any longer.
func (m *Machine) Reopened(id ScopeID) (Opened, bool) {
	s := m.scopes[id]
	if s == nil {
		return Opened{}, false
	}
	g := s.newest()
	if g == nil || !g.Open || g.Final > 0 {
		return Opened{}, false
	}
	o := Opened{Generation: g.Generation, KeptParts: m.keptParts(id.Pipeline)}
	if !s.restore.IsZero() {
		r := s.restorePoint(s.restore)
		must(r != nil, "scope %s starts at %s, which is not kept", id, s.restore)
		o.RestorePoint = &RestorePoint{Epoch: r.Epoch, Votes: r.Votes, Pinned: s.isPinned(r.Epoch)}
	}
	o.Unfinished, o.Debts = s.outstanding()
	return o, true
}

// keptParts are the state parts that the kept restore points of a pipeline name. A member's parts are of its scope, and what
// hands them to another scope (a reshard) stays within the pipeline; those of all pipelines may be hundreds of thousands.
func (m *Machine) keptParts(pipeline string) []string {
	named := map[string]bool{}
	m.each(&m.pipelines[pipeline].Pipeline, func(s *scope) {
		for _, e := range s.epoch {
			for _, v := range e.Votes {
				for _, p := range v.Parts {
					if p.ID != "" {
						named[p.ID] = true
					}
				}
			}
		}
	})
	return slices.Sorted(maps.Keys(named))
}

// Refs reports whether a kept restore point of some scope names the state part.
func (m *Machine) Refs(part string) bool { return m.refs[part] > 0 }

// Txn is a hand-run transaction.
func (m *Machine) Txn(id TxnID) (Txn, bool) {
	t, found := m.txns[id]
	if !found {
		return Txn{}, false
	}
	return t.Txn, true
}

// Txns are the hand-run transactions by id, oldest first; only those in doubt if asked so, and at
// most limit if that is not 0.
func (m *Machine) Txns(inDoubt bool, after TxnID, limit int) []Txn {
	from := &m.hand.byID
	if inDoubt {
		from = &m.hand.inDoubt
	}
	out := []Txn{}
	for t := range from.behind(&txn{Txn: Txn{ID: after}}) {
		if limit > 0 && len(out) == limit {
			break
		}
		out = append(out, t.Txn)
	}
	return out
}
