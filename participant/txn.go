package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
)

// TxnBranch is a branch that the caller has begun and written to, and its resource.
type TxnBranch struct {
	// Name of the resource; unique in the transaction.
	Name     string
	Resource Resource
	Branch   Branch
}

// RunTxn takes a transaction from written branches to its end: look whether the id may be used (not one that
// this client has drawn just now, see Client.NewTxnID); prepare all, side by side; ask for one decision;
// commit all, or roll back all, until it is proven; report the proofs. That a branch was committed as decided is reported behind the caller's
// back, a tenth of a second later with others, since nothing depends on it but the ledger's list of what is in doubt;
// Close waits for it. The branches have been begun with the names
// BranchName{Namespace, Txn, Resource}.
//
// OutcomeCommitted without an error: everything is committed and proven. OutcomeAborted: nothing is
// visible, and without an error nothing is left; an error says why it was aborted. With
// ErrUnfinished the outcome is as returned and some resource has not proven it yet; with
// ErrHeuristic some resource shows the opposite; with ErrUndeterminable beside ErrUnfinished nobody can tell how some
// branch ended, and a person must look.
//
// ErrOutcomeUnknown: nobody knows yet, and nothing was rolled back; call again with the same id and
// branches, or leave it to whoever asks for the outcome (Sweep does). ErrRefused alone: the id or the
// branches can't be used, and nothing was prepared by this call. ErrTooOld: no verdict is given, and what this call
// found prepared was dropped, for it can't be committed any more. Nothing else is ever rolled back
// before the ledger says aborted.
//
// A repeat of a transaction that is decided already prepares nothing: it finishes what was decided.
func (c *Client) RunTxn(ctx context.Context, txn string, branches []TxnBranch) (Outcome, error) {
	if err := checkTxn(txn, branches); err != nil {
		return outcomeUnset, err
	}
	run := &txnRun{c: c, id: txn, branches: branches, votes: make([]Vote, len(branches))}
	known, err := run.look(ctx)
	switch {
	case errors.Is(err, ErrTooOld):
		return run.tooOld(ctx, err)
	case err != nil:
		return outcomeUnset, fmt.Errorf("transaction %s was not begun: %w", txn, err)
	case known.outcome == OutcomeCommitted, known.outcome == OutcomeAborted:
		return run.conclude(ctx, known, nil)
	}
	no := run.prepare(ctx)
	verdict, err := run.decide(ctx, no)
	switch {
	case errors.Is(err, ErrTooOld):
		return run.tooOld(ctx, err)
	case verdict.outcome == outcomeUnset:
		return outcomeUnset, errors.Join(no, err)
	}
	return run.conclude(ctx, verdict, errors.Join(no, err))
}

// txnRun is one call of RunTxn.
type txnRun struct {
	c        *Client
	id       string
	branches []TxnBranch
	votes    []Vote // one per branch
	drawn    moment // when the id was drawn, if by this client
}

// look looks whether the id may be used. Not one that this client has drawn, and nobody has used.
func (r *txnRun) look(ctx context.Context) (knownTxn, error) {
	at, unknown := r.c.ids.use(r.id, r.c.now())
	r.drawn = at
	if unknown {
		return knownTxn{}, nil
	}
	return r.c.lookup(ctx, r.id)
}

// prepare asks every branch for its vote and joins the reasons of those that cannot be committed.
func (r *txnRun) prepare(ctx context.Context) error {
	var group sync.WaitGroup
	for i, b := range r.branches {
		group.Go(func() { r.votes[i] = r.c.prepare(ctx, b) })
	}
	group.Wait()
	var no []error
	for i, b := range r.branches {
		if r.votes[i].Kind == No {
			no = append(no, fmt.Errorf("prepare %s: %w", b.Name, r.votes[i].Reason))
		}
	}
	return errors.Join(no...)
}

// decide asks for the decision. A transaction of which nothing was written is decided too: told as
// committed and unknown to the ledger, it would be aborted by the next question. The error beside
// an outcome is why it is not the one that was asked for.
func (r *txnRun) decide(ctx context.Context, no error) (knownTxn, error) {
	if no != nil {
		return r.abort(ctx, no.Error(), nil)
	}
	hand := []HandBranch{}
	for i, b := range r.branches {
		if r.votes[i].Kind == Yes {
			hand = append(hand, HandBranch{Resource: b.Name, Handle: r.votes[i].Handle})
		}
	}
	out, err := r.c.Commit(ctx, r.id, hand)
	if err == nil {
		r.c.ids.took(r.drawn)
	} else if !errors.Is(err, ErrContradicts) {
		r.c.ids.doubt()
	}
	switch {
	case errors.Is(err, ErrContradicts): // committed with other branches, by another process
		known, err := r.c.lookup(ctx, r.id)
		if err == nil && known.outcome != OutcomeCommitted {
			err = fmt.Errorf("transaction %s: %w: it is %s", r.id, ErrOutcomeUnknown, known.outcome)
		}
		return known, err
	case errors.Is(err, ErrRefused): // it never will be committed as it is
		return r.abort(ctx, err.Error(), err)
	case err != nil:
		return knownTxn{}, err
	}
	return knownTxn{outcome: out, branches: hand}, nil
}

