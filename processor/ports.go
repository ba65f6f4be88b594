package processor

import (
	"context"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Source is what a pipeline needs from where its records come from. One goroutine uses it at a time.
//
// It may also have Knows(split string) error, which says without asking anybody that a split cannot be read as
// the source is configured: then a change that leaves out what was read is refused before it is declared. See
// [Pipeline.GoesOn].
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

// Drainer is what a Source may be as well.
type Drainer interface {
	// Drained returns the position with a note that the pipeline was drained there: every window has
	// fired, and what comes behind it may be late. A source that is opened at such positions says so in
	// all that follow; verify asks for it.
	Drained(p stream.Position) stream.Position
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

// Sharer is what a Sink may be as well: one whose branches take the records of other sinks too. What one epoch writes to
// one database is then one branch, though it has several sinks there: two of them could wait for each other's locks, once
// the first is prepared for ever. Each sink stays a resource of its own, with its name; one whose records go into
// another's branch has none itself, and ends what was prepared under its name before.
type Sharer interface {
	Sink

	// Shares reports whether other's records go into this sink's branches. It is asked about each sink that comes
	// after this one, before the pipeline is declared and at each restore, and the answer stays the same as long as
	// both are what they are. An error says that they cannot be used side by side as they are set up
	// (ErrMisconfigured), or that it is not known.
	Shares(ctx context.Context, other participant.Resource) (bool, error)
}

// SharedWriter is what Begin of a Sharer returns.
type SharedWriter interface {
	Writer

	// WriteFor is Write of records of another sink, which this one's Shares.
	WriteFor(ctx context.Context, other participant.Resource, records []stream.Record) error
}

// Aggregate folds the records of one key in one window into an accumulator A. Its methods are called
// from one goroutine. Package aggregate has the usual ones.
//
// It may also have Check(acc *A, rec *T) error, which says what Add would and changes nothing: where A has
// pointers, sliding windows are slower without. And it may have Validate() error, which names what is wrong
// with its settings before anything runs.
type Aggregate[T, A any] interface {
	// Name tells this aggregate and its encoding from all others. It is a part of the pipeline's
	// fingerprint: state written under another name is refused.
	Name() string
	// Init makes acc the accumulator of no records.
	Init(acc *A)
	// Add folds a record in. After an error acc is as it was before; what of rec is kept must be copied.
	Add(acc *A, rec *T) error
	// Merge folds other, of the same key, into acc, and leaves other as it is: what acc keeps of it is a
	// copy. After an error acc is as it was before.
	Merge(acc, other *A) error
	// Encode appends acc to dst for a snapshot.
	Encode(dst []byte, acc *A) []byte
	// Decode reads what Encode appended. What is kept of src must be copied.
	Decode(src []byte, acc *A) error
}
