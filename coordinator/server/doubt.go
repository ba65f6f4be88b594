package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// doubt reads what is in doubt for people: undecided and unfinished kept apart, each with its age, who
// blocks it and what happens next. It reads this node's state and never the log.
type doubt struct {
	s      *Server
	now    time.Time
	living map[ledger.ScopeID]Living
	halted map[ledger.ScopeID]ledger.Undeterminable // zero: not, or for another reason
}

func (s *Server) newDoubt(now time.Time) *doubt {
	return &doubt{s: s, now: now, living: map[ledger.ScopeID]Living{}, halted: map[ledger.ScopeID]ledger.Undeterminable{}}
}

func (d *doubt) of(id ledger.ScopeID) Living {
	l, asked := d.living[id]
	if !asked {
		l = d.s.c.Sessions.Living(id)
		d.living[id] = l
	}
	return l
}

// undecided epochs are the leader's open rounds, scope by scope.
func (d *doubt) undecided() (out []*unisinkv1.Transaction) {
	var scopes []ledger.ScopeID
	d.s.c.Node.View(func(m *ledger.Machine) { scopes = m.Scopes() })
	for _, id := range scopes {
		for _, r := range d.of(id).Rounds {
			out = append(out, d.round(id, r))
		}
	}
	return out
}

func (d *doubt) round(id ledger.ScopeID, r LivingRound) *unisinkv1.Transaction {
	t := &unisinkv1.Transaction{
		Txn: string(ledger.EpochTxn(id, r.Epoch)), Outcome: unisinkv1.Outcome_OUTCOME_PENDING, Scope: wire.FromScope(id), Epoch: wire.FromEpoch(r.Epoch),
		BegunAtMs: d.now.Add(-r.Age).UnixMilli(), AgeMs: r.Age.Milliseconds(), LeftMs: max(r.Left, 0).Milliseconds(),
	}
	for _, name := range r.Missing {
		t.BlockedBy = append(t.BlockedBy, d.member(id, name))
	}
	if len(r.Missing) == 0 {
		t.Next = "every member has voted; the decision is being written"
		return t
	}
	t.Next = fmt.Sprintf("waits for votes; in %s the generation is closed and its members roll back", max(r.Left, 0).Round(time.Second))
	return t
}

// member says who a member is and, where the leader knows, what it waits for.
func (d *doubt) member(id ledger.ScopeID, name string) string {
	for _, m := range d.of(id).Members {
		if m.Name == name && m.WaitingFor != "" {
			return "member " + name + " (" + m.WaitingFor + ")"
		}
	}
	return "member " + name
}

// together joins lists to one of at most limit. None crowds another out: they take turns, the first of them first, until
// there is no more room or nothing left. A thousand open rounds are as things should be, and must not hide what a person
// has to look at.
func together(limit int, lists ...[]*unisinkv1.Transaction) (all []*unisinkv1.Transaction) {
	taken := make([]int, len(lists))
	for left, more := limit, true; more && left > 0; {
		more = false
		for i, l := range lists {
			if left > 0 && taken[i] < len(l) {
				taken[i]++
				left, more = left-1, true
			}
		}
	}
	for i, l := range lists {
		all = append(all, l[:taken[i]]...)
	}
	return all
}

// unfinished are epochs that lost a branch and wait for a person to accept that, then those that are decided and not
// proven, oldest decision of each scope first.
func (d *doubt) unfinished(limit int) []*unisinkv1.Transaction {
	type found struct {
		scope  ledger.ScopeID
		epoch  ledger.EpochRecord
		broken bool
	}
	var all []found
	d.s.c.Node.View(func(m *ledger.Machine) {
		for _, id := range m.Scopes() {
			for _, e := range m.EpochsInDoubt(id) {
				all = append(all, found{id, e, slices.ContainsFunc(e.Branches, lost)})
			}
		}
	})
	slices.SortStableFunc(all, func(a, b found) int {
		switch {
		case a.broken == b.broken:
			return 0
		case a.broken:
			return -1
		default:
			return 1
		}
	})
	all = all[:min(limit, len(all))]
	out := make([]*unisinkv1.Transaction, len(all))
	for i, f := range all {
		out[i] = d.epoch(f.scope, f.epoch)
	}
	return out
}

// lost reports that a branch was decided, is proven rolled back, and that nobody has accepted that.
func lost(b ledger.Branch) bool {
	return b.Proof.Verdict == ledger.ProvenRolledBack && b.Forced == ""
}

// byHand lists hand-run transactions behind an id, oldest first.
func (d *doubt) byHand(inDoubt bool, after ledger.TxnID, limit int) []*unisinkv1.Transaction {
	var all []ledger.Txn
	d.s.c.Node.View(func(m *ledger.Machine) { all = m.Txns(inDoubt, after, limit) })
	out := make([]*unisinkv1.Transaction, len(all))
	for i, x := range all {
		out[i] = d.hand(x)
	}
	return out
}

