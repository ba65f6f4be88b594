package processor

import (
	"context"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Source is what a pipeline needs from where its records come from. One goroutine uses it at a time.
type Source interface {
	// Describe tells what the source is.
	Describe(ctx context.Context) (participant.Description, error)

	// Open starts reading at the positions; a split without one starts at the source's configured
	// beginning. Everything fetched before is dropped (Z5). A position that the source no longer
	// has is an error (ErrMisconfigured), never a reset.
	Open(ctx context.Context, from []stream.Position) error

	// Poll waits for records and returns one batch, which is valid until the next Poll. Nil without
	// an error: nothing came for a while, ask again. io.EOF: every split has ended.
	Poll(ctx context.Context) (*stream.Batch, error)

	// Splits lists what is being read, known after Open; the pipeline holds watermarks per split.
	Splits() []stream.Split

	// Close ends reading and its goroutines.
	Close() error
}

// Sink is a resource whose branches are Writers.
type Sink interface {
	participant.Resource
}

// Writer is what Begin of a Sink returns.
type Writer interface {
	participant.Branch

	// Write adds records to the branch, in order, and may buffer. The records' slices are the
	// caller's again when it returns. A record that can't be written is an error that names it, or
	// makes Prepare answer No.
	Write(ctx context.Context, records []stream.Record) error
}
