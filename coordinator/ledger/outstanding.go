package ledger

import (
	"iter"
	"slices"
)

func (s *scope) outstanding() (unfinished []Unfinished, debts []Debt) {
	for _, e := range s.open {
		for _, b := range e.Branches {
			if !b.resolved() {
				unfinished = append(unfinished, Unfinished{
					Txn: EpochTxn(s.id, e.Epoch), Scope: s.id, Epoch: e.Epoch, Branch: b.ID,
					Handle: b.Handle, Outcome: Committed, Since: e.DecidedAt,
				})
			}
		}
	}
	for g := range s.owing() {
		for _, d := range g.Debts {
			debts = append(debts, Debt{Scope: s.id, Generation: g.Generation, Branch: d, Since: g.ClosedAt})
		}
	}
	return unfinished, debts
}

// owing walks the generations that owe sweeps, oldest first. Those are the newest, with few that owe nothing between them.
func (s *scope) owing() iter.Seq[*GenerationRecord] {
	first, left := len(s.gens), s.debts
	for left > 0 {
		first--
		left -= len(s.gens[first].Debts)
	}
	return slices.Values(s.gens[first:])
}

// ScopeOutstanding is what remains to be done of one scope: its unfinished branches in commit
// order, and the debts of its closed generations.
func (m *Machine) ScopeOutstanding(id ScopeID) (unfinished []Unfinished, debts []Debt) {
	if s := m.scopes[id]; s != nil {
		return s.outstanding()
	}
	return nil, nil
}

// Outstanding is all that remains to be done, scope by scope in commit order, then the hand-run
// transactions by id. It may be long: Doubt counts it, and OutstandingEpochs and UnfinishedByHand are its parts.
func (m *Machine) Outstanding() Outstanding {
	o := m.OutstandingEpochs()
	for t := range m.hand.inDoubt.all() {
		if t.Outcome == Pending {
			o.Announced = append(o.Announced, t.Txn)
			continue
		}
		o.Unfinished = t.appendUnfinished(o.Unfinished)
	}
	return o
}

// OutstandingEpochs is Outstanding without the transactions run by hand.
func (m *Machine) OutstandingEpochs() (o Outstanding) {
	for _, s := range m.sorted { // the scopes of deleted pipelines owe nothing
		if len(s.open) > 0 || s.debts > 0 {
			u, d := s.outstanding()
			o.Unfinished, o.Debts = append(o.Unfinished, u...), append(o.Debts, d...)
		}
	}
	return o
}

// UnfinishedByHand walks the transactions run by hand that are decided and not resolved, the oldest decision first, with
// their unfinished branches. It begins behind the transaction of a branch that an earlier walk gave; from the first if that
// is zero.
func (m *Machine) UnfinishedByHand(after Unfinished) iter.Seq[[]Unfinished] {
	return func(yield func([]Unfinished) bool) {
		for t := range m.hand.unfinished.behind(&txn{Txn: Txn{ID: after.Txn, DecidedAt: after.Since}}) {
			if !yield(t.appendUnfinished(nil)) {
				return
			}
		}
	}
}

func (t *txn) appendUnfinished(out []Unfinished) []Unfinished {
	for _, b := range t.Branches {
		if !b.resolved() {
			out = append(out, Unfinished{Txn: t.ID, Branch: b.ID, Handle: b.Handle, Outcome: t.Outcome, Since: t.DecidedAt})
		}
	}
	return out
}

// Doubt counts what remains to be done. It walks the scopes, and nothing else.
func (m *Machine) Doubt() Doubt {
	d := Doubt{Unfinished: m.hand.unproven, Announced: m.hand.undecided.size}
	oldest := func(of *int64, since int64) {
		if *of == 0 || since < *of {
			*of = since
		}
	}
	if t := m.hand.unfinished.first(); t != nil {
		oldest(&d.UnfinishedSince, t.DecidedAt)
	}
	for _, s := range m.sorted {
		for _, e := range s.open {
			d.Unfinished += unresolved(e.Branches)
			oldest(&d.UnfinishedSince, e.DecidedAt)
		}
		if s.debts == 0 {
			continue
		}
		d.Debts += s.debts
		for g := range s.owing() {
			if len(g.Debts) > 0 {
				oldest(&d.DebtsSince, g.ClosedAt)
			}
		}
	}
	return d
}

// Overdue are undecided transactions run by hand whose deadline, Unix milliseconds, is not after now, at most most of
// them, the oldest deadline first.
func (m *Machine) Overdue(now int64, most int) (ids []TxnID) {
	for t := range m.hand.undecided.all() {
		if t.Deadline > now || len(ids) == most {
			break
		}
		ids = append(ids, t.ID)
	}
	return ids
}
