package round

import (
	"fmt"
	"time"
)

const (
	// retryAfter is the pause before a failed proposal is made again.
	retryAfter = 100 * time.Millisecond
	// maxAhead bounds how far past the last decision a member may claim to have seen a barrier; rule
	// followers stay within MaxPending, which may have been larger when the generation was opened.
	maxAhead = 1024
)

// Machine runs the epochs of one generation. It is not safe for concurrent use. Every event returns
// the orders it leads to; the slice is valid until the next event.
type Machine struct {
	c       Config
	members []member // as in Config.Members
	// open are the epochs decided+1 to newest, without gaps.
	open  []*epoch
	spare []*epoch // to be used again

	decided     uint64
	lastDecided bool   // decided is the final epoch
	newest      uint64 // newest barrier known to have been ordered, by any leader; at least decided
	finalAt     uint64 // n of the final barrier, once known; 0: none

	barrierAt Time // when the newest barrier was ordered
	decidedAt Time

	finish  finish
	closing closing
	off     guards // rules switched off, by tests
	out     []Order
}

// member is what this leader knows of a member.
type member struct {
	Member
	attached bool   // to this leader, now
	barrier  uint64 // newest barrier seen by it, or sent on its present stream
	proven   uint64
	work     bool // said to be there since the newest barrier was ordered
	ended    bool
}

// finish is the wish for a final epoch.
type finish struct {
	wanted bool
	drain  bool
	told   bool // AllProven was given
}

// closing is the way out.
type closing struct {
	cause   string // empty: not closing
	halt    string
	retryAt Time // order the close again then; 0: one is under way
	done    bool // the close is applied
}

// guards names rules that tests switch off to see that something turns red. The zero value has all on.
type guards struct {
	promise     bool // P8: a vote stands as it arrived
	stamp       bool // P14: time left counts from a stamp of this term
	budget      bool // T1: no late proposal
	everyOne    bool // P15: every barrier since the last decision is completed
	provenClaim bool // P18: standings carry what is proven
	inOrder     bool // P5: n is proposed after n-1 was applied
	sourcesTell bool // P15: no new barrier while a source has not told what it has seen
	fullSet     bool // E6: a decision needs every vote
	idle        bool // E1: no barrier without work
	finishIdle  bool // E2: a final epoch needs no work
	bound       bool // S5: no more than MaxPending
}

// New makes the machine of an open generation whose members are all ready or running, for this
// leader's term; a leader that is elected again makes another one. A caller that
// wants the generation to end calls Finish before the first Attached, so that a final barrier that
// is ordered again says the same as the first time. Config holds at least one member.
func New(c Config, now Time) *Machine {
	c.MaxPending = max(c.MaxPending, 1)
	m := &Machine{
		c:           c,
		members:     make([]member, len(c.Members)),
		decided:     c.Final,
		lastDecided: c.FinalDecided,
		newest:      c.Final,
		barrierAt:   now,
		decidedAt:   now,
		off:         switchedOff(),
	}
	if c.FinalDecided {
		m.finalAt = c.Final
	}
	for i, who := range c.Members {
		m.members[i].Member, m.members[i].proven = who, who.ProvenThrough
	}
	return m
}

// Tick says that time has passed. It may be called at any time, and must be at NextWake.
func (m *Machine) Tick(now Time) []Order {
	m.begin()
	return m.advance(now)
}

// Attached says that a member has attached to this leader, for the first time or again, and that it
// runs: a member that was ready has been told to start. What the standing says replaces what was
// thought to be known about what the member has heard.
func (m *Machine) Attached(name string, s Standing, now Time) []Order {
	m.begin()
	i := m.index(name)
	if i < 0 || m.closing.done {
		return m.out
	}
	who := &m.members[i]
	who.attached, who.barrier = true, s.NewestBarrier
	if !m.off.provenClaim {
		who.proven = max(who.proven, s.ProvenThrough)
	}
	m.sighted(who, s.NewestBarrier, s.NewestFinal, now)
	for _, v := range s.Votes {
		m.receive(i, v, now)
	}
	if s.NewestOutcome < m.decided {
		m.tellCommitted(name)
	}
	return m.advance(now)
}

// Detached says that a member's stream is gone. The member is not lost by that; its lease runs on.
func (m *Machine) Detached(name string, now Time) []Order {
	m.begin()
	if i := m.index(name); i >= 0 {
		m.members[i].attached = false
	}
	return m.advance(now)
}

// Work says whether a member has had anything to make an epoch of since its last vote, and whether
// its source has reached its end. It is to be told at once when work comes up after a vote: every
// barrier uses up what was said before it.
func (m *Machine) Work(name string, hasWork, ended bool, now Time) []Order {
	m.begin()
	if i := m.index(name); i >= 0 {
		m.members[i].work = hasWork
		m.members[i].ended = ended
	}
	return m.advance(now)
}

// Vote delivers an answer. A repeat is harmless; an answer of another instance is ignored.
func (m *Machine) Vote(name, instance string, v Vote, now Time) []Order {
	m.begin()
	i := m.index(name)
	if i < 0 || m.members[i].Instance != instance || m.closing.done {
		return m.out
	}
	m.receive(i, v, now)
	return m.advance(now)
}

