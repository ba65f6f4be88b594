package ledger

import (
	"fmt"
	"slices"
)

// Check walks the whole state and what is kept beside it, and returns the first invariant that does not hold. The explorer
// and the fuzzers call it; Apply keeps each of them by construction.
func (m *Machine) Check() error {
	if err := m.checkState(); err != nil {
		return err
	}
	return m.checkCounts()
}

// checkState checks what a state can break. What is kept beside it is built from it.
func (m *Machine) checkState() error {
	if m.namespace == "" && (len(m.pipelines) > 0 || len(m.scopes) > 0 || len(m.txns) > 0 || len(m.nodes) > 0) {
		return broken("there are objects before the group was named")
	}
	for _, p := range m.Pipelines() {
		if err := m.checkOnePipeline(p); err != nil {
			return err
		}
	}
	owner := map[Generation]ScopeID{}
	for _, s := range m.sorted {
		for _, g := range s.gens {
			if o, taken := owner[g.Generation]; taken {
				return broken("generation %d belongs to scopes %s and %s", g.Generation, o, s.id)
			}
			owner[g.Generation] = s.id
		}
		if err := m.checkScope(s); err != nil {
			return err
		}
	}
	for t := range m.hand.byID.all() {
		if err := m.checkTxn(t); err != nil {
			return err
		}
	}
	return m.checkActs()
}

func (m *Machine) checkOnePipeline(p Pipeline) error {
	if bad := checkPipeline(p); bad != "" {
		return broken("pipeline %q: %s", p.Name, bad)
	}
	if p.Revision == 0 || p.Desired < Running || p.Desired > Stopped {
		return broken("pipeline %q has revision %d and is wanted %s", p.Name, p.Revision, p.Desired)
	}
	for shard := range p.Shards {
		if m.scopes[ScopeID{Pipeline: p.Name, Shard: shard}] == nil {
			return broken("pipeline %q has no scope for shard %d", p.Name, shard)
		}
	}
	return nil
}

func (m *Machine) checkScope(s *scope) error {
	p := m.pipelines[s.id.Pipeline]
	if p == nil && (len(s.epoch) > 0 || !s.restore.IsZero() || s.debts > 0 || s.halted != "" || len(s.identities) > 0) {
		return broken("scope %s has no pipeline and more than its generations", s.id)
	}
	if err := CheckName("pipeline", s.id.Pipeline, MaxPipeline); err != nil {
		return broken("scope %s: %v", s.id, err)
	}
	for i, g := range s.gens {
		if err := m.checkGeneration(s, g, i == len(s.gens)-1, p); err != nil {
			return err
		}
	}
	if !slices.IsSortedFunc(s.pinned, Epoch.Compare) {
		return broken("scope %s: its pinned epochs are out of order", s.id)
	}
	for i, r := range s.identities {
		if r.Identity == "" || r.AllowChanged || i > 0 && s.identities[i-1].ID.Compare(r.ID) >= 0 {
			return broken("scope %s: the identity of resource %s is empty or out of order", s.id, r.ID)
		}
	}
	for _, e := range append(slices.Clone(s.pinned), s.restore) {
		if !e.IsZero() && s.restorePoint(e) == nil {
			return broken("scope %s: restore point %s is not kept", s.id, e)
		}
	}
	for i, e := range s.epoch {
		if i > 0 && s.epoch[i-1].Epoch.Compare(e.Epoch) >= 0 {
			return broken("scope %s: epoch %s stands after %s", s.id, e.Epoch, s.epoch[i-1].Epoch)
		}
		if err := s.checkEpoch(e); err != nil {
			return err
		}
	}
	return s.checkGaps()
}

func (m *Machine) checkGeneration(s *scope, g *GenerationRecord, newest bool, p *pipeline) error {
	switch {
	case g.Generation == 0 || g.Generation > m.lastGeneration:
		return broken("scope %s has generation %d, the last of the ledger is %d", s.id, g.Generation, m.lastGeneration)
	case g.Open && !newest:
		return broken("scope %s: generation %d is open and not the newest", s.id, g.Generation)
	case g.Open && len(g.Debts) > 0:
		return broken("scope %s: generation %d is open and in debt", s.id, g.Generation)
	case g.Open && s.halted != "":
		return broken("scope %s is halted and generation %d open", s.id, g.Generation)
	case g.Open && p == nil:
		return broken("scope %s has no pipeline, and generation %d open", s.id, g.Generation)
	case g.Open && len(g.Members) == 0:
		return broken("scope %s: generation %d is open without members", s.id, g.Generation)
	}
	for _, o := range g.Members {
		if g.Open && !slices.ContainsFunc(p.Members, func(d MemberSpec) bool { return d.Name == o.Member }) {
			return broken("scope %s: member %q of the open generation is not declared", s.id, o.Member)
		}
	}
	if !slices.IsSortedFunc(g.Debts, BranchID.Compare) {
		return broken("scope %s: the debts of generation %d are out of order", s.id, g.Generation)
	}
	return nil
}

