// Package eventlog remembers what happened on one node, for those who watch and for the log file.
// It is volatile: the truth is in the ledger, an event that is lost costs nothing but a line.
package eventlog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/obs"
)

// Kind says what happened.
type Kind uint8

const (
	kindUnset Kind = iota
	Leader
	MemberAttached
	MemberLost
	GenerationOpened
	GenerationStarted
	GenerationClosed
	Barrier
	Vote
	Decided
	Proven
	Halted
	Heuristic
	Transaction
	Swept
)

var kindNames = map[Kind]string{
	Leader: "leader", MemberAttached: "member attached", MemberLost: "member lost",
	GenerationOpened: "generation opened", GenerationStarted: "generation started", GenerationClosed: "generation closed",
	Barrier: "barrier ordered", Vote: "vote", Decided: "decided", Proven: "proven",
	Halted: "halted", Heuristic: "heuristic outcome", Transaction: "transaction decided", Swept: "debt paid",
}

func (k Kind) String() string { return kindNames[k] }

// level is where an event goes in the log: what a person must act on, what happens once in a
// lifetime or per decision, and the rest.
func (k Kind) level() slog.Level {
	switch k {
	case Halted, Heuristic:
		return slog.LevelError
	case Leader, MemberAttached, MemberLost, GenerationOpened, GenerationStarted, GenerationClosed, Decided:
		return slog.LevelInfo
	case kindUnset, Barrier, Vote, Proven, Transaction, Swept:
		return slog.LevelDebug
	}
	return slog.LevelDebug
}

// Event is one thing that happened.
type Event struct {
	Seq    uint64 // given by Add
	At     time.Time
	Kind   Kind
	Scope  ledger.ScopeID
	Epoch  ledger.Epoch
	Member string
	Text   string
	Term   uint64
	Index  uint64 // 0 for what is not in the replicated log
	// Again: it stood in this node's log when the node started, and is no news to anybody.
	Again bool
}

// Log keeps the newest events and hands them to watchers. All methods may be called at once.
type Log struct {
	log *slog.Logger

	mu      sync.Mutex // guards ring, next and changed; held for memory only
	ring    []Event
	next    uint64 // sequence number of the next event, from 1
	changed chan struct{}
}

// New makes a log that remembers size events.
func New(size int, log *slog.Logger) *Log {
	return &Log{log: log, ring: make([]Event, size), next: 1, changed: make(chan struct{})}
}

// Add remembers e and writes it to the log file; it never waits for a watcher.
func (l *Log) Add(e Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	l.mu.Lock()
	e.Seq = l.next
	l.ring[e.Seq%uint64(len(l.ring))] = e
	l.next++
	changed := l.changed
	l.changed = make(chan struct{})
	l.mu.Unlock()
	close(changed)
	l.write(e)
}

func (l *Log) write(e Event) {
	level := e.Kind.level()
	if e.Again {
		level = slog.LevelDebug
	}
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 6)
	if e.Scope.Pipeline != "" {
		attrs = append(attrs, obs.Scope(e.Scope.String()))
	}
	if !e.Epoch.IsZero() {
		attrs = append(attrs, obs.Epoch(uint64(e.Epoch.Generation), e.Epoch.N))
	}
	if e.Member != "" {
		attrs = append(attrs, obs.Member(e.Member))
	}
	if e.Term != 0 {
		attrs = append(attrs, obs.Term(e.Term))
	}
	if e.Index != 0 {
		attrs = append(attrs, obs.Index(e.Index))
	}
	if e.Text != "" {
		attrs = append(attrs, slog.String("text", e.Text))
	}
	//nolint:sloglint // the kinds are a closed list of constant messages
	l.log.LogAttrs(context.Background(), level, e.Kind.String(), attrs...)
}

// atOnce bounds what one call of After copies: a slow watcher holds that much memory, not the whole ring.
const atOnce = 128

// After returns the next of what is remembered behind seq, oldest first and a bounded number of
// them, and a channel that is closed when there is more.
func (l *Log) After(seq uint64) ([]Event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := max(seq+1, l.oldest())
	end := min(l.next, first+atOnce)
	var out []Event
	for s := first; s < end; s++ {
		out = append(out, l.ring[s%uint64(len(l.ring))])
	}
	if end < l.next {
		return out, closed
	}
	return out, l.changed
}

// closed says that there is more already.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (l *Log) oldest() uint64 {
	if n := uint64(len(l.ring)); l.next > n {
		return l.next - n
	}
	return 1
}
