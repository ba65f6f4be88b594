package server

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

const (
	// sweepInterval is how often resolvers list whole namespaces: what bounds how long a late prepare stays.
	sweepInterval = time.Minute
	// judgedAtOnce bounds one question.
	judgedAtOnce = 1000
	// paidAtOnce is how many sweeps are on their way to the log at the same time.
	paidAtOnce = 64
)

// resolution is asked by those who finish what others have left. The leader answers.
type resolution struct {
	unisinkv1.UnimplementedResolutionServer
	s *Server
	// reports are what resolvers told last.
	reports *reports
}

// ListDuties lists what is decided and not proven, and what must be swept. It is read through the log as soon as
// there is something to do: a resolver commits by it. That there is nothing leads to no act, and costs no entry.
func (r *resolution) ListDuties(ctx context.Context, req *unisinkv1.ListDutiesRequest) (*unisinkv1.ListDutiesResponse, error) {
	d := duties{wanted: wanted(req.GetResources()), byHand: int(req.GetByHandAtMost()), after: req.GetAfter()}
	r.s.c.Node.View(d.read)
	if d.any() {
		if err := r.s.c.Node.Barrier(ctx); err != nil {
			return nil, r.s.proposalError(err)
		}
		r.s.c.Node.View(d.read)
	}
	return &unisinkv1.ListDutiesResponse{
		Namespace: d.namespace, Incarnation: d.incarnation, Duties: d.unfinished(r.s.living()), Sweeps: d.debts(r.s.living()),
		SweepIntervalMs: sweepInterval.Milliseconds(), NowMs: time.Now().UnixMilli(), Next: d.next,
	}, nil
}

// Judge says what is to become of what was found. It is read through the log, and changes nothing.
func (r *resolution) Judge(ctx context.Context, req *unisinkv1.JudgeRequest) (*unisinkv1.JudgeResponse, error) {
	if n := len(req.GetFound()); n > judgedAtOnce {
		return nil, invalid("%d things are to be judged, at most %d may be asked about at once", n, judgedAtOnce)
	}
	if err := r.s.c.Node.Barrier(ctx); err != nil {
		return nil, r.s.proposalError(err)
	}
	out := &unisinkv1.JudgeResponse{ByHandTimeoutMs: r.s.c.HandTimeout.Milliseconds()}
	now := time.Now().UnixMilli()
	for _, f := range req.GetFound() {
		is := found(f)
		var s ledger.Sentence
		var why string
		// One look each: a thousand, with the lists of as many decisions, would hold decisions up.
		r.s.c.Node.View(func(m *ledger.Machine) { s, why = m.Judge(is, now) })
		out.Judgements = append(out.Judgements, &unisinkv1.Judgement{Sentence: sentences[s], Why: why})
	}
	return out, nil
}

// Prove records a proof. One that a first proof contradicts is refused.
func (r *resolution) Prove(ctx context.Context, req *unisinkv1.ProveRequest) (*unisinkv1.ProveResponse, error) {
	txn, branch := branchOf(req.GetBranch())
	if req.GetProof().GetVerdict() == unisinkv1.Verdict_VERDICT_UNDETERMINABLE {
		return &unisinkv1.ProveResponse{Heuristic: true}, r.s.undeterminable(ctx, req.GetMeta(), txn, branch, req.GetProof().GetEvidence())
	}
	proof := wire.Proof(req.GetProof())
	res, err := r.s.propose(ctx, req.GetMeta(), ledger.Resolve{Txn: txn, Branch: branch, Proof: proof})
	if err != nil {
		return nil, err
	}
	decided := res.Outcome
	if scope, epoch, isEpoch := txn.Epoch(); isEpoch {
		r.s.c.Node.View(func(m *ledger.Machine) { decided = m.EpochOutcome(scope, epoch) })
	}
	kept := ledger.ProvenCommitted
	if decided == ledger.Aborted {
		kept = ledger.ProvenRolledBack
	}
	return &unisinkv1.ProveResponse{Heuristic: proof.Verdict != kept}, nil
}

