package raftnode

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/internal/mutant"
)

// What a proposal, a barrier or a bootstrap can answer instead of a result.
var (
	// ErrNotLeader: nothing was proposed; the same call may safely go to another node.
	ErrNotLeader = errors.New("this node does not lead")
	// ErrUnknown: the command may have been, or may yet be, applied. Ask again with the same
	// request id; a command that was applied answers as it did then.
	ErrUnknown = errors.New("outcome unknown")
	// ErrOverloaded: nothing was proposed, since too much is in flight; try again later.
	ErrOverloaded = errors.New("too many proposals in flight")
	// ErrNotBootstrapped: nothing was proposed; the node belongs to no group yet.
	ErrNotBootstrapped = errors.New("this node belongs to no coordinator group yet; bootstrap the group once, on one node")
	// ErrTooLarge: nothing was proposed; one command may not exceed MaxCommandBytes.
	ErrTooLarge = errors.New("command too large")
	// ErrMembership: a change of the members was refused; the text says why and what to do.
	ErrMembership = errors.New("the members stay as they are")
	// ErrNoSuchNode: nothing was changed, since no member has the id.
	ErrNoSuchNode = errors.New("no such node")
	// ErrBootstrapped: bootstrap was refused, because the node already belongs to another group.
	ErrBootstrapped = errors.New("this node already belongs to a coordinator group")
)

// What Open can answer about the place it was given.
var (
	// ErrConfig: the settings are refused; the text names every mistake.
	ErrConfig = errors.New("configure the node")
	// ErrForeignDataDir: the data directory belongs to another node or another group.
	ErrForeignDataDir = errors.New("foreign data directory")
	// ErrDataDirEmptied: the data directory has lost its log or its snapshots. Run returns it as
	// well, when that happens while the node runs.
	ErrDataDirEmptied = errors.New("data directory has lost what it held")
	// ErrDataDirLocked: another process has the data directory open.
	ErrDataDirLocked = errors.New("data directory in use")
	// ErrDataDirUnusable: the data directory cannot be created, read or written.
	ErrDataDirUnusable = errors.New("data directory not usable")
	// ErrAddressInUse: another process listens on the raft address.
	ErrAddressInUse = errors.New("raft address in use")
	// ErrSnapshotUnreadable: the newest snapshot is damaged, or was written by a newer version.
	ErrSnapshotUnreadable = errors.New("snapshot not readable")
)

// Why a node stops itself; these reach Config.OnFatal and the error of Run.
var (
	// ErrStorage: a call to the log or stable store failed. What is on disk is not known any
	// more to this process; a restart reads it again.
	ErrStorage = errors.New("log store failed")
	// ErrDiskHung: a write did not return within Config.WriteWatchdog.
	ErrDiskHung = errors.New("log store hangs")
	// ErrRemoved: the node was removed from its group. It is no failure: Run returns it, and
	// OnFatal does not hear of it.
	ErrRemoved = errors.New("this node is no member any more")
	// ErrUndecodable: a committed entry or an installed snapshot cannot be understood in full.
	ErrUndecodable = errors.New("committed entry not understood by this version")
	// ErrStuckTransfer: a leadership transfer neither ended nor let the node write again.
	ErrStuckTransfer = errors.New("leadership transfer stuck")
)

// proposed maps what raft says about an entry to what a caller may conclude. It is the only
// place that does. Unknown is the answer to whatever is not known to mean "never in a log".
func proposed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader),
		errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress),
		mutant.On("raft/unknown-outcome"):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	default: // leadership lost, shutdown, storage, aborted by restore, and whatever comes new
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}
