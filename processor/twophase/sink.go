package twophase

import (
	"context"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

// Sink is four functions, and what writes to them.
type Sink[T any] interface {
	participant.TwoPhase[T]

	// Write adds records under t, in order. They are the caller's again when it returns. After an error the
	// epoch is aborted and written again under another T, so Write need not bear repeats.
	Write(ctx context.Context, t T, records []stream.Record) error
}

// New makes a pipeline's sink of four functions. An epoch in which nothing is written calls none of them.
// Errors are those of [participant.NewTwoPhase].
func New[T any](s Sink[T], c participant.TwoPhaseConfig[T]) (processor.Sink, error) {
	r, err := participant.NewTwoPhase[T](s, c)
	if err != nil {
		return nil, err
	}
	return &resource[T]{r, s}, nil
}

type resource[T any] struct {
	*participant.TwoPhaseResource[T]
	sink Sink[T]
}

// Begin implements participant.Resource; the branch is a processor.Writer.
func (r *resource[T]) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	b, err := r.TwoPhaseResource.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	return &writer[T]{b, r.sink}, nil
}

type writer[T any] struct {
	participant.Branch
	sink Sink[T]
}

var _ processor.Writer = (*writer[string])(nil)

// Write implements processor.Writer.
func (w *writer[T]) Write(ctx context.Context, records []stream.Record) error {
	if len(records) == 0 {
		return nil
	}
	t, err := participant.TransactionOf[T](ctx, w.Branch)
	if err != nil {
		return err
	}
	return w.sink.Write(ctx, t, records)
}
