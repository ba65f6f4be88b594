package participant

import (
	"context"
	"errors"
	"fmt"
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

// RunTxn takes a transaction from written branches to its end: prepare all, side by side; ask for
// one decision; commit all, or roll back all, until it is proven; report the proofs.
//
// OutcomeCommitted without an error: everything is committed and proven. OutcomeAborted without one:
// nothing is visible and nothing is left. With ErrUnfinished the outcome is as returned and some
// resource has not proven it yet; with ErrHeuristic some resource shows the opposite.
// ErrOutcomeUnknown: nobody knows yet, and nothing was rolled back; call again with the same id and
// branches, or leave it to whoever asks for the outcome. Nothing is ever rolled back before the
// ledger says aborted.
func (c *Client) RunTxn(ctx context.Context, txn string, branches []TxnBranch) (Outcome, error) {
	votes := make([]Vote, len(branches))
	var group sync.WaitGroup
	for i, b := range branches {
		group.Go(func() { votes[i] = c.prepare(ctx, b) })
	}
	group.Wait()
	var no []error
	var hand []HandBranch
	var yes []finishing
	for i, b := range branches {
		switch votes[i].Kind {
		case Yes:
			hand = append(hand, HandBranch{Resource: b.Name, Handle: votes[i].Handle})
			yes = append(yes, finishing{b, votes[i].Handle})
		case No:
			no = append(no, fmt.Errorf("prepare %s: %w", b.Name, votes[i].Reason))
		case ReadOnly, voteUnset:
		}
	}
	var out Outcome
	var err error
	switch {
	case len(no) > 0:
		out, err = c.Abort(ctx, txn, errors.Join(no...).Error())
	case len(hand) == 0:
		return OutcomeCommitted, nil // nothing was written
	default:
		out, err = c.Commit(ctx, txn, hand)
	}
	if err != nil {
		return outcomeUnset, errors.Join(append(no, err)...)
	}
	if out == OutcomePending {
		return out, fmt.Errorf("transaction %s: %w: it is not decided", txn, ErrOutcomeUnknown)
	}
	err = c.finishAll(ctx, txn, out, yes)
	switch {
	case out == OutcomeAborted:
		err = errors.Join(append(no, err, c.discard(ctx, branches, votes))...)
	case len(no) > 0: // an earlier run got it decided; what did not answer now has to be finished by handle
		err = errors.Join(err, fmt.Errorf("%w: transaction %s: %w", ErrUnfinished, txn, errors.Join(no...)))
	}
	return out, err
}

// finishing is a prepared branch on its way to its end.
type finishing struct {
	TxnBranch
	handle Handle
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

// finishAll brings every prepared branch to the decided end and reports the proofs.
func (c *Client) finishAll(ctx context.Context, txn string, out Outcome, yes []finishing) error {
	want := Committed
	if out == OutcomeAborted {
		want = RolledBack
	}
	errs := make([]error, len(yes))
	var group sync.WaitGroup
	for i, f := range yes {
		group.Go(func() { errs[i] = c.finish(ctx, txn, f, want) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func (c *Client) finish(ctx context.Context, txn string, f finishing, want Verdict) error {
	proof, err := bring(ctx, c.log, nil, f.Resource, f.handle, want, false)
	if err != nil {
		return fmt.Errorf("%w: %s in transaction %s: %w", ErrUnfinished, f.Name, txn, err)
	}
	// A branch that was never announced nor committed is not in the ledger, and needs no proof there.
	if err := c.Resolve(ctx, txn, f.Name, proof); err != nil && !errors.Is(err, ErrNotFound) {
		c.log.WarnContext(ctx, "proof not reported; the transaction stays in doubt until it is run again", obs.Txn(txn), obs.Resource(f.Name), obs.Err(err))
	}
	if proof.Verdict != want {
		return fmt.Errorf("%w: %s in transaction %s: %s", ErrHeuristic, f.Name, txn, proof.Evidence)
	}
	return nil
}

// discard drops, after an abort, what was not prepared as far as is known. One that was prepared all
// the same is rolled back by its handle.
func (c *Client) discard(ctx context.Context, branches []TxnBranch, votes []Vote) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var errs []error
	for i, b := range branches {
		if votes[i].Kind == Yes {
			continue
		}
		err := b.Branch.Discard(ctx)
		if errors.Is(err, ErrPrepared) {
			var vote Vote
			if vote, err = b.Branch.Prepare(ctx); err == nil && vote.Kind == Yes {
				_, err = bring(ctx, c.log, nil, b.Resource, vote.Handle, RolledBack, false)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", ErrUnfinished, b.Name, err))
		}
	}
	return errors.Join(errs...)
}