// Proven says that every branch of the member up to through is proven committed.
func (m *Machine) Proven(name string, through uint64, now Time) []Order {
	m.begin()
	if i := m.index(name); i >= 0 {
		m.members[i].proven = max(m.members[i].proven, through)
	}
	return m.advance(now)
}

// Decided says that the decision of n was applied, whoever proposed it. It is given in the order of
// the log; a repeat is harmless.
func (m *Machine) Decided(n uint64, final bool, now Time) []Order {
	m.begin()
	if n <= m.decided || m.closing.done {
		return m.out
	}
	for len(m.open) > 0 && m.open[0].n <= n {
		m.spare = append(m.spare, m.open[0])
		m.open = append(m.open[:0], m.open[1:]...)
	}
	m.decided, m.decidedAt, m.newest = n, now, max(m.newest, n)
	if final {
		m.lastDecided, m.finalAt = true, n
	}
	m.tellCommitted("")
	return m.advance(now)
}

// ProposalFailed says that the proposal of n was not applied, or that this is unknown. It is made
// again after a short delay (see NextWake): if the first was applied after all, the repeat is
// refused and nothing is decided twice.
func (m *Machine) ProposalFailed(n uint64, unknown bool, now Time) []Order {
	m.begin()
	if e := m.epoch(n); e != nil && e.proposed {
		e.proposed, e.retryAt = false, now.Add(retryAfter)
		e.doubtful = e.doubtful || unknown
	}
	return m.advance(now)
}

// Finish says that a final epoch is wanted. Repeats change nothing, save that drain may be raised
// until the final barrier is ordered.
func (m *Machine) Finish(drain bool, now Time) []Order {
	m.begin()
	m.finish.wanted = true
	m.finish.drain = m.finish.drain || drain
	return m.advance(now)
}

// Close demands the generation's close. ProposeClose is given once for it; the first cause stands.
func (m *Machine) Close(cause, halt string, now Time) []Order {
	m.begin()
	m.close(halt, "%s", cause)
	return m.advance(now)
}

// CloseFailed says that the close was not applied, or that this is unknown. It is ordered again
// after a short delay (see NextWake).
func (m *Machine) CloseFailed(now Time) []Order {
	m.begin()
	if m.closing.cause != "" {
		m.closing.retryAt = now.Add(retryAfter)
	}
	return m.advance(now)
}

// Closed says that the close is applied, whoever proposed it. From here on nothing is ordered.
func (m *Machine) Closed(now Time) []Order {
	m.begin()
	m.closing.done = true
	return m.advance(now)
}

// Open lists the epochs that are ordered and not decided, in order.
func (m *Machine) Open() []OpenRound {
	open := make([]OpenRound, 0, len(m.open))
	for _, e := range m.open {
		open = append(open, OpenRound{
			N: e.n, Final: e.final, OrderedAt: e.at, Missing: m.missing(e),
			Deadline: e.at.Add(m.c.PrepareTimeout), Proposed: e.proposed, Doubtful: e.doubtful,
		})
	}
	return open
}

// Pending is how many epochs are open, or decided and not proven by every member.
func (m *Machine) Pending() int {
	proven := m.newest
	for i := range m.members {
		proven = min(proven, m.members[i].proven)
	}
	return int(m.newest - proven)
}

// Final is the last decided n and whether it is the generation's last epoch.
func (m *Machine) Final() (n uint64, last bool) { return m.decided, m.lastDecided }

// LastDecidedAt is when this leader last saw an epoch decided; when it has seen none, when the
// machine was made.
func (m *Machine) LastDecidedAt() Time { return m.decidedAt }

// Closing is the cause for which the generation's close was ordered; empty: it was not.
func (m *Machine) Closing() string { return m.closing.cause }

// Ended reports whether there are sources and every one of them has reached its end.
func (m *Machine) Ended() bool {
	sources := 0
	for i := range m.members {
		if m.members[i].Source {
			sources++
			if !m.members[i].ended {
				return false
			}
		}
	}
	return sources > 0
}

func (m *Machine) begin() { m.out = m.out[:0] }

func (m *Machine) index(name string) int {
	for i := range m.members {
		if m.members[i].Name == name {
			return i
		}
	}
	return -1
}

// close starts the way out, once; a halt that comes later is kept for the next attempt.
func (m *Machine) close(halt, format string, args ...any) {
	if m.closing.halt == "" {
		m.closing.halt = halt
	}
	if m.closing.done || m.closing.cause != "" {
		return
	}
	m.closing.cause = fmt.Sprintf(format, args...)
	if m.closing.cause == "" {
		m.closing.cause = "asked to close"
	}
	m.emit(ProposeClose{Cause: m.closing.cause, Halt: m.closing.halt})
}

func (m *Machine) emit(o Order) { m.out = append(m.out, o) }

// tellCommitted tells what is decided to one member, or to all that are attached.
func (m *Machine) tellCommitted(name string) {
	to := []string{name}
	if name == "" {
		to = make([]string, 0, len(m.members))
		for i := range m.members {
			if m.members[i].attached {
				to = append(to, m.members[i].Name)
			}
		}
	}
	if len(to) > 0 {
		m.emit(SendCommitted{N: m.decided, Final: m.lastDecided, To: to})
	}
}
