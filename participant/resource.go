package participant

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/unisink/unisink/internal/branchname"
)

// Resource is the adapter contract: what a participant changes under one name. Two of a kind have
// two names. Every method may be called from several goroutines at once unless it says otherwise.
// A time-out or a cancelled context means unknown, never failed: the caller tries again.
type Resource interface {
	// Describe tells what the resource is. It is called before Open and answers without the network
	// where it can; an error says why the resource can't be reached or is set up wrongly.
	Describe(ctx context.Context) (Description, error)

	// Open fences older generations of the same scope and member inside the resource, and makes it
	// ready to begin branches of this one. On return no process of an older generation can get
	// anything committed that was not already prepared. Opening a newer generation of an open
	// resource drops every branch that was not prepared; a branch that was prepared is left as it is.
	// ErrFenced: a newer generation has been opened by somebody.
	Open(ctx context.Context, o Opening) error

	// Begin starts a branch. Nothing of it is visible to readers before Commit. The name's generation
	// is the opened one; names of one generation come in ascending order. It is called again with the
	// same name when it failed or its answer was lost: the branch answered last is the one that is
	// written to, and an earlier one leaves nothing that is ever prepared or outlives its generation.
	Begin(ctx context.Context, name BranchName) (Branch, error)

	// Commit makes a prepared branch visible and returns the proof, read from the resource. It may be
	// called any number of times, from any process, also after a crash half-way and beside another
	// finisher. An answer that is not certain is looked up, never assumed. A branch that is proven
	// rolled back is no error: the proof says so, and the caller makes a heuristic outcome of it.
	Commit(ctx context.Context, h Handle) (Proof, error)

	// Rollback drops a prepared branch, with the same freedom as Commit. Rolling back what was never
	// prepared succeeds. A branch that is proven committed is no error: the proof says so.
	Rollback(ctx context.Context, h Handle) (Proof, error)

	// Inspect looks without changing anything: it lists first and looks for the marker second, in a
	// later transaction, since two finishers may be at work (P16).
	Inspect(ctx context.Context, h Handle) (State, error)

	// List names what is prepared and not finished under a namespace, by whoever prepared it. What
	// cannot be parsed is not listed. It proves nothing about what may still come.
	List(ctx context.Context, ns Namespace) ([]Listed, error)

	// Close ends the resource's goroutines and connections and publishes nothing (S2): branches that
	// are prepared stay prepared, others are dropped.
	Close() error
}

// Finisher is the part of a Resource that ends what is prepared, by whomever: all that a resolver
// needs. It works without Open, and every Resource is one.
type Finisher interface {
	// Describe as in Resource.
	Describe(ctx context.Context) (Description, error)
	// Commit as in Resource.
	Commit(ctx context.Context, h Handle) (Proof, error)
	// Rollback as in Resource.
	Rollback(ctx context.Context, h Handle) (Proof, error)
	// Inspect as in Resource.
	Inspect(ctx context.Context, h Handle) (State, error)
	// List as in Resource.
	List(ctx context.Context, ns Namespace) ([]Listed, error)
	// Close as in Resource.
	Close() error
}

// Branch is one resource's share of one transaction while it is being written. The adapter's own
// type has the methods that write to it. One goroutine uses a branch at a time.
type Branch interface {
	// Prepare makes the branch durable and promises that a later Commit succeeds, also from a new
	// process. The vote is Yes with the branch's handle, ReadOnly, or No with the reason; it tries
	// again by itself what may pass, until ctx ends. Called again after Yes it returns the same
	// handle. Branches prepare in parallel; one branch does not.
	Prepare(ctx context.Context) (Vote, error)

	// Discard drops a branch that was not prepared. After Prepare returned Yes it does nothing and
	// reports ErrPrepared: then only Commit and Rollback, by handle, may end it.
	Discard(ctx context.Context) error
}

