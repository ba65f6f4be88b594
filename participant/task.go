package participant

import (
	"context"
	"errors"
	"time"
)

// Task is what a process does as a member of a scope, driven by Member.Run. Calls come one at a
// time. An error of a Task ends the generation (its class decides whether the scope halts).
//
// The life of a generation: Restore, Start, then any number of Barrier calls (members declared as
// sources only), and Halted when it is over; then Restore again, or the end of Run.
type Task interface {
	// Restore sets the task to a restore point. The resources have been opened for the generation,
	// older work committed or rolled back, before it is called; nothing of an earlier generation
	// may be written after it began. Buffered input is dropped (Z5).
	Restore(ctx context.Context, r Restore) error

	// Start lets the task run: every member of the scope is ready. It returns at once; work goes
	// on in the task's own goroutines, which end before Halted returns.
	Start(ctx context.Context, s Start) error

	// Barrier orders a source to end an epoch: inject the barrier behind the last record read, and
	// call Run.Vote for it with the position there. It returns at once. Barriers come in order,
	// without gaps, each once.
	Barrier(ctx context.Context, b Barrier) error

	// Halted says that the generation is over: stop reading and writing, drop what is not prepared.
	// When it returns, none of the task's goroutines uses the generation's Run any more.
	Halted(ctx context.Context, why string) error
}

// Restore is where a generation begins.
type Restore struct {
	Generation uint64
	// Namespace is the coordinator group's, from whose one counter the generation is.
	Namespace Namespace
	// Fresh: there is no restore point, start from nothing.
	Fresh bool
	// Epoch of the restore point.
	RestoreGeneration, RestoreN uint64
	// Positions and Parts are this member's own at the restore point.
	Positions []Position
	Parts     []StatePart
	// KeptParts are the ids that some kept restore point names; any other part of this member may be deleted.
	KeptParts []string
}

// Start carries the generation's settings and the Run to work with.
type Start struct {
	Generation    uint64
	EpochInterval time.Duration
	MaxPending    int
	// InlineLimit is the most inline state that one vote of this member may carry, bytes.
	InlineLimit int
	Run         Run
}

// Barrier ends epoch (Generation, N).
type Barrier struct {
	Generation uint64
	N          uint64
	// Final: the generation's last; the task goes on to nothing after it.
	Final bool
	// Drain: sources are at their end, and open windows fire.
	Drain bool
}

// Position says how far one split of a source has been read.
type Position struct {
	Resource    string
	Split       string
	Offset      int64 // next to read
	LeaderEpoch int32 // -1: unknown
	Opaque      []byte
}

// StatePart is one part of keyed state. With an empty Store the body is the state itself.
type StatePart struct {
	ID            string
	Operator      string
	KeyGroupFirst uint32
	KeyGroupLast  uint32
	Store         string
	Body          []byte
}

// Contribution is what a member adds to a vote: complete positions and parts, not differences.
type Contribution struct {
	Positions []Position
	Parts     []StatePart
	// Ready returns when all parts are durable. It is called once, beside the preparation of the branches, and
	// the vote leaves only after it; its error, or the end of the prepare time, makes the vote a no. It must
	// return soon after ctx ends. Nil: all parts are durable.
	Ready func(ctx context.Context) error
}

// Run is one generation of a member, as its task works with it. All methods may be called from
// several goroutines; after the generation is over they return an error that wraps ErrClosed.
type Run interface {
	// Branch gives the branch of a resource for the epoch that is being written, and begins it when
	// it is asked for the first time in the epoch. It waits while MaxPending epochs are open or not
	// proven: that is the back-pressure. The branch may be written until Vote is called.
	Branch(ctx context.Context, resource string) (Branch, error)

	// Vote ends the epoch that is being written: its branches are prepared, side by side and in the
	// background, and the vote is sent and repeated until it is answered. Branch then gives those of
	// the next epoch. A barrier that was voted for already is no error; one that skips an epoch, or
	// is of another generation, is. What is handed over belongs to the Run from then on.
	Vote(ctx context.Context, b Barrier, c Contribution) error

	// HasWork says that there is something to make an epoch of: a source moved, a window fired.
	HasWork()

	// Progress tells tools how far behind the source is (-1 unknown) and whether it has reached its end.
	Progress(lag int64, ended bool)

	// Fail ends the generation because of err; its class decides whether the scope halts
	// (ErrMisconfigured, ErrBug) or is restored (anything else). Only the first counts.
	Fail(err error)

	// Done is closed when the generation is over.
	Done() <-chan struct{}

	// Retired delivers ids of this member's state parts that may be deleted now.
	Retired() <-chan []string
}

// ErrClosed is returned by a Run whose generation is over.
var ErrClosed = errors.New("generation closed")
