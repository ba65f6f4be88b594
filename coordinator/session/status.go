package session

import (
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// Status is what the leader knows of a scope beyond the ledger.
type Status struct {
	// Leads: this node leads; otherwise nothing else is known here.
	Leads bool
	// Members that the pipeline declares, in its order.
	Members []MemberStatus
	// WaitingFor says what the scope waits for before it can run; empty while it runs.
	WaitingFor string
	// RoundsOpen are ordered and not decided; OldestRound is the age of the oldest.
	RoundsOpen  int
	OldestRound time.Duration
	// SinceDecision is -1 when this leader has seen none.
	SinceDecision time.Duration
}

// MemberStatus is what the leader knows of one member.
type MemberStatus struct {
	Name     string
	Instance string
	Attached bool
	// Phase is idle, restoring, ready or running.
	Phase string
	// Lag is -1 when unknown.
	Lag int64
	// LeaseLeft is 0 when no lease runs.
	LeaseLeft  time.Duration
	WaitingFor string
}

// Status of a scope; it may wait for the scope's current step, never for the log or a member.
func (m *Manager) Status(scope ledger.ScopeID) Status { return Status{} }
