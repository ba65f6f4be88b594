package server

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/mutant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

type transactions struct {
	unisinkv1.UnimplementedTransactionsServer
	s *Server
}

// Begin announces branches before they are prepared.
func (t *transactions) Begin(ctx context.Context, req *unisinkv1.BeginRequest) (*unisinkv1.BeginResponse, error) {
	ms := req.GetTimeoutMs()
	if ms < 0 || ms > ledger.MaxDeadline { // looked at before it is counted in nanoseconds, where more would wrap around
		return nil, invalid("a time-out of %d ms is not possible: it is at most a week, %d ms", ms, ledger.MaxDeadline)
	}
	wait := time.Duration(ms) * time.Millisecond
	if wait == 0 {
		wait = t.s.c.HandTimeout
	}
	if err := t.ownHandles(ctx, req.GetMeta(), req.GetTxn(), req.GetBranches()); err != nil {
		return nil, err
	}
	b := ledger.Announce{Txn: ledger.TxnID(req.GetTxn()), Branches: handBranches(req.GetBranches()), Deadline: time.Now().Add(wait).UnixMilli()}
	r, err := t.s.propose(ctx, req.GetMeta(), b)
	if err != nil && r.Refusal == ledger.Invalid && b.Deadline <= r.At && !mutant.On("server/deadline-from-stamp") {
		// By the log's clock it has passed: that was ahead, and does not go back. So it is that clock that the time-out is
		// counted from.
		b.Deadline = r.At + wait.Milliseconds()
		r, err = t.s.propose(ctx, req.GetMeta(), b)
	}
	if err != nil {
		return nil, err
	}
	return &unisinkv1.BeginResponse{DeadlineUnixMs: r.Deadline}, nil
}

// Commit decides.
func (t *transactions) Commit(ctx context.Context, req *unisinkv1.CommitRequest) (*unisinkv1.CommitResponse, error) {
	if err := t.ownHandles(ctx, req.GetMeta(), req.GetTxn(), req.GetBranches()); err != nil {
		return nil, err
	}
	r, err := t.s.propose(ctx, req.GetMeta(), ledger.Commit{Txn: ledger.TxnID(req.GetTxn()), Branches: handBranches(req.GetBranches())})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.CommitResponse{Outcome: wire.FromOutcome(r.Outcome)}, nil
}