// PaySweep pays debts. One that is not there has been paid, or went with its pipeline.
func (r *resolution) PaySweep(ctx context.Context, req *unisinkv1.PaySweepRequest) (*unisinkv1.PaySweepResponse, error) {
	n := len(req.GetSweeps())
	if n == 0 {
		return nil, invalid("no debt is named that is to be paid; ListDuties lists them as sweeps")
	}
	if n > judgedAtOnce {
		return nil, invalid("%d debts are to be paid, at most %d may be named at once", n, judgedAtOnce)
	}
	var g errgroup.Group // side by side, so that they share entries
	g.SetLimit(paidAtOnce)
	for _, d := range req.GetSweeps() {
		g.Go(func() error {
			scope, gen := wire.Scope(d.GetScope()), ledger.Generation(d.GetGeneration())
			b := ledger.BranchID{Member: d.GetMember(), Resource: d.GetResource()}
			_, err := r.s.propose(ctx, &unisinkv1.Meta{Actor: req.GetMeta().GetActor()}, ledger.Swept{Scope: scope, Generation: gen, Branch: b})
			if reason, _ := grpcerr.Reason(err); reason == grpcerr.NotFound {
				return nil
			}
			if err == nil && r.s.c.Events != nil {
				r.s.c.Events.Add(eventlog.Event{ //nolint:contextcheck // an event outlives the call that made it
					Kind: eventlog.Swept, Scope: scope, Epoch: ledger.Epoch{Generation: gen}, Member: b.Member, Text: b.Resource,
				})
			}
			return err
		})
	}
	return &unisinkv1.PaySweepResponse{}, g.Wait()
}

// Force records an operator's act. A member may be trying to end the branch, and would go on; so an open generation is
// closed, and the next one does not list the branch.
func (r *resolution) Force(ctx context.Context, req *unisinkv1.ForceRequest) (*unisinkv1.ForceResponse, error) {
	actions := map[unisinkv1.ForceAction]ledger.ForceAction{
		unisinkv1.ForceAction_FORCE_ACTION_ACCEPT_LOSS: ledger.AcceptLoss, unisinkv1.ForceAction_FORCE_ACTION_WRITE_OFF: ledger.WriteOff,
	}
	if txn := req.GetBranch().GetTxn(); txn != "" {
		if err := noTransaction(ledger.TxnID(txn)); err != nil {
			return nil, err
		}
	}
	f := ledger.Force{Action: actions[req.GetAction()], Why: req.GetWhy()}
	f.Txn, f.Branch = branchOf(req.GetBranch())
	if req.GetBranch().GetTxn() == "" && req.GetBranch().GetEpoch().GetN() == 0 { // a debt
		f.Txn, f.Scope, f.Generation = "", wire.Scope(req.GetBranch().GetScope()), ledger.Generation(req.GetBranch().GetEpoch().GetGeneration())
	}
	if _, err := r.s.propose(ctx, req.GetMeta(), f); err != nil {
		return nil, err
	}
	return &unisinkv1.ForceResponse{}, r.s.readAnew(ctx, req.GetMeta(), f)
}

var sentences = map[ledger.Sentence]unisinkv1.Sentence{
	ledger.SentenceLeave:    unisinkv1.Sentence_SENTENCE_LEAVE,
	ledger.SentenceCommit:   unisinkv1.Sentence_SENTENCE_COMMIT,
	ledger.SentenceRollBack: unisinkv1.Sentence_SENTENCE_ROLL_BACK,
	ledger.SentenceInDoubt:  unisinkv1.Sentence_SENTENCE_IN_DOUBT,
	ledger.SentenceAsk:      unisinkv1.Sentence_SENTENCE_ASK,
}

// branchOf reads which branch is meant.
func branchOf(b *unisinkv1.BranchRef) (ledger.TxnID, ledger.BranchID) {
	if txn := b.GetTxn(); txn != "" {
		return ledger.TxnID(txn), ledger.BranchID{Resource: b.GetResource()}
	}
	return ledger.EpochTxn(wire.Scope(b.GetScope()), wire.Epoch(b.GetEpoch())), ledger.BranchID{Member: b.GetMember(), Resource: b.GetResource()}
}

// found reads what a listing showed.
func found(f *unisinkv1.Found) ledger.Found {
	b := f.GetBranch()
	out := ledger.Found{
		Namespace: f.GetNamespace(), Incarnation: f.GetIncarnation(), Txn: ledger.TxnID(b.GetTxn()),
		Branch: ledger.BranchID{Member: b.GetMember(), Resource: b.GetResource()}, Handle: wire.Handle(f.GetHandle()), Since: f.GetSinceMs(),
	}
	if out.Txn == "" {
		out.Scope, out.Epoch = wire.Scope(b.GetScope()), wire.Epoch(b.GetEpoch())
	}
	return out
}
