package server

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/mutant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// undeterminable takes in that nobody can tell how a branch ended. The scope of an epoch is halted, which the log keeps.
// Of a transaction by hand, which halts nothing, the leader remembers it until another leads: whoever tries to
// finish it finds it again, and says so again.
func (s *Server) undeterminable(ctx context.Context, meta *unisinkv1.Meta, txn ledger.TxnID, b ledger.BranchID, evidence string) error {
	scope, epoch, isEpoch := txn.Epoch()
	if !isEpoch {
		s.byHandUndeterminable(txn, b, evidence) //nolint:contextcheck // an event outlives the call that made it
		return nil
	}
	var halt ledger.CloseGeneration
	var due bool
	s.c.Node.View(func(m *ledger.Machine) {
		halt, due = m.HaltOver(ledger.Undeterminable{Scope: scope, Epoch: epoch, Branch: b, Evidence: evidence})
	})
	if !due {
		return nil
	}
	_, err := s.propose(ctx, meta, halt)
	return err
}

// byHandBranch names a branch of a transaction by hand.
type byHandBranch struct {
	txn    ledger.TxnID
	branch ledger.BranchID
}

func (s *Server) byHandUndeterminable(txn ledger.TxnID, b ledger.BranchID, evidence string) {
	isOpen := s.stillOpen(byHandBranch{txn, b})
	news, old := s.told.doubt(byHandBranch{txn, b}, evidence, len(isOpen) > 0)
	if old != nil {
		s.told.keep(old, s.stillOpen(old...))
	}
	if !news {
		return
	}
	s.CountBrokenPromise()
	if s.c.Events != nil {
		s.c.Events.Add(eventlog.Event{Kind: eventlog.Heuristic, Text: fmt.Sprintf("branch %s of transaction %s is undeterminable: %s", b, txn, evidence)})
	}
}

// stillOpen are the branches that are decided and not resolved.
func (s *Server) stillOpen(all ...byHandBranch) map[byHandBranch]bool {
	open := map[byHandBranch]bool{}
	s.c.Node.View(func(m *ledger.Machine) {
		for _, d := range all {
			x, found := m.Txn(d.txn)
			if found && x.Outcome != ledger.Pending && slices.ContainsFunc(x.Branches, func(b ledger.Branch) bool { return b.ID == d.branch && unresolved(b) }) {
				open[d] = true
			}
		}
	})
	return open
}

// unresolved reports a branch that is neither proven nor forced.
func unresolved(b ledger.Branch) bool { return b.Proof.Verdict == 0 && b.Forced == "" }

// fewDoubts are remembered without looking for those that are resolved.
const fewDoubts = 64

// doubt remembers a branch by hand that somebody could not tell of, if it is open. News: it was not known. Of those in old
// the resolved ones are to be forgotten: as many have come as were left the last time, so that a report costs the same
// however many there are.
func (r *reports) doubt(d byHandBranch, evidence string, isOpen bool) (news bool, old []byHandBranch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !isOpen {
		delete(r.undeterminable, d)
		return false, nil
	}
	if r.undeterminable == nil {
		r.undeterminable, r.prune = map[byHandBranch]string{}, fewDoubts
	}
	_, known := r.undeterminable[d]
	r.undeterminable[d] = evidence
	if !known && len(r.undeterminable) > r.prune {
		r.prune = 2 * len(r.undeterminable) // until keep says it better
		old = slices.Collect(maps.Keys(r.undeterminable))
	}
	return !known && evidence != "", old
}

// keep forgets those of old that are not open.
func (r *reports) keep(old []byHandBranch, open map[byHandBranch]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range old {
		if !open[d] {
			delete(r.undeterminable, d)
		}
	}
	r.prune = max(fewDoubts, 2*len(r.undeterminable))
}

// why says what is missing of a branch by hand that nobody can tell of; empty if that is not so.
func (r *reports) why(d byHandBranch) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.undeterminable[d]
}

// readAnew closes the generation that may still try to end a branch which an operator has forced: its members would
// never stop. The next one, which opens at once, does not list the branch. One that was proven before had its generation
// closed for that.
func (s *Server) readAnew(ctx context.Context, meta *unisinkv1.Meta, f ledger.Force) error {
	scope, epoch, isEpoch := f.Txn.Epoch()
	if !isEpoch || mutant.On("server/forced-is-read-anew") {
		return nil
	}
	var newest ledger.GenerationRecord
	unproven := false
	s.c.Node.View(func(m *ledger.Machine) {
		newest, _ = m.Newest(scope)
		e, _ := m.Epoch(scope, epoch)
		unproven = slices.ContainsFunc(e.Branches, func(b ledger.Branch) bool { return b.ID == f.Branch && b.Proof.Verdict == 0 })
	})
	if !newest.Open || !unproven {
		return nil
	}
	_, err := s.propose(ctx, &unisinkv1.Meta{Actor: meta.GetActor()}, ledger.CloseGeneration{
		Scope: scope, Generation: newest.Generation,
		Cause: fmt.Sprintf("branch %s of epoch %s was forced by an operator: what is left to be ended is read anew", f.Branch, epoch),
	})
	return err
}
