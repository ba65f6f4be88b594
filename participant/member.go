package participant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/unisink/unisink/participant/route"
)

// Member is a process's part in a scope: it attaches to the leader, restores, runs its Task, votes
// and finishes what was decided. One Run per Member.
type Member struct {
	cfg    MemberConfig
	task   Task
	router *route.Router
	log    *slog.Logger
}

// NewMember makes a member of a scope. Nothing is contacted before Run.
func NewMember(cfg MemberConfig, task Task) (*Member, error) {
	err := cfg.Validate()
	if task == nil {
		err = errors.Join(err, errors.New("the task is nil"))
	}
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	cfg = cfg.filled()
	router, err := cfg.router()
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	return &Member{cfg: cfg, task: task, router: router, log: cfg.Logger}, nil
}

// Phase of a member.
type Phase uint8

const (
	phaseUnset Phase = iota
	// PhaseIdle: no generation, or it is closed.
	PhaseIdle
	PhaseRestoring
	// PhaseReady: restored, not every member of the scope is.
	PhaseReady
	PhaseRunning
)

// Status is what a member knows of itself, for tools.
type Status struct {
	Instance   string
	Leader     string // address; "" while not attached
	Term       uint64
	Generation uint64
	Phase      Phase
	// LeaseLeft until the coordinator may close the generation; zero or less when it may already.
	LeaseLeft time.Duration
	// Barrier is the newest one seen, Outcome the newest epoch known to be decided, Proven the
	// newest up to which every branch is proven.
	Barrier, Outcome, Proven uint64
	// WaitingFor says in words what the member waits for; "" when for nothing.
	WaitingFor string
}

// Status may be called at any time.
func (m *Member) Status() Status { return Status{Instance: m.cfg.Instance, Phase: PhaseIdle} }

// Run takes part until ctx ends, the pipeline is stopped (nil), or it can't go on.
func (m *Member) Run(ctx context.Context) error { return errors.New("not yet") }
