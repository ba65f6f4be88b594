package ledger

// The plain values of the ledger's state, as commands carry them, snapshots keep them and tools
// see them. They own their slices: whoever gets one may keep it and must not change it.

// Desired is what a pipeline is wanted to do.
type Desired uint8

const (
	desiredUnset Desired = iota
	Running
	Stopping
	Draining
	Stopped
)

// Outcome of a transaction.
type Outcome uint8

const (
	outcomeUnset Outcome = iota
	Pending
	Committed
	Aborted
)

// Verdict is what a proof shows.
type Verdict uint8

const (
	verdictUnset Verdict = iota
	ProvenCommitted
	ProvenRolledBack
)

// ForceAction is what an operator does to a branch or debt.
type ForceAction uint8

const (
	forceUnset ForceAction = iota
	// AcceptLoss: the branch's effect is lost and that is accepted.
	AcceptLoss
	// WriteOff: the resource is gone, its debt with it.
	WriteOff
)

// Proof is what was read from the resource and shows a branch committed or rolled back.
type Proof struct {
	Verdict  Verdict
	Evidence string
	Asserted bool
}

// Handle is the durable name of a prepared branch (see unisink.v1.Handle).
type Handle struct {
	Kind     string
	Version  uint32
	Identity string
	Alias    string
	Name     string
	Text     string
	Body     []byte
}

// Node is a coordinator node as clients and operators know it.
type Node struct {
	ID            string
	RaftAddress   string
	ClientAddress string
	FeatureLevel  uint32
	Version       string
}

// Settings of a pipeline; zero values are filled with defaults by PutPipeline.
type Settings struct {
	EpochInterval  int64  // ms between barriers; default 1000
	PrepareTimeout int64  // ms, longest wait for one vote; default 30000
	MaxPending     uint32 // epochs open or unproven; default 2
	Lease          int64  // ms a member may be silent; default 3000
	RestorePoints  uint32 // kept complete; default 3
	CommitBudget   int64  // ms; default 10000
}

// ResourceSpec declares a resource of a member.
type ResourceSpec struct {
	Name string
	Kind string
}

// MemberSpec declares a member.
type MemberSpec struct {
	Name      string
	Source    bool
	Resources []ResourceSpec
}

// Pipeline is a named dataflow.
type Pipeline struct {
	Name        string
	Settings    Settings
	Members     []MemberSpec
	Fingerprint string
	Shards      uint32
	KeyGroups   uint32
	Desired     Desired
	Revision    uint64
	Description string
	LastRequest string
}

// MemberInstance is a member of one generation.
type MemberInstance struct {
	Member   string
	Instance string
}

// ResourceIdentity says what a member's resource or input is, independent of its address. In the
// scope it is what the newest generation was opened with; an empty one is not known, and not checked.
type ResourceIdentity struct {
	ID       BranchID
	Identity string
	// AllowChanged, in OpenGeneration alone: another identity than the one kept is accepted, once
	// everything that was decided in the old resource is proven.
	AllowChanged bool
}

// Position says how far one split of a source has been read.
type Position struct {
	Resource    string
	Split       string
	Offset      int64
	LeaderEpoch int32
	Opaque      []byte
}

// StatePart is one part of a member's keyed state.
type StatePart struct {
	ID            string
	Operator      string
	KeyGroupFirst uint32
	KeyGroupLast  uint32
	Store         string
	Body          []byte
}

// Prepared is one resource's share of a vote.
type Prepared struct {
	Resource string
	Handle   Handle
}

// Vote is a yes (Branches not empty) or read-only vote as the log keeps it.
type Vote struct {
	Member        string
	Instance      string
	Branches      []Prepared
	Positions     []Position
	Parts         []StatePart
	ProvenThrough uint64
}

// GenerationRecord is a generation that is open, or closed and not yet free of debts.
type GenerationRecord struct {
	Generation Generation
	Members    []MemberInstance
	Open       bool
	Final      uint64
	OpenedAt   int64
	ClosedAt   int64
	Cause      string
	// Debts unpaid; empty while open.
	Debts []BranchID
}

