package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind of an event.
type Kind uint8

// What can be in a history. The fields that an event of a kind has stand behind it.
const (
	kindUnset   Kind = iota
	Note             // Text: for people, judged by nobody
	Fault            // Text; Fault: its kind; InRound: it struck inside an open round
	Healed           // every fault is over, and no other comes
	Quiet            // nothing runs any more; what is left now stays
	Opened           // a resource was opened: Store, Scope, Member, Resource, Epoch.Generation
	Begun            // a branch was begun, maybe not for the first time: Store, Branch
	Prepared         // Store, Branch, Handle, Records
	Committed        // Store, Branch, Handle, Records
	RolledBack       // Store, Branch, Handle
	Held             // found prepared and not finished at the end: Store, Handle
	Barrier          // a member was told: Scope, Member, Epoch
	Voted            // a member voted: Scope, Member, Epoch, Offset; Op "drain": all its windows have fired
	Started          // a member was started: Scope, Member, Epoch.Generation, Offset it began at; Records: parts of its state
	Decided          // a node applied it: Who (node), Scope, Epoch, Index
	Closed           // a node applied it: Who (node), Scope, Epoch, Index
	Heuristic        // a resource broke its promise: Text
	Leads            // Who (node) says that it leads Term
	State            // Who (node) at Index: Hash of its state
	Entry            // Who (node) has on disk at Index, Term: Hash of the bytes
	Invoke           // a call by hand: Who, Call, Op, Branch.Txn
	Return           // its answer: Call, Op, Branch.Txn, Answer
	Rewound          // Scope was set back to Epoch
	Record           // the ledger's record at the end: Scope, Epoch, Decision
	Minority         // Text; one node of the group is down from now on, and nothing else is wrong
	MinorityEnd      // it is back
	Said             // Text that was logged, exported or answered by anything
)

// Epoch is one numbered checkpoint.
type Epoch struct {
	Generation uint64 `json:"generation"`
	N          uint64 `json:"n"`
}

func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Generation, e.N) }

// Compare orders epochs.
func (e Epoch) Compare(o Epoch) int {
	return cmp.Or(cmp.Compare(e.Generation, o.Generation), cmp.Compare(e.N, o.N))
}

// Branch names one resource's share of a transaction: of an epoch, or of Txn run by hand.
type Branch struct {
	Scope    string `json:"scope,omitempty"`
	Member   string `json:"member,omitempty"`
	Resource string `json:"resource,omitempty"`
	Epoch    Epoch  `json:"epoch,omitzero"`
	Txn      string `json:"txn,omitempty"`
}

// Transaction is what the branch is a share of.
func (b Branch) Transaction() string {
	if b.Txn != "" {
		return b.Txn
	}
	return b.Scope + "@" + b.Epoch.String()
}

func (b Branch) String() string { return b.Transaction() + " " + b.Member + "/" + b.Resource }

// Decision is the ledger's record of a decided epoch.
type Decision struct {
	// Offsets are how far each member had come, member -> next offset, where they are kept.
	Offsets map[string]int64
	// Handles are what was decided to be committed, and Proven those that are proven so.
	Handles, Proven []string
}

// Answer of a call by hand.
type Answer uint8

// The answers. Unknown ends at infinity: the call may have had its effect, or have it later.
const (
	answerUnset Answer = iota
	AnswerUnknown
	AnswerCommitted
	AnswerAborted
	AnswerRefused // nothing was done
	AnswerDone    // of a call that decides nothing
)

func (a Answer) String() string {
	return [...]string{"nothing", "unknown", "committed", "aborted", "refused", "done"}[a]
}

// Event is one line of a history. Which fields count depends on its kind.
type Event struct {
	At       time.Duration `json:"at"` // since the run began
	Who      string        `json:"who"`
	Kind     Kind          `json:"kind"`
	Text     string        `json:"text,omitempty"`
	Fault    string        `json:"fault,omitempty"`
	InRound  bool          `json:"in_round,omitempty"`
	Store    string        `json:"store,omitempty"`
	Branch   Branch        `json:"branch,omitzero"`
	Handle   string        `json:"handle,omitempty"`
	Records  []string      `json:"records,omitempty"`
	AtEnd    bool          `json:"at_end,omitempty"` // found at the end: when it became so is not known
	Offset   int64         `json:"offset,omitempty"`
	Index    uint64        `json:"index,omitempty"`
	Term     uint64        `json:"term,omitempty"`
	Hash     string        `json:"hash,omitempty"`
	Call     uint64        `json:"call,omitempty"`
	Op       string        `json:"op,omitempty"`
	Answer   Answer        `json:"answer,omitempty"`
	Limit    time.Duration `json:"limit,omitempty"` // of a begin: how long it may stay undecided
	Decision Decision      `json:"decision,omitzero"`
}

// History collects events, in the order in which they happened. Safe for concurrent use.
type History struct {
	mu     sync.Mutex // guards events; held for memory only
	events []Event
	now    func() time.Duration
}

// NewHistory makes an empty one; now tells the time since the run began.
func NewHistory(now func() time.Duration) *History { return &History{now: now} }