// Description is what a resource says of itself.
type Description struct {
	Kind string
	// Identity is what the resource is, independent of its address: a Kafka cluster id, a directory's id file.
	Identity string
	// Text for people: "topic totals at localhost:9092".
	Text string
	// CanList: List finds everything that is prepared. What cannot list must be announced first.
	CanList bool
	// Bounded: the resource drops prepared work by itself after some time; votes carry a deadline.
	Bounded bool
	// Asserted: proofs are the success of a call, not something read back.
	Asserted bool
}

// Opening is what a resource is opened for.
type Opening struct {
	Namespace  Namespace
	Scope      string // "pipeline/shard"
	Member     string
	Resource   string // alias: the resource's name in its pipeline
	Generation uint64
	// MaxPending is the number of branches that may be open or prepared at once.
	MaxPending int
	// EpochInterval is how often branches are prepared, for sizing buffers.
	EpochInterval time.Duration
	// Held is the newest older generation in which this holder surely had the resource open, and after which nobody has
	// swept yet; 0: none is known. A resource that keeps notes of its own and finds none of that generation has lost them.
	Held uint64
}

// Namespace names a coordinator group in the resources that it shares with others. The incarnation
// grows when a backup is restored.
type Namespace struct {
	Name        string
	Incarnation uint64
}

// String is "name" for the first incarnation and "name~2" for later ones.
func (n Namespace) String() string { return branchname.Namespace(n.Name, n.Incarnation) }

// BranchName names a branch for ever: by namespace, scope, member, resource and epoch. Its parts
// hold no '.', so that it can be parsed and is never matched by prefix (L9).
type BranchName struct {
	Namespace  Namespace
	Pipeline   string
	Shard      uint32
	Member     string
	Resource   string
	Generation uint64
	N          uint64
	// Txn is set for transactions run by hand; pipeline, shard, member, generation and N are then zero.
	Txn string
}

// String is "ns.pipeline.shard.member.resource.generation.n", or "ns.txn.resource" by hand.
func (b BranchName) String() string {
	return branchname.Name{
		Namespace: b.Namespace.Name, Incarnation: b.Namespace.Incarnation, Pipeline: b.Pipeline, Shard: b.Shard, Member: b.Member,
		Resource: b.Resource, Generation: b.Generation, N: b.N, Txn: b.Txn,
	}.String()
}

// Scope is "pipeline/shard".
func (b BranchName) Scope() string { return b.Pipeline + "/" + strconv.FormatUint(uint64(b.Shard), 10) }

// ParseBranchName reads what String writes.
func ParseBranchName(s string) (BranchName, error) {
	n, err := branchname.Parse(s)
	if err != nil {
		return BranchName{}, err
	}
	return BranchName{
		Namespace: Namespace{Name: n.Namespace, Incarnation: n.Incarnation}, Pipeline: n.Pipeline, Shard: n.Shard, Member: n.Member,
		Resource: n.Resource, Generation: n.Generation, N: n.N, Txn: n.Txn,
	}, nil
}

// ParseNamespace reads "name" or "name~2".
func ParseNamespace(s string) (Namespace, error) {
	name, incarnation, err := branchname.ParseNamespace(s)
	if err != nil {
		return Namespace{}, err
	}
	return Namespace{Name: name, Incarnation: incarnation}, nil
}

// MaxHandle is the largest encoded handle, bytes.
const MaxHandle = 16 << 10

// Handle is the durable name of a prepared branch, complete enough for another process to finish
// it; it holds no secret. Two handles with equal Kind, Identity and Name mean the same prepared thing.
type Handle struct {
	Kind string
	// Version of the body's format; a finisher leaves handles of a newer version alone.
	Version  uint32
	Identity string
	// Alias is the resource's name in its pipeline.
	Alias string
	// Name is unique inside the resource: a Kafka (transactional id, producer id, epoch), a staging directory.
	Name string
	// Text for people.
	Text string
	Body []byte
}

