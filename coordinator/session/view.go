package session

import (
	"context"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Status is what the leader knows of a scope beyond the ledger.
type Status struct {
	// Leads: this node leads; otherwise nothing else is known here.
	Leads bool
	// Members that the pipeline declares, in its order.
	Members []MemberStatus
	// WaitingFor says what the scope waits for before it can run; while it runs, what its members
	// try in vain.
	WaitingFor string
	// RoundsOpen are ordered and not decided; OldestRound is the age of the oldest.
	RoundsOpen  int
	OldestRound time.Duration
	// Rounds are they, oldest first; none of a scope with one member, which times its own.
	Rounds []RoundStatus
	// SinceDecision is -1 when this leader has seen none.
	SinceDecision time.Duration
}

// RoundStatus is one epoch that is ordered and not decided.
type RoundStatus struct {
	Epoch ledger.Epoch
	Final bool
	Age   time.Duration
	// Missing members have not voted; none: the decision is on its way.
	Missing []string
	// Left is the time until the generation is closed for the missing votes.
	Left time.Duration
}

// MemberStatus is what the leader knows of one member.
type MemberStatus struct {
	Name     string
	Instance string // empty: nobody holds the name
	Attached bool
	// Phase is idle, restoring, ready or running.
	Phase string
	// Lag is -1 when unknown.
	Lag int64
	// LeaseLeft is 0 when no lease runs.
	LeaseLeft  time.Duration
	WaitingFor string
	// Texts say what its resources are, by their names, as its newest process told; not the caller's to change.
	Texts map[string]string
}

// Status of a scope; it may wait for the scope's current step, never for the log or a member.
func (m *Manager) Status(id ledger.ScopeID) Status {
	st := Status{SinceDecision: -1}
	// The actor never waits inside a step, so no deadline is needed.
	err := m.ask(context.Background(), id, func(_ context.Context, s *scope) error {
		st = s.status(time.Now())
		return nil
	})
	if err != nil {
		return Status{SinceDecision: -1} // does not lead, or not any longer
	}
	return st
}

func (s *scope) status(now time.Time) Status {
	st := Status{Leads: true, WaitingFor: s.waiting, SinceDecision: -1}
	if !s.decidedAt.IsZero() {
		st.SinceDecision = now.Sub(s.decidedAt)
	}
	if g := s.gen; g != nil && g.machine != nil {
		open := g.machine.Open()
		st.RoundsOpen = len(open)
		for _, o := range open {
			st.Rounds = append(st.Rounds, RoundStatus{
				Epoch: ledger.Epoch{Generation: g.number, N: o.N}, Final: o.Final, Age: s.now().Sub(o.OrderedAt),
				Missing: o.Missing, Left: o.Deadline.Sub(s.now()),
			})
		}
		if len(open) > 0 {
			st.OldestRound = s.now().Sub(open[0].OrderedAt)
		}
	}
	for _, d := range s.seen.pipeline.Members {
		st.Members = append(st.Members, s.memberStatus(d.Name, now))
	}
	return st
}

func (s *scope) memberStatus(name string, now time.Time) MemberStatus {
	m := s.members[name]
	if m == nil {
		m = &member{}
	}
	if m.instance == "" {
		return MemberStatus{Name: name, Phase: phaseName(0), Lag: -1, WaitingFor: "a process to attach", Texts: s.texts[name]}
	}
	st := MemberStatus{
		Name: name, Instance: m.instance, Attached: m.stream != nil, Phase: phaseName(m.phase), Lag: m.lag,
		LeaseLeft: max(m.lease.Sub(now), 0), Texts: s.texts[name],
	}
	switch {
	case m.stream == nil:
		st.WaitingFor = "the process to attach again"
	case m.trouble != "":
		st.WaitingFor = m.trouble
	case st.Phase != phaseName(unisinkv1.Phase_PHASE_RUNNING):
		st.WaitingFor = s.waiting
	case len(m.waiters) > 0:
		st.WaitingFor = "instance " + m.waiters[0].instance + " waits for the name"
	}
	return st
}
