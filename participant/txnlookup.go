package participant

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// knownTxn is what the ledger has recorded of a transaction run by hand.
type knownTxn struct {
	outcome  Outcome // outcomeUnset: nothing is recorded
	branches []HandBranch
}

// listed is the handle by which a committed transaction changes a resource.
func (k knownTxn) listed(resource string) (Handle, bool) {
	if k.outcome != OutcomeCommitted {
		return Handle{}, false
	}
	for _, b := range k.branches {
		if b.Resource == resource {
			return b.Handle, true
		}
	}
	return Handle{}, false
}

// names reports whether a committed transaction lists what a resource has prepared, and under
// which name. What is prepared and not listed in the decision is dead (P7).
func (k knownTxn) names(h Handle) (HandBranch, bool) {
	for _, b := range k.branches {
		if k.outcome == OutcomeCommitted && b.Handle.Same(h) {
			return b, true
		}
	}
	return HandBranch{}, false
}

// lookup reads what is recorded of a transaction, and changes nothing: unlike Outcome it does not
// abort what nobody knows. That it is decided is final; that nothing is recorded may have changed
// when the answer comes. ErrTooOld and ErrRefused: it can't be committed any more, or not now.
func (c *Client) lookup(ctx context.Context, txn string) (knownTxn, error) {
	resp, err := c.Transactions().GetTransaction(ctx, &unisinkv1.GetTransactionRequest{Txn: txn})
	if err = unknownIfCut(ctx, err); errors.Is(err, ErrNotFound) {
		return knownTxn{}, nil
	}
	if err != nil {
		return knownTxn{}, fmt.Errorf("look transaction %s up: %w", txn, err)
	}
	return readTxn(resp.GetTransaction()), nil
}

func readTxn(t *unisinkv1.Transaction) knownTxn {
	known := knownTxn{outcome: outcomeFromWire(t.GetOutcome())}
	for _, b := range t.GetBranches() {
		known.branches = append(known.branches, HandBranch{Resource: b.GetResource(), Handle: handleFromWire(b.GetHandle())})
	}
	return known
}

// checkTxn refuses what no coordinator would take, before anything is prepared.
func checkTxn(txn string, branches []TxnBranch) error {
	var errs []error
	if id, err := uuid.Parse(txn); err != nil || id.Version() != 7 || id.String() != txn {
		errs = append(errs, fmt.Errorf("%w: %q is no id of a transaction run by hand; NewTxnID makes one (a UUIDv7 in lower case)", ErrRefused, txn))
	}
	seen := map[string]bool{}
	for i, b := range branches {
		if err := checkName("resource", b.Name); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrRefused, err))
		}
		if seen[b.Name] {
			errs = append(errs, fmt.Errorf("%w: resource %q has two branches in transaction %s; write to one", ErrRefused, b.Name, txn))
		}
		if b.Resource == nil || b.Branch == nil {
			errs = append(errs, fmt.Errorf("%w: branch %d of transaction %s has no resource or was not begun", ErrRefused, i+1, txn))
		}
		seen[b.Name] = true
	}
	return errors.Join(errs...)
}
