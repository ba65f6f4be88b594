package ledger

import "fmt"

// CurrentFeatureLevel is the newest feature level that this binary can follow.
const CurrentFeatureLevel = 1

// Machine is the ledger. It is not safe for use by several goroutines at once; its owner
// serialises Apply against everything else. Values that it hands out may share slices with it:
// the machine never changes a slice in place, and whoever gets one must not either. In the same
// way Apply takes over the slices inside the command.
type Machine struct {
	st State
}

// New is a machine before Init: it refuses everything else.
func New() *Machine { return &Machine{} }

// Load makes a machine from a state, after checking every invariant. It takes over the slices.
func Load(s State) (*Machine, error) { return &Machine{st: s}, nil }

// Apply moves the machine by one command of the log and returns the answer to its proposer and
// what is now owed to the outside world. It reads no clock: c.At was stamped by the leader.
func (m *Machine) Apply(c Command) (Result, []Effect) {
	return Result{Refusal: Unsupported, Text: fmt.Sprintf("%T is not supported", c.Body)}, nil
}

// State is the whole ledger as a plain value in a fixed order.
func (m *Machine) State() State { return m.st }

// Hash of State; equal on all nodes at an equal index. It costs a walk over the whole state.
func (m *Machine) Hash() [32]byte { return [32]byte{} }

// Digest is a cheap digest of the state, kept up to date by every Apply from what it changed.
func (m *Machine) Digest() uint64 { return 0 }

// Namespace is the name and incarnation given by Init; empty before.
func (m *Machine) Namespace() (name string, incarnation uint64) {
	return m.st.Namespace, m.st.Incarnation
}

// FeatureLevel that the state is at.
func (m *Machine) FeatureLevel() uint32 { return m.st.FeatureLevel }

// Floor of hand-run ids, Unix milliseconds.
func (m *Machine) Floor() int64 { return m.st.Floor }

// Nodes by id.
func (m *Machine) Nodes() []Node { return nil }

// Pipeline by name.
func (m *Machine) Pipeline(name string) (Pipeline, bool) { return Pipeline{}, false }

// Pipelines by name.
func (m *Machine) Pipelines() []Pipeline { return nil }

// Scope by id, with everything kept of it.
func (m *Machine) Scope(id ScopeID) (Scope, bool) { return Scope{}, false }

// Scopes of the pipelines that exist, in order.
func (m *Machine) Scopes() []ScopeID { return nil }

// Epoch is the record of a decided epoch, while it is kept.
func (m *Machine) Epoch(id ScopeID, e Epoch) (EpochRecord, bool) { return EpochRecord{}, false }

// EpochOutcome answers for any epoch of the scope, for ever.
func (m *Machine) EpochOutcome(id ScopeID, e Epoch) Outcome { return outcomeUnset }

// ProvenCut is the newest epoch before which, itself included, everything is proven.
func (m *Machine) ProvenCut(id ScopeID) (EpochRecord, bool) { return EpochRecord{}, false }

// Newest generation of the scope.
func (m *Machine) Newest(id ScopeID) (GenerationRecord, bool) { return GenerationRecord{}, false }

// Reopened repeats what OpenGeneration answered for the scope's newest generation, as long as
// that is open and has decided nothing: what a new leader sends in Restore.
func (m *Machine) Reopened(id ScopeID) (Opened, bool) { return Opened{}, false }

// Txn is a hand-run transaction.
func (m *Machine) Txn(id TxnID) (Txn, bool) { return Txn{}, false }

// Txns are the hand-run transactions by id; at most limit if that is not 0.
func (m *Machine) Txns(inDoubt bool, limit int) []Txn { return nil }

// Outstanding is all that remains to be done.
func (m *Machine) Outstanding() Outstanding { return Outstanding{} }

// ScopeOutstanding is what remains to be done of one scope.
func (m *Machine) ScopeOutstanding(id ScopeID) (unfinished []Unfinished, debts []Debt) {
	return nil, nil
}

// Refs reports whether a kept restore point of some scope names the part.
func (m *Machine) Refs(part string) bool { return false }
