package ledger

// Command is one entry of the log, or one of many in a shared entry.
type Command struct {
	// Request is unique per intended change; each object keeps the id that last changed it, so a
	// repeat of an applied command gets its answer. Refusals are not remembered (P20).
	Request string
	Actor   string
	// At is the leader's clock when it proposed, Unix milliseconds. The machine has no other clock.
	At   int64
	Body Body
}

// Body is one of the command types below.
type Body interface{ body() }

// Init names the group; the first command of every log, written by bootstrap.
type Init struct {
	Namespace   string
	Incarnation uint64
}

// PutNode records what tools and followers need to know of a coordinator node.
type PutNode struct {
	Node Node
}

// PutPipeline makes a pipeline (Revision 0) or changes the one whose revision it names.
type PutPipeline struct {
	// Pipeline.Revision is the revision that the change was made from; Desired of an existing pipeline is not changed.
	Pipeline Pipeline
}

// DeletePipeline is refused while a generation is open, a branch unresolved or a debt unpaid.
type DeletePipeline struct {
	Name     string
	Revision uint64
}

// SetDesired changes the desired state, before any final barrier is ordered (P22).
type SetDesired struct {
	Pipeline string
	// From is the state expected; it must still be so.
	From, To Desired
}

// OpenGeneration is refused unless From is the scope's newest generation (0: none yet) and closed.
type OpenGeneration struct {
	Scope   ScopeID
	From    Generation
	Members []MemberInstance
	Cause   string
	// Fingerprint of the specification the members run; must be the pipeline's.
	Fingerprint string
	// FromScratch starts from nothing although there is history.
	FromScratch bool
	// Identities of everything that the members write to or read from. Another one than the scope
	// knows is refused, see ResourceIdentity.
	Identities []ResourceIdentity
}

// CloseGeneration ends a generation: nothing of it is decided afterwards. With Halt it may also name
// a generation that is closed, or 0 in a scope that never had one.
type CloseGeneration struct {
	Scope      ScopeID
	Generation Generation
	Cause      string
	// Halt, when not empty, halts the scope with that reason in the same entry.
	Halt string
}

// Decide commits one epoch. Refused unless its generation is current and open, N is final+1,
// and Votes holds exactly one yes or read-only vote of every member of the generation.
type Decide struct {
	Scope ScopeID
	Epoch Epoch
	Votes []Vote
	Final bool
}

// Announce registers a hand-run transaction before its branches are prepared.
type Announce struct {
	Txn      TxnID
	Branches []HandBranch
	// Deadline in Unix milliseconds of the leader's clock.
	Deadline int64
}

// Commit decides a hand-run transaction.
type Commit struct {
	Txn      TxnID
	Branches []HandBranch
}

// PresumeAbort decides against a hand-run transaction that is unknown or undecided.
type PresumeAbort struct {
	Txn TxnID
	Why string
}

// Resolve records the proof of one branch. The first proof of a branch stands (P16).
type Resolve struct {
	Txn    TxnID
	Branch BranchID
	Proof  Proof
	// ProvenThrough, when not 0, resolves as committed every branch of Branch.Member of the
	// transaction's generation up to this n; Branch.Resource and Proof are then unused.
	ProvenThrough uint64
}

// Swept pays a sweep debt: the resource was listed, and what was dead in it finished, since the close.
type Swept struct {
	Scope      ScopeID
	Generation Generation
	Branch     BranchID
}

// Rewind sets the restore point of a closed or halted scope back to a kept one.
type Rewind struct {
	Scope ScopeID
	To    Epoch
	Why   string
}

// Resume ends a halt. The restore point named must be a kept one; zero keeps the scope's own.
type Resume struct {
	Scope ScopeID
	From  Epoch
	Why   string
}

// Force is an operator's act on a decided transaction, kept as evidence. With an empty Txn it
// writes off the debt named by Scope, Generation and Branch.
type Force struct {
	Txn        TxnID
	Branch     BranchID
	Action     ForceAction
	Why        string
	Scope      ScopeID
	Generation Generation
}

// Retire drops resolved history below the limits, lifts the floor of hand-run ids and returns the
// state parts that no restore point of any scope names any longer. Now is Command.At.
type Retire struct {
	// KeepFor is how long resolved history stays readable, milliseconds; of hand-run transactions
	// also how long their ids are answered.
	KeepFor int64
	// KeepEpochs, when not 0, is the most resolved epochs of one scope that stay readable for that
	// long, so that what a scope takes does not depend on how fast it goes. Its outcomes are
	// answered for ever all the same.
	KeepEpochs uint32
}

// Reshard changes the number of shards; only when all scopes are closed, proven and free of debts.
type Reshard struct {
	Pipeline string
	Revision uint64
	Shards   uint32
}

// RaiseFeatureLevel is refused unless every node recorded by PutNode can.
type RaiseFeatureLevel struct {
	Level uint32
}

