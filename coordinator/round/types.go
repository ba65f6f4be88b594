package round

import (
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// Time is nanoseconds on this leader's monotonic clock. It means nothing to another leader.
type Time int64

// Add returns t later by d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns how much later t is than u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Member is one member of the generation.
type Member struct {
	Name     string
	Instance string
	Source   bool
	// ProvenThrough as of the log; what the member says when it attaches may be newer.
	ProvenThrough uint64
}

// Config is what a machine starts from: the generation as of the log, read after this leader's own
// barrier entry, and the settings of its pipeline.
type Config struct {
	Scope      ledger.ScopeID
	Generation ledger.Generation
	Members    []Member
	Final      uint64 // last decided n of the generation; 0: none
	// FinalDecided: Final was the generation's last epoch.
	FinalDecided   bool
	Interval       time.Duration // least time between two barriers
	PrepareTimeout time.Duration // longest wait for one vote
	CommitBudget   time.Duration // what a branch must outlive its decision's proposal by
	MaxPending     int           // epochs open or not proven by every member; at least 1
	// Solo: the one member times its own barriers; a vote opens its epoch.
	Solo bool
	// Term of this leader, as its stamps carry it.
	Term uint64
}

// VoteKind says what a member answers for an epoch.
type VoteKind uint8

const (
	voteKindUnset VoteKind = iota
	// Yes: prepared, and staying so until an applied decision or an applied close.
	Yes
	// ReadOnly: nothing was written; positions and state count all the same.
	ReadOnly
	// No: the epoch cannot be prepared.
	No
	// Lost: undecided work of the member is gone. Not a vote but a demand to close, which may lose
	// to a decision.
	Lost
)

func (k VoteKind) String() string {
	switch k {
	case Yes:
		return "yes"
	case ReadOnly:
		return "readonly"
	case No:
		return "no"
	case Lost:
		return "lost"
	case voteKindUnset:
	}
	return "unset"
}

// Stamp is an instant of one leader, as a member heard it. The zero value is none.
type Stamp struct {
	Term  uint64
	Clock Time
}

// TimeLeft says how long a resource still keeps its branch.
type TimeLeft struct {
	Resource string
	Left     time.Duration
}

// Vote is a member's answer for one epoch.
type Vote struct {
	N    uint64
	Kind VoteKind
	// Ledger is what the log keeps of a yes or read-only vote; its Member and Instance are those of
	// the voter. The machine keeps its slices and never changes them.
	Ledger ledger.Vote
	// Final: the voter saw the epoch's barrier as the generation's last.
	Final bool
	// TimeLeft of every branch that its resource will not keep for ever, measured after Stamp was heard.
	TimeLeft []TimeLeft
	Stamp    Stamp
	// Reason of No and Lost, for people.
	Reason string
	// Halt, with No or Lost: a restart would not help, an operator must act.
	Halt bool
}

// Standing is what a member knows when it attaches, all of it about this generation.
type Standing struct {
	NewestBarrier uint64
	NewestFinal   bool // the newest barrier was final
	NewestOutcome uint64
	ProvenThrough uint64
	// Votes that have left the process and whose outcome the member does not know.
	Votes []Vote
}

// OpenRound is an epoch that is ordered and not decided, for people.
type OpenRound struct {
	N         uint64
	Final     bool
	OrderedAt Time // taken over from an older leader: when this leader heard of it
	// Missing members, whose vote is not counted yet.
	Missing []string
	// Deadline is when the generation is closed for the missing votes.
	Deadline Time
	// Proposed, and not answered yet. Doubtful: an earlier proposal may still be applied.
	Proposed, Doubtful bool
}
