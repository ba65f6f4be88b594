package teller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// pair is one transaction with its two branches, which are written and not prepared.
type pair struct {
	txn    string
	shares []participant.TxnBranch
}

// transfer moves an amount between an account and the files, in either direction. An error is the
// end of this life; what the coordinator or a disk answers is not.
func (w *worker) transfer(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	txn, err := participant.NewTxnID()
	if err != nil {
		return err
	}
	if w.rng.IntN(3) == 0 {
		within := time.Duration(1+w.rng.IntN(20)) * time.Second
		_, err := w.call(house.OpBegin, txn, within, func() (participant.Outcome, error) {
			_, err := w.cl.Begin(limit, txn, []string{house.Accounts, house.Files}, within)
			return participant.OutcomePending, err
		})
		if err != nil {
			return err
		}
	}
	p, err := w.write(limit, txn)
	if err != nil && limit.Err() != nil {
		return nil // it was in too much of a hurry, and nothing is prepared
	}
	if err != nil {
		return fmt.Errorf("write transfer %s: %w", txn, err)
	}
	// Said before it is so: what is committed in one place must then be committed in both.
	e := check.Event{Kind: check.Prepared, Store: house.Files, Branch: check.Branch{Txn: txn, Resource: house.Files}}
	if _, err := w.house.Note(e); err != nil {
		return err
	}
	if w.rng.IntN(2) == 0 {
		return w.byKit(ctx, limit, p)
	}
	return w.byHand(limit, p)
}

// write begins the two branches and writes what each gets.
func (w *worker) write(ctx context.Context, txn string) (pair, error) {
	cents := int64(1 + w.rng.IntN(10_000))
	if w.rng.IntN(2) == 0 {
		cents = -cents
	}
	account := fmt.Sprintf("a%d", w.rng.IntN(accountsNum))
	name := func(alias string) participant.BranchName {
		return participant.BranchName{Namespace: w.ns, Txn: txn, Resource: alias}
	}
	here, err := w.house.Begin(ctx, name(house.Accounts))
	if err != nil {
		return pair{}, err
	}
	here.(*house.Branch).Write(house.Entry{Account: account, Cents: -cents}.String())
	there, err := w.files.Begin(ctx, name(house.Files))
	if err != nil {
		return pair{}, err
	}
	line, err := json.Marshal(house.Entry{Account: "files", Cents: cents})
	if err != nil {
		return pair{}, err
	}
	if err := there.(*file.Branch).Write(ctx, []stream.Record{{Value: line}}); err != nil {
		return pair{}, err
	}
	return pair{txn: txn, shares: []participant.TxnBranch{
		{Name: house.Accounts, Resource: w.house, Branch: here}, {Name: house.Files, Resource: w.files, Branch: there},
	}}, nil
}

// byKit lets the SDK run it. Unknown: ask again, by the same call, as the SDK says one may; or leave
// it to somebody else.
func (w *worker) byKit(ctx, limit context.Context, p pair) error {
	answer, err := w.call(house.OpRun, p.txn, 0, func() (participant.Outcome, error) { return w.cl.RunTxn(limit, p.txn, p.shares) })
	for range again {
		if err != nil || answer != check.AnswerUnknown || ctx.Err() != nil || w.rng.IntN(3) == 0 {
			return err
		}
		answer, err = w.call(house.OpRun, p.txn, 0, func() (participant.Outcome, error) {
			more, cancel := context.WithTimeout(ctx, shortest)
			defer cancel()
			return w.cl.RunTxn(more, p.txn, p.shares)
		})
	}
	return err
}

// byHand makes each step itself: prepare both, one call for the decision, and then what was decided.
// What cannot be finished now is left to the sweepers.
func (w *worker) byHand(ctx context.Context, p pair) error {
	var hand []participant.HandBranch
	for _, s := range p.shares {
		vote, err := s.Branch.Prepare(ctx)
		if err != nil || vote.Kind != participant.Yes {
			_, err := w.call(house.OpAbort, p.txn, 0, func() (participant.Outcome, error) {
				return w.cl.Abort(ctx, p.txn, "a branch could not be prepared")
			})
			return err
		}
		hand = append(hand, participant.HandBranch{Resource: s.Name, Handle: vote.Handle})
	}
	answer, err := w.call(house.OpCommit, p.txn, 0, func() (participant.Outcome, error) { return w.cl.Commit(ctx, p.txn, hand) })
	if err != nil || (answer != check.AnswerCommitted && answer != check.AnswerAborted) {
		return err
	}
	for i, s := range p.shares {
		finish := s.Resource.Commit
		if answer == check.AnswerAborted {
			finish = s.Resource.Rollback
		}
		proof, err := finish(ctx, hand[i].Handle)
		if err != nil {
			return nil //nolint:nilerr // decided, and for a sweeper to finish
		}
		if err := w.cl.Resolve(ctx, p.txn, s.Name, proof); err != nil {
			return nil //nolint:nilerr // proven, and for a sweeper to report
		}
	}
	return nil
}