// Pin keeps a restore point until it is unpinned.
type Pin struct {
	Scope ScopeID
	Epoch Epoch
	Unpin bool
}

// Note puts an act that is done outside of the log into the trail: a backup that was taken, a leader that
// was told to go.
type Note struct {
	Kind     string
	Pipeline string
	What     string
	Why      string
}

func (Init) body()              {}
func (PutNode) body()           {}
func (PutPipeline) body()       {}
func (DeletePipeline) body()    {}
func (SetDesired) body()        {}
func (OpenGeneration) body()    {}
func (CloseGeneration) body()   {}
func (Decide) body()            {}
func (Announce) body()          {}
func (Commit) body()            {}
func (PresumeAbort) body()      {}
func (Resolve) body()           {}
func (Swept) body()             {}
func (Rewind) body()            {}
func (Resume) body()            {}
func (Force) body()             {}
func (Retire) body()            {}
func (Reshard) body()           {}
func (RaiseFeatureLevel) body() {}
func (Pin) body()               {}
func (Note) body()              {}

// Refusal says why a command was not applied.
type Refusal uint8

const (
	refusalUnset Refusal = iota // applied
	// NotFound: the pipeline, scope, generation, transaction, branch or restore point is not known.
	NotFound
	// Stale: the state that the command names is not the one found (revision, From, N, desired state).
	Stale
	// FencedOff: an older generation, or another instance than the generation's.
	FencedOff
	// HaltedScope: the scope is halted; an operator must Resume it.
	HaltedScope
	// NotDesired: opening needs the desired state running.
	NotDesired
	// Backoff: opening is delayed after generations without a decision; Result.RetryAt says until when.
	Backoff
	// TooOld: the hand-run id is below the floor and has no record; no verdict is given.
	TooOld
	// TooNew: the hand-run id lies more than a minute ahead of the leader's clock.
	TooNew
	// Contradicts: the transaction is decided the other way, or the act contradicts the log.
	Contradicts
	// Busy: something is open, unresolved or owed that must end first.
	Busy
	// Invalid: the command breaks a rule on its face (names, missing votes, limits).
	Invalid
	// Unsupported: the feature level does not allow it, or a node cannot follow.
	Unsupported
)

// Result is the answer to one command. Refusal is 0 when it was applied, or repeated.
type Result struct {
	Refusal Refusal
	// Text of a refusal, one sentence for people.
	Text string
	// RetryAt, Unix milliseconds, with Backoff: by the clock that stamped the entry, which may be set or be another leader's
	// soon. RetryIn is how long that was from the entry on, ms.
	RetryAt, RetryIn int64

	Opened   *Opened   // OpenGeneration
	Final    uint64    // CloseGeneration, Decide: final(g) as of this entry
	Outcome  Outcome   // Decide, Commit, PresumeAbort, Announce of a known id
	Deadline int64     // Announce
	Pipeline *Pipeline // PutPipeline, SetDesired, Reshard
	Retired  []Retired // Retire
	// Filled by the log: where the command stands, and the time of its entry, Unix milliseconds.
	Index uint64
	At    int64
}

// OK reports whether the command was applied.
func (r Result) OK() bool { return r.Refusal == refusalUnset }

// Opened is all that Restore uses, as of the entry that opened the generation.
type Opened struct {
	Generation   Generation
	RestorePoint *RestorePoint // nil: there is no history
	// KeptParts: every state part that any kept restore point of any scope of the pipeline names.
	KeptParts []string
	// Unfinished: decided branches of this scope that nobody has proven, in commit order.
	Unfinished []Unfinished
	// Debts of this scope's closed generations.
	Debts []Debt
}

// Retired names a state part that may be deleted, and whose it was.
type Retired struct {
	Scope  ScopeID
	Member string
	Part   string
}

// EffectKind says what is owed to the outside world.
type EffectKind uint8

const (
	effectUnset EffectKind = iota
	// EffectDecided: an epoch was decided; its members hear Committed.
	EffectDecided
	// EffectClosed: a generation was closed with Final; its members hear Close.
	EffectClosed
	// EffectOpened: a generation was opened.
	EffectOpened
	// EffectResolved: every branch of the transaction is resolved.
	EffectResolved
	// EffectHalted: the scope was halted; Text says why.
	EffectHalted
	// EffectHeuristic: a resource broke its promise.
	EffectHeuristic
	// EffectTxn: a hand-run transaction was decided.
	EffectTxn
	// EffectPipeline: a pipeline was made, changed or deleted.
	EffectPipeline
)

// Effect is a hint about what a command changed: a shortcut for speed. The truth is in the
// machine's views; an effect that is lost costs time and nothing else.
type Effect struct {
	Kind     EffectKind
	Scope    ScopeID
	Epoch    Epoch // with N = final for EffectClosed
	Txn      TxnID
	Pipeline string
	Text     string
	Outcome  Outcome
}