// Outcome asks; an unknown transaction is aborted by the question, a known one answers as it stands.
// Each question that aborts writes, so a caller may ask only so many; what is known costs nothing.
func (t *transactions) Outcome(ctx context.Context, req *unisinkv1.OutcomeRequest) (*unisinkv1.OutcomeResponse, error) {
	// Read through the log: what is answered may lead to a rollback.
	if err := t.s.c.Node.Barrier(ctx); err != nil {
		return nil, t.s.proposalError(err)
	}
	id := ledger.TxnID(req.GetTxn())
	var rec ledger.Txn
	var known bool
	t.s.c.Node.View(func(m *ledger.Machine) { rec, known = m.Txn(id) })
	if known {
		return &unisinkv1.OutcomeResponse{Outcome: wire.FromOutcome(rec.Outcome)}, nil
	}
	if bad := t.s.inadmissible(id); bad != nil {
		return nil, bad
	}
	if wait, ok := t.s.asked.take(t.s.guard.Caller(ctx), time.Now()); !ok {
		return nil, grpcerr.NewRateLimited(fmt.Sprintf("transaction %s is unknown, and %d questions a second about unknown ones are answered to one caller, since each aborts one for good; ask again in %s",
			id, questionsPerSecond, wait.Round(time.Millisecond)), wait)
	}
	r, err := t.s.propose(ctx, req.GetMeta(), ledger.PresumeAbort{Txn: id, Why: "unknown when its outcome was asked for"})
	if reason, _ := grpcerr.Reason(err); reason == grpcerr.Contradicts {
		// It was committed between the look and the entry, and that is the answer. The entry that
		// refused has been applied here, so the record is here too.
		t.s.c.Node.View(func(m *ledger.Machine) { rec, known = m.Txn(id) })
		if known {
			return &unisinkv1.OutcomeResponse{Outcome: wire.FromOutcome(rec.Outcome)}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &unisinkv1.OutcomeResponse{Outcome: wire.FromOutcome(r.Outcome)}, nil
}

// Abort decides against an undecided transaction, an epoch's by closing its generation.
func (t *transactions) Abort(ctx context.Context, req *unisinkv1.AbortRequest) (*unisinkv1.AbortResponse, error) {
	id := ledger.TxnID(req.GetTxn())
	if scope, epoch, ok := id.Epoch(); ok {
		return t.abortEpoch(ctx, req, scope, epoch)
	}
	r, err := t.s.propose(ctx, req.GetMeta(), ledger.PresumeAbort{Txn: id, Why: req.GetWhy()})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.AbortResponse{Outcome: wire.FromOutcome(r.Outcome)}, nil
}

// Resolve records the proof of one branch.
func (t *transactions) Resolve(ctx context.Context, req *unisinkv1.ResolveRequest) (*unisinkv1.ResolveResponse, error) {
	txn, branch := ledger.TxnID(req.GetTxn()), ledger.BranchID{Resource: req.GetResource()}
	if req.GetProof().GetVerdict() == unisinkv1.Verdict_VERDICT_UNDETERMINABLE {
		return &unisinkv1.ResolveResponse{}, t.s.undeterminable(ctx, req.GetMeta(), txn, branch, req.GetProof().GetEvidence())
	}
	_, err := t.s.propose(ctx, req.GetMeta(), ledger.Resolve{Txn: txn, Branch: branch, Proof: wire.Proof(req.GetProof())})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.ResolveResponse{}, nil
}

// inadmissible is the refusal of an unknown id that can have no record: it is malformed, older than
// the floor or from the future. It looks at this node's clock; what counts is the entry's.
func (s *Server) inadmissible(id ledger.TxnID) (refused error) {
	s.c.Node.View(func(m *ledger.Machine) {
		if r := m.Admits(id, time.Now().UnixMilli()); !r.OK() {
			refused = wire.Refusal(r)
		}
	})
	return refused
}

// noTransaction refuses what is not the name of a transaction.
func noTransaction(id ledger.TxnID) error {
	_, byHand := id.Time()
	if _, _, isEpoch := id.Epoch(); byHand || isEpoch {
		return nil
	}
	return invalid("%q is no transaction; an epoch's is written like orders/0@7.12, and one run by hand has a UUIDv7 in lower case", id)
}

// GetTransaction shows one transaction, an epoch's or one run by hand. Of an id that is unknown it
// tells whether it could still be committed: not one that is too old or too new.
func (t *transactions) GetTransaction(_ context.Context, req *unisinkv1.GetTransactionRequest) (*unisinkv1.GetTransactionResponse, error) {
	id := ledger.TxnID(req.GetTxn())
	if err := noTransaction(id); err != nil {
		return nil, err
	}
	_, byHand := id.Time()
	out := t.s.newDoubt(time.Now()).find(id)
	if out == nil && byHand {
		if bad := t.s.inadmissible(id); bad != nil {
			return nil, bad
		}
	}
	if out == nil {
		return nil, grpcerr.New(codes.NotFound, grpcerr.NotFound, "transaction "+req.GetTxn()+" is not in the ledger; it may be retired, or never decided", nil)
	}
	return &unisinkv1.GetTransactionResponse{Transaction: out}, nil
}

// ListTransactions lists what was run by hand and, with in_doubt, undecided and unfinished epochs beside it. With by_hand it
// pages by id.
func (t *transactions) ListTransactions(_ context.Context, req *unisinkv1.ListTransactionsRequest) (*unisinkv1.ListTransactionsResponse, error) {
	limit := int(req.GetLimit())
	if limit <= 0 || limit > 1000 {
		limit = 100
	}
	d := t.s.newDoubt(time.Now())
	if req.GetByHand() || !req.GetInDoubt() {
		return &unisinkv1.ListTransactionsResponse{Transactions: d.byHand(req.GetInDoubt(), ledger.TxnID(req.GetAfter()), limit)}, nil
	}
	all := together(limit, d.unfinished(limit), d.byHand(true, "", limit), d.undecided())
	return &unisinkv1.ListTransactionsResponse{Transactions: all}, nil
}

func epochTransaction(scope ledger.ScopeID, e ledger.EpochRecord) *unisinkv1.Transaction {
	t := &unisinkv1.Transaction{
		Txn: string(ledger.EpochTxn(scope, e.Epoch)), Outcome: unisinkv1.Outcome_OUTCOME_COMMITTED,
		DecidedAtMs: e.DecidedAt, Resolved: e.ProvenAt != 0, Scope: wire.FromScope(scope), Epoch: wire.FromEpoch(e.Epoch),
	}
	for _, b := range e.Branches {
		t.Branches = append(t.Branches, transactionBranch(b))
		if lost(b) {
			t.Heuristic = "branch " + b.ID.String() + " was decided commit and is proven rolled back: " + b.Proof.Evidence
		}
	}
	return t
}

func handTransaction(x ledger.Txn) *unisinkv1.Transaction {
	t := &unisinkv1.Transaction{
		Txn: string(x.ID), Outcome: wire.FromOutcome(x.Outcome), BegunAtMs: x.BegunAt, DecidedAtMs: x.DecidedAt,
		DeadlineUnixMs: x.Deadline, Heuristic: x.Heuristic, Resolved: x.Outcome != ledger.Pending,
	}
	for _, b := range x.Branches {
		t.Branches = append(t.Branches, transactionBranch(b))
		t.Resolved = t.Resolved && (b.Proof.Verdict != 0 || b.Forced != "")
	}
	return t
}
