package round

import "github.com/unisink/unisink/coordinator/ledger"

// Order is one thing for the caller to do. Orders of one event are to be begun in the order given;
// none of them may be waited for before the next event is delivered. The slices in an order belong
// to the receiver.
type Order interface{ order() }

// SendBarrier asks sources to end epoch N. To holds the attached sources that are not known to have
// it (for a scope with one member: that member), in the order of Config.Members. Barriers for one
// source are ordered by rising N; a source injects each once.
type SendBarrier struct {
	N     uint64
	Final bool
	// Drain, with Final: sources stop at their end and the watermark goes to the end.
	Drain bool
	To    []string
}

// ProposeDecide asks to propose the decision. The answer comes back as Decided (the entry was
// applied), ProposalFailed, or Closed.
type ProposeDecide struct {
	Decide ledger.Decide
}

// SendCommitted tells members that N and every epoch before it is decided. A member may hear it
// more than once.
type SendCommitted struct {
	N     uint64
	Final bool
	To    []string
}

// ProposeClose asks to propose the close of the generation. The answer comes back as Closed or
// CloseFailed. Nothing is rolled back, and no member is told, before the entry is applied.
type ProposeClose struct {
	Cause string
	// Halt, when not empty, halts the scope in the same entry.
	Halt string
}

// VoteAgain asks a member to repeat the votes it holds, measured anew against a stamp of this term.
type VoteAgain struct {
	Member string
}

// AllProven says that the final epoch is decided and every member has proven everything: the
// generation may be closed cleanly. It is given once.
type AllProven struct {
	N uint64
}

func (SendBarrier) order()   {}
func (ProposeDecide) order() {}
func (SendCommitted) order() {}
func (ProposeClose) order()  {}
func (VoteAgain) order()     {}
func (AllProven) order()     {}
