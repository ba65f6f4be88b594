package participant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// TwoPhase is a sink in four functions over a value T that names one transaction of it: all that
// somebody must write whose service can reserve, confirm and cancel. [NewTwoPhase] makes a Resource of
// it and does the rest: it keeps a journal of what was begun, fences, tells which calls may be
// repeated, answers for what another process left, and lets a resolver finish.
//
// It may also have Close() error, which the resource's Close calls last.
//
// Every function may be called from several goroutines and processes at once, each time for its own T, and
// again for one T after an error, a time-out or a crash: then it does what is still to be done. An
// error that wraps [ErrMisconfigured], [ErrBug], [ErrLost] or [ErrFenced] is final before the vote;
// any other means that it is not known what happened, and the call is made again.
type TwoPhase[T any] interface {
	// Begin draws a new T, different from every other. T is in the journal before anything is written under it;
	// what Begin itself does outside is not, and stays behind when the process dies right then. So it best
	// draws a name and touches nothing.
	Begin(ctx context.Context) (T, error)

	// PreCommit makes durable what was written under t and promises that a later Commit succeeds, also
	// from another process. Where t is a pointer it may note in it what Commit will need.
	PreCommit(ctx context.Context, t T) error

	// Commit makes it visible. Nil means that it is visible, by this call or by an earlier one: that is
	// the proof. ErrLost means that the service itself says that t is gone and will never be visible.
	Commit(ctx context.Context, t T) error

	// Abort drops it, prepared or not, also where the service has never heard of t. After it no
	// PreCommit or write of t succeeds: one that was on its way while its process was taken for dead
	// would else stay behind.
	Abort(ctx context.Context, t T) error
}

// TwoPhaseConfig says what a TwoPhase works on.
type TwoPhaseConfig[T any] struct {
	// Kind of its handles, one word: "shop". A resolver finds by it whom to ask.
	Kind string
	// Identity is what the service is, independent of its address: an account, a tenant. Handles carry it, and
	// a finisher that reaches another one leaves them alone.
	Identity string
	// Text for people; default "KIND IDENTITY".
	Text string
	// Journal keeps what was begun; see the interface. Only who opens and writes needs it. Nil: what is decided
	// can be finished by handle, nothing can be listed, and Open refuses. It is this service's alone: Open and
	// List refuse one that another Kind or Identity has opened.
	Journal Journal
	// HoldsFor is how long after Begin the service keeps what is reserved if it drops it by itself; it
	// should be minutes at least. 0: for ever.
	HoldsFor time.Duration
	// Encode and Decode write and read T; default JSON. Encoded it should stay below 8 KiB: it travels in
	// the vote, and another version of the program may have to read it. Decode refuses what it does not
	// understand as a whole, a field too many or one that is missing, since Commit and Abort are called with what it
	// returns; the default does. To change T, add fields with omitempty whose absence means what it meant before, or
	// let the old version finish first.
	Encode func(t T) ([]byte, error)
	Decode func(data []byte) (T, error)
}

// TwoPhaseResource is a [Resource] over four functions. Its proofs are asserted: the success of a call.
type TwoPhaseResource[T any] struct {
	four TwoPhase[T]
	c    TwoPhaseConfig[T]

	mu      sync.Mutex // guards the rest; held for memory only
	opened  *Opening
	closed  bool
	writing map[*TwoPhaseBranch[T]]bool
}

// NewTwoPhase makes a resource of four functions. An error wraps ErrMisconfigured and names every mistake.
func NewTwoPhase[T any](four TwoPhase[T], c TwoPhaseConfig[T]) (*TwoPhaseResource[T], error) {
	var bad []error
	if four == nil {
		bad = append(bad, errors.New("there are no four functions"))
	}
	if c.Kind == "" {
		bad = append(bad, errors.New("set Kind, one word for what it is, such as shop"))
	}
	if c.Identity == "" {
		bad = append(bad, errors.New("set Identity, which tells this service from others of its kind whatever its address"))
	}
	if (c.Encode == nil) != (c.Decode == nil) {
		bad = append(bad, errors.New("set Encode and Decode, or neither"))
	}
	if c.HoldsFor < 0 {
		bad = append(bad, errors.New("HoldsFor is negative"))
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fmt.Errorf("four functions as a resource: %w: %w", ErrMisconfigured, err)
	}
	if c.Text == "" {
		c.Text = c.Kind + " " + c.Identity
	}
	if c.Encode == nil {
		c.Encode = func(t T) ([]byte, error) { return json.Marshal(t) }
		c.Decode = decodeWhole[T]
	}
	return &TwoPhaseResource[T]{four: four, c: c, writing: map[*TwoPhaseBranch[T]]bool{}}, nil
}

