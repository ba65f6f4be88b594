package round

// Machine runs the epochs of one generation. It is not safe for concurrent use. Every event returns
// the orders it leads to; the slice is valid until the next event.
type Machine struct {
	c   Config
	out []Order
}

// New makes the machine of an open generation whose members are all ready or running. A caller that
// wants the generation to end calls Finish before the first Attached, so that a final barrier
// that is ordered again says the same as the first time. Config must hold at least one member, and a
// MaxPending of at least 1.
func New(c Config, now Time) *Machine { return &Machine{c: c} }

// Tick says that time has passed. It may be called at any time, and must be at NextWake.
func (m *Machine) Tick(now Time) []Order { return nil }

// Attached says that a member has attached to this leader, for the first time or again. What the
// standing says replaces what was thought to be known about what the member has heard.
func (m *Machine) Attached(member string, s Standing, now Time) []Order { return nil }

// Detached says that a member's stream is gone. The member is not lost by that; its lease runs on.
func (m *Machine) Detached(member string, now Time) []Order { return nil }

// Work says whether a member has had anything to make an epoch of since its last vote, and whether
// its source has reached its end.
func (m *Machine) Work(member string, hasWork, ended bool, now Time) []Order { return nil }

// Vote delivers an answer. A repeat is harmless; an answer of another instance is ignored.
func (m *Machine) Vote(member, instance string, v Vote, now Time) []Order { return nil }

// Proven says that every branch of the member up to through is proven committed.
func (m *Machine) Proven(member string, through uint64, now Time) []Order { return nil }

// Decided says that the decision of n was applied, whoever proposed it.
func (m *Machine) Decided(n uint64, final bool, now Time) []Order { return nil }

// ProposalFailed says that the proposal of n was not applied, or that this is unknown. It is made
// again after a short delay (see NextWake), since a repeat of an applied one is only refused.
func (m *Machine) ProposalFailed(n uint64, unknown bool, now Time) []Order { return nil }

// Finish says that a final epoch is wanted. Repeats change nothing, save that drain may be raised
// until the final barrier is ordered.
func (m *Machine) Finish(drain bool, now Time) []Order { return nil }

// Close demands the generation's close. ProposeClose is given once for it; the first cause stands.
func (m *Machine) Close(cause, halt string, now Time) []Order { return nil }

// CloseFailed says that the close was not applied, or that this is unknown. It is ordered again
// after a short delay (see NextWake).
func (m *Machine) CloseFailed(now Time) []Order { return nil }

// Closed says that the close is applied. From here on nothing is ordered.
func (m *Machine) Closed(now Time) []Order { return nil }

// NextWake says when Tick is needed next; false: not before another event.
func (m *Machine) NextWake() (Time, bool) { return 0, false }

// Open lists the epochs that are ordered and not decided, in order.
func (m *Machine) Open() []OpenRound { return nil }

// Pending is how many epochs are open, or decided and not proven by every member.
func (m *Machine) Pending() int { return 0 }

// Final is the last decided n and whether it is the generation's last epoch.
func (m *Machine) Final() (n uint64, last bool) { return 0, false }

// LastDecidedAt is when this leader last saw an epoch decided; when it has seen none, when the
// machine was made.
func (m *Machine) LastDecidedAt() Time { return 0 }

// Closing is the cause for which the generation's close was ordered; empty: it was not.
func (m *Machine) Closing() string { return "" }