// Same reports whether both handles mean the same prepared thing.
func (h Handle) Same(o Handle) bool {
	return h.Kind == o.Kind && h.Identity == o.Identity && h.Name == o.Name
}

// VoteKind is what a branch says at the end of Prepare.
type VoteKind uint8

const (
	voteUnset VoteKind = iota
	// Yes: durable, and staying so until Commit or Rollback.
	Yes
	// ReadOnly: nothing was written; there is nothing to commit.
	ReadOnly
	// No: the branch can't be prepared and holds nothing any more, or nothing that outlives its generation.
	No
)

// Vote is the answer of Branch.Prepare.
type Vote struct {
	Kind   VoteKind
	Handle Handle // with Yes
	// Deadline, with Yes: when the resource drops the branch by itself, on this process's monotonic
	// clock; zero if never.
	Deadline time.Time
	// Reason, with No: wraps one of the error classes where one fits.
	Reason error
}

// Verdict is what a proof shows.
type Verdict uint8

const (
	verdictUnset Verdict = iota
	Committed
	RolledBack
)

// Proof is what was read from the resource and shows a branch committed or rolled back.
type Proof struct {
	Verdict Verdict
	// Evidence for people: what was seen, where.
	Evidence string
	// Asserted: nothing was read; a call succeeded.
	Asserted bool
}

// State of a prepared branch as Inspect finds it.
type State uint8

const (
	stateUnset State = iota
	// Undecided: prepared, neither committed nor rolled back.
	Undecided
	StateCommitted
	StateRolledBack
	// Unknown: the resource has no trace that proves anything.
	Unknown
)

// Listed is something prepared and not finished, as List finds it.
type Listed struct {
	// Handle is good enough for Rollback; whether it may be committed is said by the ledger alone,
	// and then by the handle in the decision.
	Handle Handle
	// Name says whose it is. N is 0 where the resource's names do not carry it. Then the names of handles that end in "|" and a
	// number promise an order: of those with the same text before it, each was begun after the ones with lower numbers
	// were over. By that it is judged, and by Since where no decision that is kept has one in the same line.
	Name BranchName
	// Since is when it was prepared or begun; zero when unknown.
	Since time.Time
}

// Error classes. Adapters wrap them with what happened and where; everything else counts as Retry.
var (
	// ErrRetry: it may pass; ErrRetry is implied by any error without a class.
	ErrRetry = errors.New("temporary")
	// ErrFenced is final for this generation: a newer one owns the resource.
	ErrFenced = errors.New("fenced")
	// ErrLost: undecided work is gone; only before a commit was sent, or proven.
	ErrLost = errors.New("prepared work lost")
	// ErrMisconfigured: a person must change a setting; trying again changes nothing.
	ErrMisconfigured = errors.New("misconfigured")
	// ErrUndeterminable, of Commit and Rollback: the resource has answered, and what it has left neither shows how the
	// branch ended nor lets it end as asked, now or later. It is never an answer to what may pass: a server that is away,
	// that was set back and may be set right, or that is another one than meant. No verdict follows from it: the scope is
	// halted, and a person looks.
	ErrUndeterminable = errors.New("undeterminable")
	// ErrBug: a rule was broken by this program or its caller.
	ErrBug = errors.New("bug")
	// ErrPrepared: the branch is prepared; it ends by its handle.
	ErrPrepared = errors.New("already prepared")
	// ErrUnknownHandle: the handle's kind, version or identity is not this resource's: waiting for another finisher.
	ErrUnknownHandle = errors.New("handle of another resource or a newer version")
)

// RetryAfter wraps an error that should be tried again no sooner than After.
type RetryAfter struct {
	After time.Duration
	Err   error
}

func (r *RetryAfter) Error() string { return r.Err.Error() }

// Unwrap gives the cause; a RetryAfter is always ErrRetry too.
func (r *RetryAfter) Unwrap() []error { return []error{ErrRetry, r.Err} }
