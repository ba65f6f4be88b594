package participant

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
)

// TwoPhaseBranch is a branch over four functions.
type TwoPhaseBranch[T any] struct {
	r    *TwoPhaseResource[T]
	name BranchName

	begun *begun[T] // nil until the T is asked for; changed with r.mu held
	vote  Vote
}

// begun is a T and where the journal has it.
type begun[T any] struct {
	t   T
	key string
	at  time.Time // before Begin
}

// Transaction gives the branch's T, and begins it when it is asked for the first time: it is in the
// journal when it is returned. What was begun by a call that failed is aborted at once or, where it may be in the
// journal, at the next restore or sweep at the latest.
func (b *TwoPhaseBranch[T]) Transaction(ctx context.Context) (T, error) {
	var none T
	if !b.open() {
		return none, fmt.Errorf("write to %s: %w: the branch is over", b.name, ErrBug)
	}
	if b.begun != nil {
		return b.begun.t, nil
	}
	if _, err := b.r.noted(ctx, b.name); err != nil { // else the note below would make the journal anew
		return none, fmt.Errorf("begin %s in %s: %w", b.name, b.r.c.Text, err)
	}
	at := time.Now()
	t, err := b.r.four.Begin(ctx)
	if err != nil {
		return none, fmt.Errorf("begin %s in %s: %w", b.name, b.r.c.Text, err)
	}
	body, err := b.r.encode(b.name, t)
	if err != nil {
		return none, b.unnoted(ctx, t, err)
	}
	own := &begun[T]{t: t, key: uniqueKey(b.name), at: at}
	if !mutant.On("twophase/noted-before-written") {
		fault.Point("twophase/before-note")
		if err := b.r.put(ctx, own.key, entry{State: entryBegun, Name: b.name.String(), Body: body, At: at.UnixMilli()}); err != nil {
			return none, b.unnoted(ctx, t, fmt.Errorf("note %s in the journal: %w", b.name, err))
		}
		fault.Point("twophase/after-note")
	}
	b.r.mu.Lock()
	b.begun = own
	open := b.r.writing[b]
	b.r.mu.Unlock()
	if !open { // closed or opened anew in between
		return none, errors.Join(fmt.Errorf("write to %s: %w: the branch is over", b.name, ErrBug), b.drop(ctx))
	}
	return t, nil
}

// unnoted aborts a T that may not be in the journal, where nobody else would find it. The error is why it is not; what
// Abort says beside it is for people, and no class of its own.
func (b *TwoPhaseBranch[T]) unnoted(ctx context.Context, t T, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if err := b.r.four.Abort(ctx, t); err != nil {
		return fmt.Errorf("%w; nor could it be aborted: %v", why, err) //nolint:errorlint // its class is not that of the call
	}
	return why
}

// uniqueKey is the handle's name. Of two that are prepared for one epoch each has its own (P7).
func uniqueKey(name BranchName) string {
	var salt [6]byte
	_, _ = rand.Read(salt[:]) // never fails
	return name.String() + "#" + hex.EncodeToString(salt[:])
}

// open reports whether the branch may be written to.
func (b *TwoPhaseBranch[T]) open() bool {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	return b.r.writing[b]
}

// over takes the branch from those that are written to.
func (b *TwoPhaseBranch[T]) over() {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	delete(b.r.writing, b)
}

// Prepare implements Branch.
//
// The journal decides whether a branch that was taken for dead gets through: its entry says that it is being
// prepared before PreCommit, and that it is prepared after it. Whoever rolls back aborts T first and ends the
// entry then. So of the two one sees the other: either the rollback comes after PreCommit and ends
// it, or PreCommit comes after Abort and fails; and a branch whose entry has ended says no.
func (b *TwoPhaseBranch[T]) Prepare(ctx context.Context) (Vote, error) {
	if b.vote.Kind != voteUnset {
		return b.vote, nil
	}
	if !b.open() {
		return b.refuse(ctx, fmt.Errorf("prepare %s: %w: it was dropped before", b.name, ErrLost))
	}
	if b.begun == nil {
		b.vote = Vote{Kind: ReadOnly}
		b.over()
		return b.vote, nil
	}
	h, err := b.promise(ctx)
	switch {
	case err != nil && hopeless(err):
		return b.refuse(ctx, err)
	case err != nil:
		return Vote{}, err
	}
	b.vote = Vote{Kind: Yes, Handle: h}
	if hold := b.r.c.HoldsFor; hold > 0 {
		b.vote.Deadline = b.begun.at.Add(hold)
	}
	b.over()
	return b.vote, nil
}