// find shows one transaction, decided or open; nil if nobody knows it.
func (d *doubt) find(id ledger.TxnID) *unisinkv1.Transaction {
	scope, epoch, isEpoch := id.Epoch()
	var e ledger.EpochRecord
	var x ledger.Txn
	var found bool
	d.s.c.Node.View(func(m *ledger.Machine) {
		if isEpoch {
			e, found = m.Epoch(scope, epoch)
		} else {
			x, found = m.Txn(id)
		}
	})
	switch {
	case found && isEpoch:
		return d.epoch(scope, e)
	case found:
		return d.hand(x)
	case isEpoch:
		rounds := d.of(scope).Rounds
		if i := slices.IndexFunc(rounds, func(r LivingRound) bool { return r.Epoch == epoch }); i >= 0 {
			return d.round(scope, rounds[i])
		}
	}
	return nil
}

func (d *doubt) epoch(scope ledger.ScopeID, e ledger.EpochRecord) *unisinkv1.Transaction {
	t := epochTransaction(scope, e)
	waits := false
	for i, b := range e.Branches {
		if !unresolved(b) {
			continue
		}
		t.BlockedBy = append(t.BlockedBy, "branch "+b.ID.String())
		if u := d.undeterminable(scope); u.Epoch == e.Epoch && u.Branch == b.ID {
			undetermined(t, i, ledger.Committed, u.Evidence)
			continue
		}
		waits = true
		t.Branches[i].Next = d.next(scope, e.Epoch, b)
	}
	if t.GetHeuristic() != "" {
		t.Next = aPerson
	}
	if e.ProvenAt != 0 {
		return t
	}
	t.AgeMs = max(0, d.now.UnixMilli()-e.DecidedAt)
	if waits {
		t.Next = strings.TrimPrefix(t.Next+"; ", "; ") + "each branch is committed again and again until it is proven"
	}
	return t
}

// aPerson is what happens next where nothing does by itself.
const aPerson = "nothing: a person must decide"

// undeterminable is the branch that nobody can tell of, where a scope is halted for one.
func (d *doubt) undeterminable(id ledger.ScopeID) ledger.Undeterminable {
	u, asked := d.halted[id]
	if !asked {
		d.s.c.Node.View(func(m *ledger.Machine) {
			if found, is := ledger.ParseUndeterminable(id, m.Halted(id)); is {
				u = found
			}
		})
		d.halted[id] = u
	}
	return u
}

// undetermined shows that nobody can tell how a branch ended.
func undetermined(t *unisinkv1.Transaction, i int, decided ledger.Outcome, evidence string) {
	b := t.GetBranches()[i]
	b.Undeterminable = evidence
	verb := "commit"
	if decided == ledger.Aborted {
		verb = "abort"
	}
	t.Heuristic = fmt.Sprintf("branch %s was decided %s, and its resource can neither do nor show that any more: %s",
		ledger.BranchID{Member: b.GetMember(), Resource: b.GetResource()}, verb, evidence)
}

// next says who finishes a decided branch of an epoch.
func (d *doubt) next(scope ledger.ScopeID, epoch ledger.Epoch, b ledger.Branch) string {
	for _, m := range d.of(scope).Members {
		if m.Name != b.ID.Member || !m.Attached {
			continue
		}
		if m.WaitingFor != "" {
			return "member " + m.Name + " finishes it: " + m.WaitingFor
		}
		return "member " + m.Name + " finishes it"
	}
	return d.absent(ledger.EpochTxn(scope, epoch), b)
}

func (d *doubt) hand(x ledger.Txn) *unisinkv1.Transaction {
	t := handTransaction(x)
	if x.Outcome == ledger.Pending {
		t.AgeMs = max(0, d.now.UnixMilli()-x.BegunAt)
		t.LeftMs = max(0, x.Deadline-d.now.UnixMilli())
		t.BlockedBy = []string{"its client, which has not committed it"}
		t.Next = "aborted at its deadline unless its client commits it"
		return t
	}
	if t.GetResolved() {
		return t
	}
	t.AgeMs = max(0, d.now.UnixMilli()-x.DecidedAt)
	t.Next = "its client, or a resolver, finishes each branch"
	for i, b := range x.Branches {
		if !unresolved(b) {
			continue
		}
		t.BlockedBy = append(t.BlockedBy, "branch "+b.ID.Resource)
		if why := d.s.told.why(byHandBranch{x.ID, b.ID}); why != "" {
			undetermined(t, i, x.Outcome, why)
			t.Next = aPerson
			continue
		}
		t.Branches[i].Next = d.absent(x.ID, b)
	}
	return t
}