func (r *txnRun) abort(ctx context.Context, why string, cause error) (knownTxn, error) {
	out, err := r.c.Abort(ctx, r.id, why)
	if err != nil && !errors.Is(err, ErrTooOld) {
		// What is prepared stays so: not even a refusal to abort says that it will not be committed.
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	if err != nil {
		return knownTxn{}, errors.Join(cause, err)
	}
	if out == OutcomeAborted {
		return knownTxn{outcome: out}, cause
	}
	// An earlier run got it decided: by which handles is in the ledger.
	known, err := r.c.lookup(ctx, r.id)
	return known, errors.Join(cause, err)
}

// conclude brings every branch to the decided end: the handles that the decision lists are
// committed, and whatever else was prepared is rolled back (P7).
func (r *txnRun) conclude(ctx context.Context, known knownTxn, why error) (Outcome, error) {
	errs := make([]error, len(r.branches))
	var group sync.WaitGroup
	for i := range r.branches {
		group.Go(func() { errs[i] = r.finish(ctx, i, known) })
	}
	group.Wait()
	for _, d := range known.branches {
		if known.outcome == OutcomeCommitted && !slices.ContainsFunc(r.branches, func(b TxnBranch) bool { return b.Name == d.Resource }) {
			errs = append(errs, fmt.Errorf("%w: transaction %s was committed with %s too, which is not among the branches given", ErrUnfinished, r.id, d.Resource))
		}
	}
	if known.outcome == OutcomeCommitted && why != nil {
		// An earlier run got it decided, and what did not answer now was finished by handle.
		r.c.log.WarnContext(ctx, "transaction was committed by an earlier run", obs.Txn(r.id), obs.Err(why))
		why = nil
	}
	return known.outcome, errors.Join(append([]error{why}, errs...)...)
}

// finish ends one branch as decided.
func (r *txnRun) finish(ctx context.Context, i int, known knownTxn) error {
	b := r.branches[i]
	mine, err := r.handle(ctx, i)
	if err != nil {
		err = fmt.Errorf("%w: %s in transaction %s: %w", ErrUnfinished, b.Name, r.id, err)
	}
	listed, found := known.listed(b.Name)
	if mine.Name != "" && (!found || !mine.Same(listed)) {
		dropped := r.c.finish(ctx, r.id, b, mine, RolledBack, known.outcome == OutcomeAborted)
		if known.outcome == outcomeUnset && errors.Is(dropped, ErrHeuristic) {
			dropped = nil // committed and proven before the ledger forgot it
		}
		err = errors.Join(err, dropped)
	}
	if found {
		err = errors.Join(err, r.c.finish(ctx, r.id, b, listed, Committed, true))
	}
	if known.outcome == OutcomeAborted && mine.Name == "" && err == nil {
		r.c.report(ctx, r.id, b.Name, Proof{Verdict: RolledBack, Evidence: "dropped before it was prepared"})
	}
	return err
}

// handle is what branch i has prepared, as far as it can be told, and a zero handle when that is
// nothing. What was not prepared is dropped.
func (r *txnRun) handle(ctx context.Context, i int) (Handle, error) {
	if r.votes[i].Kind == Yes {
		return r.votes[i].Handle, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := r.branches[i].Branch.Discard(ctx)
	if !errors.Is(err, ErrPrepared) {
		return Handle{}, err
	}
	vote, err := r.branches[i].Branch.Prepare(ctx) // once more, to be told the handle
	if err == nil && vote.Kind != Yes {
		err = fmt.Errorf("%w: a prepared branch does not tell its handle", ErrBug)
	}
	return vote.Handle, err
}

// tooOld ends a run whose id has fallen below the floor without a record: nobody can commit it any
// more, so what is prepared of it is dead.
func (r *txnRun) tooOld(ctx context.Context, why error) (Outcome, error) {
	_, err := r.conclude(ctx, knownTxn{}, nil)
	return outcomeUnset, errors.Join(why, err)
}

// prepare asks a branch for its vote until ctx ends. No answer is no vote to commit by.
func (c *Client) prepare(ctx context.Context, b TxnBranch) Vote {
	pause := newResourceBackOff()
	for {
		vote, err := b.Branch.Prepare(ctx)
		if err == nil {
			if err = checkVote(vote); err == nil {
				return vote
			}
			return Vote{Kind: No, Reason: err}
		}
		if hopeless(err) || ctx.Err() != nil || !route.Sleep(ctx, pause.NextBackOff()) {
			return Vote{Kind: No, Reason: err}
		}
	}
}

// finish brings a prepared branch to its end and, if it is the ledger's business, reports the proof.
func (c *Client) finish(ctx context.Context, txn string, b TxnBranch, h Handle, want Verdict, tell bool) error {
	proof, err := bring(ctx, c.log, nil, b.Resource, h, want, ErrUndeterminable)
	if tell && errors.Is(err, ErrUndeterminable) {
		c.tellUndeterminable(ctx, txn, b.Name, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %s in transaction %s: %w", ErrUnfinished, b.Name, txn, err)
	}
	switch {
	case tell && proof.Verdict == want && want == Committed:
		c.reports.add(ctx, txn, b.Name, proof)
	case tell:
		c.report(ctx, txn, b.Name, proof)
	}
	if proof.Verdict != want {
		return fmt.Errorf("%w: %s in transaction %s: %s", ErrHeuristic, b.Name, txn, proof.Evidence)
	}
	return nil
}