// Describe implements Resource.
func (r *TwoPhaseResource[T]) Describe(context.Context) (Description, error) {
	return Description{
		Kind: r.c.Kind, Identity: r.c.Identity, Text: r.c.Text,
		CanList: r.c.Journal != nil, Bounded: r.c.HoldsFor > 0, Asserted: true,
	}, nil
}

// Open implements Resource. The fence is in the journal; an older process that passed it by a hair is kept
// out by Abort, which it finds done to its T. ErrMisconfigured, and no new journal, where an older generation surely
// had it open and it shows no trace of that.
func (r *TwoPhaseResource[T]) Open(ctx context.Context, o Opening) error {
	if r.c.Journal == nil {
		return fmt.Errorf("open %s: %w: without a journal it can only finish what others have prepared", r.c.Text, ErrMisconfigured)
	}
	if err := r.alive(); err != nil {
		return err
	}
	if err := r.kept(ctx, o); err != nil {
		return err
	}
	if err := r.own(ctx); err != nil {
		return err
	}
	if err := r.raise(ctx, o); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opened == nil || r.opened.Generation != o.Generation {
		clear(r.writing)
	}
	r.opened = &o
	return nil
}

// Begin implements Resource. Nothing is called outside before the branch is asked for its T.
func (r *TwoPhaseResource[T]) Begin(ctx context.Context, name BranchName) (Branch, error) {
	r.mu.Lock()
	var first []*TwoPhaseBranch[T]
	switch {
	case r.closed:
		r.mu.Unlock()
		return nil, r.alive()
	case r.opened == nil || name.Txn == "" && r.opened.Generation != name.Generation:
		r.mu.Unlock()
		return nil, fmt.Errorf("begin %s: %w: its generation is not the opened one", name, ErrBug)
	}
	for b := range r.writing {
		if b.name == name {
			first = append(first, b)
		}
	}
	r.mu.Unlock()
	// A repeat, the first answer having been lost, takes the place of the first.
	for _, b := range first {
		if err := b.drop(ctx); err != nil {
			return nil, fmt.Errorf("begin %s again: %w", name, err)
		}
	}
	b := &TwoPhaseBranch[T]{r: r, name: name}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing[b] = true
	return b, nil
}

// Close implements Resource. What was begun and not prepared is aborted; what cannot be within a few
// seconds is told, and left to the next listing.
func (r *TwoPhaseResource[T]) Close() error {
	r.mu.Lock()
	var open []*TwoPhaseBranch[T]
	for b := range r.writing {
		open = append(open, b)
	}
	r.closed = true
	clear(r.writing)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var errs []error
	for _, b := range open {
		errs = append(errs, b.drop(ctx))
	}
	if own, ok := r.four.(io.Closer); ok {
		errs = append(errs, own.Close())
	}
	return errors.Join(errs...)
}

// closeLimit bounds what Close waits for the service.
const closeLimit = 5 * time.Second

// alive is an error once the resource is closed.
func (r *TwoPhaseResource[T]) alive() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("%s: %w: the resource is closed", r.c.Text, ErrBug)
	}
	return nil
}

// TransactionOf gives the T that a branch of four functions writes under, and begins it when it is asked for
// the first time. A branch of which nobody asks has nothing to prepare and votes read-only.
func TransactionOf[T any](ctx context.Context, b Branch) (T, error) {
	own, ok := b.(interface {
		Transaction(ctx context.Context) (T, error)
	})
	if !ok {
		var none T
		return none, fmt.Errorf("%w: the branch %T is not one of four functions over %T", ErrBug, b, none)
	}
	return own.Transaction(ctx)
}