// absent says who finishes a branch whose own process is not there, and what is tried in vain.
func (d *doubt) absent(txn ledger.TxnID, b ledger.Branch) string {
	if b.Handle.Kind == "" {
		return fmt.Sprintf("it was announced, and nobody has told that it was prepared: its client's sweep, or a resolver in whose file a resource has the name %s, "+
			"looks, and rolls back what is there", b.ID.Resource)
	}
	var reach []string
	for _, r := range d.s.told.list(d.now) {
		for _, t := range r.GetTroubles() {
			if id, branch := branchOf(t.GetBranch()); id == txn && branch == b.ID {
				next := max(t.GetNextTryMs()-d.now.UnixMilli(), 0)
				return fmt.Sprintf("resolver %s tries again in %s: %s", r.GetResolver(), time.Duration(next)*time.Millisecond, t.GetTrouble())
			}
		}
		for _, x := range r.GetResources() {
			if x.GetResource().GetKind() == b.Handle.Kind && x.GetResource().GetIdentity() == b.Handle.Identity {
				reach = append(reach, r.GetResolver())
			}
		}
	}
	if len(reach) > 0 {
		return "resolver " + strings.Join(reach, " or ") + " finishes it"
	}
	who := "its client, which runs it again or sweeps,"
	if _, _, isEpoch := txn.Epoch(); isEpoch {
		who = "the next process of its member"
	}
	return fmt.Sprintf("nobody holds it and no resolver reaches %s: %s finishes it, or `unisink resolver`", d.place(txn, b), who)
}

// place says where a branch is: what its member called the resource last, if the leader knows, and its identity.
func (d *doubt) place(txn ledger.TxnID, b ledger.Branch) string {
	is := b.Handle.Kind + " " + b.Handle.Identity
	scope, _, isEpoch := txn.Epoch()
	if !isEpoch {
		return is
	}
	for _, m := range d.of(scope).Members {
		if text := m.Texts[b.ID.Resource]; m.Name == b.ID.Member && text != "" {
			return text + " (" + is + ")"
		}
	}
	return is
}

// abortEpoch closes the generation of an epoch that is not decided. A repeat is answered.
func (t *transactions) abortEpoch(ctx context.Context, req *unisinkv1.AbortRequest, id ledger.ScopeID, epoch ledger.Epoch) (*unisinkv1.AbortResponse, error) {
	if req.GetWhy() == "" {
		return nil, invalid("say why epoch %s of scope %s is aborted; it is kept in the log", epoch, id)
	}
	out, newest, err := t.epochOutcome(ctx, id, epoch)
	if err != nil {
		return nil, err
	}
	if out == ledger.Pending {
		if epoch.N > newest.Final+1 && !t.s.isOpen(id, epoch) {
			return nil, grpcerr.New(codes.NotFound, grpcerr.NotFound, fmt.Sprintf("epoch %s of scope %s is not open; the next to be decided is %d.%d", epoch, id, newest.Generation, newest.Final+1), nil)
		}
		why := fmt.Sprintf("epoch %s aborted by %s: %s", epoch, strings.TrimSpace(req.GetMeta().GetActor()), req.GetWhy())
		if _, err = t.s.propose(ctx, req.GetMeta(), ledger.CloseGeneration{Scope: id, Generation: epoch.Generation, Cause: why}); err != nil {
			return nil, err
		}
		t.s.note(ctx, req.GetMeta(), ledger.Note{Kind: "abort epoch", Pipeline: id.Pipeline, What: fmt.Sprintf("%s of scope %s", epoch, id), Why: req.GetWhy()})
		if out, _, err = t.epochOutcome(ctx, id, epoch); err != nil {
			return nil, err
		}
	}
	if out == ledger.Committed {
		return nil, grpcerr.New(codes.FailedPrecondition, grpcerr.Contradicts,
			fmt.Sprintf("epoch %s of scope %s is committed, which nothing can change; `unisink txn show %s` says what is left to finish", epoch, id, req.GetTxn()), nil)
	}
	return &unisinkv1.AbortResponse{Outcome: wire.FromOutcome(out)}, nil
}

func (s *Server) isOpen(id ledger.ScopeID, epoch ledger.Epoch) bool {
	return slices.ContainsFunc(s.c.Sessions.Living(id).Rounds, func(r LivingRound) bool { return r.Epoch == epoch })
}

// epochOutcome is read through the log.
func (t *transactions) epochOutcome(ctx context.Context, id ledger.ScopeID, epoch ledger.Epoch) (out ledger.Outcome, newest ledger.GenerationRecord, err error) {
	if err := t.s.c.Node.Barrier(ctx); err != nil {
		return 0, newest, t.s.proposalError(err)
	}
	found := false
	t.s.c.Node.View(func(m *ledger.Machine) {
		newest, found = m.Newest(id)
		out = m.EpochOutcome(id, epoch)
	})
	switch {
	case !found:
		return 0, newest, grpcerr.New(codes.NotFound, grpcerr.NotFound, fmt.Sprintf("scope %s has no generation", id), nil)
	case epoch.Generation > newest.Generation:
		return 0, newest, grpcerr.New(codes.NotFound, grpcerr.NotFound,
			fmt.Sprintf("generation %d of scope %s was never opened, the newest is %d", epoch.Generation, id, newest.Generation), nil)
	}
	return out, newest, nil
}