// Branch is a branch of a decided epoch or of a hand-run transaction.
type Branch struct {
	ID     BranchID
	Handle Handle
	// Proof.Verdict is 0 while unresolved.
	Proof Proof
	// Forced is an operator's act with its reason.
	Forced string
}

// EpochRecord is a decided epoch.
type EpochRecord struct {
	Epoch     Epoch
	Final     bool
	Votes     []Vote // positions and parts; Branches are nil here, see below
	Branches  []Branch
	DecidedAt int64
	ProvenAt  int64 // 0: not everything is resolved
}

// Kept reports a restore point: the epoch is kept complete, and Rewind can go back to it.
func (e EpochRecord) Kept() bool { return len(e.Votes) > 0 }

// RestorePoint is a decided epoch kept complete.
type RestorePoint struct {
	Epoch  Epoch
	Votes  []Vote
	Pinned bool
}

// Scope is the state of one scope.
type Scope struct {
	ID          ScopeID
	Generations []GenerationRecord // ascending; the last is the newest
	// Epochs decided and kept: unresolved ones, restore points, and recent history.
	Epochs []EpochRecord
	// RestorePoint is where the next generation starts; zero: no history.
	RestorePoint Epoch
	Pinned       []Epoch
	Halted       string
	// Barren counts generations in a row that decided nothing or ended at once; OpenAfter delays the
	// next, Unix ms.
	Barren      uint32
	OpenAfter   int64
	LastRequest string
	// Identities of the members' resources and inputs, by id.
	Identities []ResourceIdentity
	// Resumed is the newest generation when the scope was last resumed. What is said to have been
	// decided in it or before, and is not here, was weighed then.
	Resumed Generation
	// Rewinds are those that have put decided epochs aside, oldest first; the last MaxRewinds are known.
	Rewinds []Rewound
}

// Rewound is one rewind, or a start from scratch: the epochs after To up to Newest were decided by then. What
// came next went on from To, so what is decided in a newer generation than that of Newest builds on To.
type Rewound struct {
	To     Epoch // zero: from scratch
	Newest Epoch
}

// Txn is a hand-run transaction.
type Txn struct {
	ID        TxnID
	Outcome   Outcome
	Branches  []Branch
	BegunAt   int64
	DecidedAt int64
	Deadline  int64
	Heuristic string
	Why       string
}

// Unfinished is a decided branch that nobody has proven yet.
type Unfinished struct {
	Txn    TxnID
	Scope  ScopeID // zero for hand-run transactions
	Epoch  Epoch
	Branch BranchID
	Handle Handle
	// Outcome decided: Committed, or Aborted for hand-run branches to roll back.
	Outcome Outcome
	Since   int64
}

// Debt is what a closed generation may have left in one resource.
type Debt struct {
	Scope      ScopeID
	Generation Generation
	Branch     BranchID
	Since      int64
}

// State is the whole ledger as a plain value, in a fixed order: what snapshots keep.
type State struct {
	Namespace      string
	Incarnation    uint64
	FeatureLevel   uint32
	LastGeneration Generation
	// Floor: hand-run ids with a smaller time and no record are too old, Unix ms.
	Floor int64
	// Forgotten, Unix ms, is 0 unless the state was restored from a backup: hand-run ids with a smaller
	// time and no record are too old as well, since what the backup did not know may have been committed.
	Forgotten int64
	Nodes     []Node
	Pipelines []Pipeline
	Scopes    []Scope
	Txns      []Txn
	// Acts of operators, oldest first; the last MaxActs, from feature level 2 on.
	Acts []Act
}

// Outstanding is what still has to be done, read from the state alone.
type Outstanding struct {
	Unfinished []Unfinished
	Debts      []Debt
	// Undecided hand-run transactions that were announced, with their deadlines.
	Announced []Txn
}

// Doubt is how much still has to be done, with the time, Unix milliseconds, of the oldest; 0 when there is none.
type Doubt struct {
	Unfinished      int // decided branches that nobody has proven
	UnfinishedSince int64
	Debts           int
	DebtsSince      int64
	Announced       int // undecided hand-run transactions
}

// HandBranch is a branch as a client names it: without handle in Announce, with it in Commit.
type HandBranch struct {
	Resource string
	Handle   Handle
}
