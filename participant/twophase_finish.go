package participant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unisink/unisink/internal/fault"
)

// twoPhaseVersion of handles: the body is T.
const twoPhaseVersion = 1

func (r *TwoPhaseResource[T]) handle(name BranchName, key string, body []byte) Handle {
	return Handle{
		Kind: r.c.Kind, Version: twoPhaseVersion, Identity: r.c.Identity, Alias: name.Resource,
		Name: key, Text: fmt.Sprintf("%s in %s", name, r.c.Text), Body: body,
	}
}

// Commit implements Resource. It works without a journal too. ErrUndeterminable where T was written by a version of the
// program whose T has another shape, or the journal has no trace of the generation that prepared it: nothing is called.
func (r *TwoPhaseResource[T]) Commit(ctx context.Context, h Handle) (Proof, error) {
	return r.finish(ctx, h, entryCommitted)
}

// Rollback implements Resource. It works without a journal too. ErrUndeterminable as for Commit where T has another shape.
func (r *TwoPhaseResource[T]) Rollback(ctx context.Context, h Handle) (Proof, error) {
	return r.finish(ctx, h, entryRolledBack)
}

// finish brings a T to its end and notes it. The end that is noted first stands.
func (r *TwoPhaseResource[T]) finish(ctx context.Context, h Handle, want entryState) (Proof, error) {
	if err := r.mine(h); err != nil {
		return Proof{}, err
	}
	old, err := r.look(ctx, h)
	if err != nil {
		return Proof{}, err
	}
	if old != nil && old.State.ended() {
		return r.proof(old.State, "the journal says so, since "+time.UnixMilli(old.At).UTC().Format(time.RFC3339)), nil
	}
	t, err := r.read(h)
	if err != nil {
		return Proof{}, err
	}
	if old == nil && want == entryCommitted {
		if err := r.traced(ctx, h); err != nil {
			return Proof{}, err
		}
	}
	end, evidence, err := r.call(ctx, h, t, want)
	if err != nil {
		return Proof{}, err
	}
	if r.c.Journal == nil {
		return r.proof(end, evidence), nil
	}
	err = r.change(ctx, h.Name, func(old *entry) (*entry, error) {
		if old != nil && old.State.ended() {
			end = old.State
			return old, nil
		}
		e := &entry{State: end, At: time.Now().UnixMilli()}
		if old != nil {
			e.Name = old.Name
		}
		return e, nil
	})
	if err != nil {
		return Proof{}, fmt.Errorf("note that %s is %s: %w", h.Name, end, err)
	}
	return r.proof(end, evidence), nil
}

// call asks the service for the end that is wanted, and says which it came to.
func (r *TwoPhaseResource[T]) call(ctx context.Context, h Handle, t T, want entryState) (entryState, string, error) {
	if want == entryRolledBack {
		fault.Point("twophase/before-abort")
		if err := r.four.Abort(ctx, t); err != nil {
			return "", "", fmt.Errorf("abort %s in %s: %w", h.Name, r.c.Text, err)
		}
		fault.Point("twophase/after-abort")
		return entryRolledBack, "Abort succeeded", nil
	}
	fault.Point("twophase/before-commit")
	switch err := r.four.Commit(ctx, t); {
	case errors.Is(err, ErrLost):
		return entryRolledBack, "Commit says that it is gone: " + err.Error(), nil
	case err != nil:
		return "", "", fmt.Errorf("commit %s in %s: %w", h.Name, r.c.Text, err)
	}
	fault.Point("twophase/after-commit")
	return entryCommitted, "Commit succeeded", nil
}

func (r *TwoPhaseResource[T]) proof(end entryState, evidence string) Proof {
	p := Proof{Verdict: RolledBack, Evidence: r.c.Text + ": " + evidence, Asserted: true}
	if end == entryCommitted {
		p.Verdict = Committed
	}
	return p
}

// mine is an error if a handle is not this service's, or the resource is closed.
func (r *TwoPhaseResource[T]) mine(h Handle) error {
	if err := r.alive(); err != nil {
		return err
	}
	if h.Kind != r.c.Kind || h.Version != twoPhaseVersion || h.Identity != r.c.Identity {
		return fmt.Errorf("%w: %s version %d of %q, this is %s version %d of %q",
			ErrUnknownHandle, h.Kind, h.Version, h.Identity, r.c.Kind, twoPhaseVersion, r.c.Identity)
	}
	return nil
}

// look reads what the journal has of a handle; nil: nothing, or there is no journal.
func (r *TwoPhaseResource[T]) look(ctx context.Context, h Handle) (*entry, error) {
	if r.c.Journal == nil {
		return nil, nil
	}
	key := entryPrefix + h.Name
	found, err := r.c.Journal.Entries(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("look for %s in the journal of %s: %w", h.Name, r.c.Text, err)
	}
	return readEntry(h.Name, found[key])
}

// Inspect implements Resource. All it can tell is what the journal says.
func (r *TwoPhaseResource[T]) Inspect(ctx context.Context, h Handle) (State, error) {
	if err := r.mine(h); err != nil {
		return stateUnset, err
	}
	e, err := r.look(ctx, h)
	if err != nil || e == nil {
		return Unknown, err
	}
	switch e.State {
	case entryPreparing, entryPrepared:
		return Undecided, nil
	case entryCommitted:
		return StateCommitted, nil
	case entryRolledBack:
		return StateRolledBack, nil
	case entryBegun:
	}
	return Unknown, nil
}

// List implements Resource: what the journal has and has not ended, prepared or not.
func (r *TwoPhaseResource[T]) List(ctx context.Context, ns Namespace) ([]Listed, error) {
	if r.c.Journal == nil {
		return nil, fmt.Errorf("list what is prepared in %s: %w: there is no journal", r.c.Text, ErrMisconfigured)
	}
	if err := r.alive(); err != nil {
		return nil, err
	}
	found, err := r.entries(ctx)
	if err != nil {
		return nil, err
	}
	var out []Listed
	for key, e := range found {
		name, err := ParseBranchName(e.Name)
		if e.State.ended() || err != nil || name.Namespace != ns {
			continue
		}
		out = append(out, Listed{Handle: r.handle(name, key, e.Body), Name: name, Since: time.UnixMilli(e.At)})
	}
	return out, nil
}
