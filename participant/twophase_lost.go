package participant

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/unisink/unisink/internal/mutant"
)

// A journal that was deleted, emptied or set back is told by its fence, which Open writes and nothing takes away: who
// surely had it open has left one. Without it nobody knows any more what was begun and not decided.

// kept is an error if an older generation surely had the journal open, and it shows no trace of that. Nothing makes it
// anew then, before a person has allowed that.
func (r *TwoPhaseResource[T]) kept(ctx context.Context, o Opening) error {
	if o.Held == 0 || mutant.On("twophase/lost-journal-is-told") {
		return nil
	}
	have, err := r.everHeld(ctx, o.Namespace.Name, o.Scope, o.Member, o.Resource)
	if err == nil && have < o.Held {
		err = fmt.Errorf("%s: %w", r.lost(o.Held), ErrMisconfigured)
	}
	if err != nil {
		err = fmt.Errorf("open generation %d of %s in %s: %w", o.Generation, o.Scope, r.c.Text, err)
	}
	if errors.Is(err, ErrMisconfigured) {
		return fmt.Errorf("%w; generation %d noted in it what it began: put it back, or, if it is lost, or this resource was added while that generation ran, see in "+
			"the service what is left there and then start once with --allow-moved (AllowChangedResources), which makes a new one", err, o.Held)
	}
	return err
}

// lost says that the journal has no trace of a generation.
func (r *TwoPhaseResource[T]) lost(generation uint64) string {
	return fmt.Sprintf("%s has no trace of generation %d: it was deleted or set back since, or is another one", r.journal(), generation)
}

// noted reads the fence of a branch's holder. One that is older than the branch is ErrMisconfigured: then the journal is not
// the one that was opened for its generation.
func (r *TwoPhaseResource[T]) noted(ctx context.Context, name BranchName) (fence uint64, err error) {
	if name.Txn != "" {
		return 0, nil // by hand a branch's name does not tell the holder
	}
	have, err := r.fence(ctx, fenceKey(name.Namespace, name.Scope(), name.Member, name.Resource))
	switch {
	case err != nil:
		return 0, err
	case have < name.Generation && !mutant.On("twophase/lost-journal-is-told") && !mutant.On("twophase/fence"):
		return 0, fmt.Errorf("%s; put it back: %w", r.lost(name.Generation), ErrMisconfigured)
	}
	return have, nil
}

// fenced is ErrFenced once a newer generation than the branch's has been opened by its holder.
func (r *TwoPhaseResource[T]) fenced(ctx context.Context, name BranchName) error {
	have, err := r.noted(ctx, name)
	switch {
	case err != nil:
		return fmt.Errorf("prepare %s: %w", name, err)
	case name.Txn == "" && have > name.Generation && !mutant.On("twophase/fence"):
		return fmt.Errorf("prepare %s: %w by generation %d", name, ErrFenced, have)
	}
	return nil
}

// traced is an error if a handle that the journal does not know was prepared in a generation of which it has no trace. A
// journal that does have one knew the handle, and has forgotten how it ended; T is asked for again then.
func (r *TwoPhaseResource[T]) traced(ctx context.Context, h Handle) error {
	if r.c.Journal == nil {
		return nil
	}
	branch, _, _ := strings.Cut(h.Name, "#")
	name, err := ParseBranchName(branch)
	if err != nil {
		return fmt.Errorf("commit %s: its name is none of this resource's: %w: %w", h.Name, ErrBug, err)
	}
	if name.Txn != "" || mutant.On("twophase/lost-journal-is-told") || mutant.On("twophase/fence") {
		return nil // by hand a branch's name does not tell the holder
	}
	have, err := r.everHeld(ctx, name.Namespace.Name, name.Scope(), name.Member, name.Resource)
	if err == nil && have < name.Generation {
		err = fmt.Errorf("%s; put it back: %w", r.lost(name.Generation), ErrUndeterminable)
	}
	if err != nil {
		return fmt.Errorf("commit %s, nothing was called: %w", h.Name, err)
	}
	return nil
}

// everOpened is an error if nobody has ever opened the journal. An empty one is no proof that nothing was begun.
func (r *TwoPhaseResource[T]) everOpened(ctx context.Context) error {
	found, err := r.c.Journal.Entries(ctx, fencePrefix)
	if err == nil && len(found) == 0 && !mutant.On("twophase/lost-journal-is-told") {
		err = fmt.Errorf("%s is empty, and nobody has opened it for anything: it is not the one in which things were begun; put that back: %w", r.journal(), ErrMisconfigured)
	}
	return err
}

// everHeld is the highest fence of a holder, under whatever incarnation of the namespace: restoring a backup of the ledger
// makes a new one, and the journal stays what it is. 0: there is none.
func (r *TwoPhaseResource[T]) everHeld(ctx context.Context, namespace, scope, member, resource string) (highest uint64, err error) {
	found, err := r.c.Journal.Entries(ctx, fencePrefix)
	if err != nil {
		return 0, fmt.Errorf("read the fences: %w", err)
	}
	for key, data := range found {
		text, _, _ := strings.Cut(strings.TrimPrefix(key, fencePrefix), "/")
		ns, err := ParseNamespace(text)
		if err != nil || ns.Name != namespace || key != fenceKey(ns, scope, member, resource) {
			continue // another holder's
		}
		have, err := readFence(data)
		if err != nil {
			return 0, err
		}
		highest = max(highest, have)
	}
	return highest, nil
}

// fence reads one holder's; 0: there is none.
func (r *TwoPhaseResource[T]) fence(ctx context.Context, key string) (uint64, error) {
	found, err := r.c.Journal.Entries(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("read the fence: %w", err)
	}
	return readFence(found[key])
}