// promise makes the branch durable in the service and in the journal.
func (b *TwoPhaseBranch[T]) promise(ctx context.Context) (Handle, error) {
	if _, err := b.step(ctx, entryPreparing); err != nil {
		return Handle{}, err
	}
	fault.Point("twophase/before-precommit")
	if err := b.r.four.PreCommit(ctx, b.begun.t); err != nil {
		return Handle{}, fmt.Errorf("pre-commit %s in %s: %w", b.name, b.r.c.Text, err)
	}
	fault.Point("twophase/after-precommit")
	h, err := b.step(ctx, entryPrepared)
	if err != nil {
		return Handle{}, err
	}
	fault.Point("twophase/after-prepared")
	// Last, so that no newer generation was open while it was not yet prepared.
	return h, b.r.fenced(ctx, b.name)
}

// step moves the branch's entry on, with T as it is now, and makes the handle of it. ErrLost: somebody
// has rolled the branch back.
func (b *TwoPhaseBranch[T]) step(ctx context.Context, to entryState) (Handle, error) {
	body, err := b.r.encode(b.name, b.begun.t)
	if err != nil {
		return Handle{}, err
	}
	h := b.r.handle(b.name, b.begun.key, body)
	if err := h.Check(); err != nil {
		return Handle{}, err
	}
	err = b.r.change(ctx, b.begun.key, func(old *entry) (*entry, error) {
		if (old == nil || old.State.ended()) && !mutant.On("twophase/rolled-back-says-no") {
			return nil, fmt.Errorf("prepare %s: %w: it was rolled back meanwhile", b.name, ErrLost)
		}
		return &entry{State: to, Name: b.name.String(), Body: body, At: b.begun.at.UnixMilli()}, nil
	})
	if errors.Is(err, ErrLost) { // or the journal was
		if _, gone := b.r.noted(ctx, b.name); gone != nil {
			err = gone
		}
	}
	if err != nil {
		return Handle{}, fmt.Errorf("note that %s is %s: %w", b.name, to, err)
	}
	return h, nil
}

// refuse votes no, and leaves nothing. What cannot be aborted now is in the journal, where the next
// restore or sweep finds it.
func (b *TwoPhaseBranch[T]) refuse(ctx context.Context, reason error) (Vote, error) {
	if err := b.drop(ctx); err != nil {
		if ctx.Err() != nil {
			return Vote{}, err
		}
		reason = errors.Join(reason, err)
	}
	b.vote = Vote{Kind: No, Reason: reason}
	return b.vote, nil
}

// Discard implements Branch.
func (b *TwoPhaseBranch[T]) Discard(ctx context.Context) error {
	switch b.vote.Kind {
	case Yes:
		return fmt.Errorf("discard %s: %w", b.name, ErrPrepared)
	case No, ReadOnly:
		return nil
	case voteUnset:
	}
	return b.drop(ctx)
}

// drop aborts what the branch has begun, if anything, and takes it from the journal.
func (b *TwoPhaseBranch[T]) drop(ctx context.Context) error {
	b.r.mu.Lock()
	delete(b.r.writing, b)
	own := b.begun
	b.r.mu.Unlock()
	if own == nil {
		return nil
	}
	if err := b.r.four.Abort(ctx, own.t); err != nil {
		return fmt.Errorf("abort %s in %s: %w", b.name, b.r.c.Text, err)
	}
	err := b.r.change(ctx, own.key, func(old *entry) (*entry, error) {
		if old != nil && old.State.ended() {
			return old, nil
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("take %s from the journal: %w", b.name, err)
	}
	return nil
}