func (s *scope) checkEpoch(e *epoch) error {
	g := s.generation(e.Epoch.Generation)
	if g == nil || e.Epoch.N == 0 || e.Epoch.N > g.Final {
		return broken("scope %s: epoch %s is kept, and was not decided", s.id, e.Epoch)
	}
	if resolved := allResolved(e.Branches); resolved != (e.ProvenAt != 0) {
		return broken("scope %s: epoch %s was proven at %d, resolved: %t", s.id, e.Epoch, e.ProvenAt, resolved)
	}
	if len(e.Votes) > 0 && len(g.Members) > 0 {
		if !slices.EqualFunc(e.Votes, g.Members, func(v Vote, o MemberInstance) bool {
			return v.Member == o.Member && v.Instance == o.Instance
		}) {
			return broken("scope %s: epoch %s was decided without every member of its generation", s.id, e.Epoch)
		}
	}
	for i := range e.Branches {
		b := &e.Branches[i]
		if i > 0 && e.Branches[i-1].ID.Compare(b.ID) >= 0 {
			return broken("scope %s: the branches of epoch %s are out of order", s.id, e.Epoch)
		}
		if b.heuristic(Committed) && s.halted == "" && e.Epoch.Generation == s.newest().Generation && s.newest().Open {
			return broken("scope %s: epoch %s broke a promise and its generation went on", s.id, e.Epoch)
		}
	}
	return nil
}

// checkGaps wants the last decided epoch to be there: Retire never drops it. That the numbers before
// it have no gaps cannot be seen any more when they were retired; Decide sees to it.
func (s *scope) checkGaps() error {
	g := s.newest()
	if g == nil || g.Final == 0 || (s.restore.IsZero() && len(s.epoch) == 0) {
		return nil
	}
	if s.find(Epoch{Generation: g.Generation, N: g.Final}) == nil {
		return broken("scope %s: the last decided epoch, %d.%d, is not kept", s.id, g.Generation, g.Final)
	}
	return nil
}

func (m *Machine) checkTxn(t *txn) error {
	switch {
	case t.Outcome < Pending || t.Outcome > Aborted:
		return broken("transaction %s is %s", t.ID, t.Outcome)
	case t.Outcome == Pending && t.Deadline == 0:
		return broken("transaction %s is undecided without a deadline", t.ID)
	case t.inDoubt() && t.time < m.floor:
		return broken("transaction %s is in doubt and below the floor", t.ID)
	}
	for i := range t.Branches {
		if b := &t.Branches[i]; t.Outcome == Pending && b.resolved() {
			return broken("transaction %s is undecided, and branch %s resolved", t.ID, b.ID)
		}
		if i > 0 && t.Branches[i-1].ID.Compare(t.Branches[i].ID) >= 0 {
			return broken("the branches of transaction %s are out of order", t.ID)
		}
	}
	return nil
}

// checkCounts builds a second machine from the state and compares what is kept beside it.
func (m *Machine) checkCounts() error {
	o := New()
	if err := o.fill(m.State()); err != nil {
		return err
	}
	if o.digest != m.digest {
		return broken("the digest is %x, recomputed it is %x", m.digest, o.digest)
	}
	if len(o.refs) != len(m.refs) || len(o.scopes) != len(m.scopes) || len(o.txns) != len(m.txns) || o.hand.unproven != m.hand.unproven {
		return broken("the counts beside the state differ from it")
	}
	if err := m.hand.check(o.hand, m.txns); err != nil {
		return err
	}
	for part, n := range o.refs {
		if m.refs[part] != n {
			return broken("part %q is named %d times, counted %d", part, n, m.refs[part])
		}
	}
	for id, s := range o.scopes {
		mine := m.scopes[id]
		if fmt.Sprint(epochs(s.open), epochs(s.bad), s.debts) != fmt.Sprint(epochs(mine.open), epochs(mine.bad), mine.debts) {
			return broken("scope %s: what is open of it is counted wrongly", id)
		}
	}
	return nil
}

func epochs(es []*epoch) []Epoch {
	out := make([]Epoch, len(es))
	for i, e := range es {
		out[i] = e.Epoch
	}
	return out
}

// check compares the orders with those built anew, and with the records.
func (h *handOrder) check(o handOrder, txns map[TxnID]*txn) error {
	for _, x := range []struct {
		what      string
		mine, new order
	}{
		{"id", h.byID, o.byID}, {"id, of those in doubt", h.inDoubt, o.inDoubt}, {"deadline", h.undecided, o.undecided}, {"decision", h.unfinished, o.unfinished},
	} {
		mine, built := slices.Concat(x.mine.runs...), slices.Concat(x.new.runs...)
		if len(mine) != x.mine.size || !slices.EqualFunc(mine, built, func(a, b *txn) bool { return a.ID == b.ID && a == txns[a.ID] }) {
			return broken("the order by %s differs from the records", x.what)
		}
	}
	return nil
}