// Add stamps an event and appends it.
func (h *History) Add(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = h.now()
	h.events = append(h.events, e)
}

// Events are those so far.
func (h *History) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// String is the line that a person reads.
func (e Event) String() string {
	return fmt.Sprintf("%11.6fs  %-10s %s", e.At.Seconds(), e.Who, e.what())
}

func (e Event) what() string {
	switch e.Kind {
	case Fault:
		text := "! " + e.Text
		if e.InRound {
			text += " (inside an open round)"
		}
		return text
	case Healed:
		return "! everything is healed " + e.Text
	case Quiet:
		return "! everything has stopped " + e.Text
	case Opened:
		return fmt.Sprintf("%s: opened for generation %d of %s by %s", e.Store, e.Branch.Epoch.Generation, e.Branch.Scope, e.Branch.Member)
	case Begun:
		return fmt.Sprintf("%s: begun %s", e.Store, e.Branch)
	case Prepared:
		return fmt.Sprintf("%s: prepared %s, %d records %s", e.Store, e.Branch, len(e.Records), span(e.Records))
	case Committed:
		return fmt.Sprintf("%s: committed %s, %d records %s", e.Store, e.Branch, len(e.Records), span(e.Records))
	case RolledBack:
		return fmt.Sprintf("%s: rolled back %s", e.Store, e.Branch)
	case Held:
		return fmt.Sprintf("%s: left behind: %s", e.Store, e.Handle)
	case Barrier, Voted, Started:
		return e.ofMember()
	case Decided:
		return fmt.Sprintf("applied %d: decided %s of %s", e.Index, e.Branch.Epoch, e.Branch.Scope)
	case Closed:
		return fmt.Sprintf("applied %d: closed generation %d of %s at n = %d: %s", e.Index, e.Branch.Epoch.Generation, e.Branch.Scope, e.Branch.Epoch.N, e.Text)
	case Leads:
		return fmt.Sprintf("leads term %d", e.Term)
	case State:
		return fmt.Sprintf("state at %d is %.8s", e.Index, e.Hash)
	case Entry:
		return fmt.Sprintf("disk: entry %d of term %d is %.8s", e.Index, e.Term, e.Hash)
	case Invoke:
		return fmt.Sprintf("call %d: %s %s", e.Call, e.Op, e.Branch.Txn)
	case Return:
		return fmt.Sprintf("call %d: %s %s: %s %s", e.Call, e.Op, e.Branch.Txn, e.Answer, e.Text)
	case Rewound:
		return fmt.Sprintf("%s is set back to %s", e.Branch.Scope, e.Branch.Epoch)
	case Record:
		return fmt.Sprintf("record: %s of %s, %d handles, %d proven", e.Branch.Epoch, e.Branch.Scope, len(e.Decision.Handles), len(e.Decision.Proven))
	case Heuristic:
		return "HEURISTIC " + e.Branch.String() + " " + e.Text
	case Minority:
		return "! only a minority is down from here on: " + e.Text
	case MinorityEnd:
		return "! the minority is back"
	case Note, Said, kindUnset:
	}
	return e.Text
}

// ofMember is what a member was told or did.
func (e Event) ofMember() string {
	if e.Kind == Barrier {
		return fmt.Sprintf("barrier %s of %s %s", e.Branch.Epoch, e.Branch.Scope, e.Text)
	}
	text := fmt.Sprintf("votes for %s of %s at %d", e.Branch.Epoch, e.Branch.Scope, e.Offset)
	if e.Kind == Started {
		text = fmt.Sprintf("starts generation %d of %s at %d", e.Branch.Epoch.Generation, e.Branch.Scope, e.Offset)
	}
	if e.Op != "" {
		text += " (" + e.Op + ")"
	}
	if len(e.Records) > 0 {
		text += ", state " + span(e.Records)
	}
	return text
}

// span shows the first and the last of records.
func span(records []string) string {
	switch len(records) {
	case 0:
		return ""
	case 1:
		return records[0]
	}
	return records[0] + " … " + records[len(records)-1]
}

// ofIt says how many records of an epoch were found, and which.
func ofIt(records []string) string {
	if len(records) == 0 {
		return "nothing of it"
	}
	return fmt.Sprintf("%d records of it: %s", len(records), span(records))
}

// Trace is the history for people, one line per event, in order of time. What nobody reads unless
// a replica differs (states, entries, text) is left out unless all is set.
func Trace(events []Event, all bool) string {
	var b strings.Builder
	for _, e := range events {
		if !all && (e.Kind == State || e.Kind == Entry || e.Kind == Said || e.Kind == Record) {
			continue
		}
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Finding is one broken rule.
type Finding struct {
	Rule string // C1 … C14
	Text string
}

func (f Finding) String() string { return f.Rule + ": " + f.Text }

// findings collects those of one rule.
type findings struct {
	rule string
	all  []Finding
}

func (f *findings) add(format string, args ...any) {
	f.all = append(f.all, Finding{f.rule, fmt.Sprintf(format, args...)})
}
