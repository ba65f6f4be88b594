package session

import (
	"context"
	"log/slog"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Log is the replicated log as this package needs it.
type Log interface {
	// Propose returns when the command was applied or refused here; every error says either that
	// it was not proposed, or that its outcome is unknown (Config.Unknown tells which).
	Propose(ctx context.Context, c ledger.Command) (ledger.Result, error)
	// Barrier returns when everything committed before the call is applied here.
	Barrier(ctx context.Context) error
	// View reads the state of this node; read must not keep the machine.
	View(read func(*ledger.Machine))
}

// Config of a manager.
type Config struct {
	Log    Log
	Logger *slog.Logger
	// Events hears what happens. It must not block. May be nil.
	Events func(eventlog.Event)
	// NotLeader makes the status error that a node answers while it does not lead, with the hint
	// to who does.
	NotLeader func() error
	// Unknown reports whether a proposal's error leaves its outcome unknown.
	Unknown func(error) bool
}

// Manager serves unisink.v1.Session. It is made once and leads when it is told to.
type Manager struct {
	unisinkv1.UnimplementedSessionServer
	c Config
}

// New makes a manager that does not lead.
func New(c Config) *Manager { return &Manager{c: c} }

// Lead serves members while this node leads the term. It returns when ctx ends and everything it
// started has ended; streams that are still there end with NOT_LEADER.
func (m *Manager) Lead(ctx context.Context, term uint64) error {
	<-ctx.Done()
	return nil
}

// Effects hears what applied entries changed. It never blocks, and effects may be lost.
func (m *Manager) Effects(effects []ledger.Effect) {}

// Retired tells members which of their state parts they may delete. It never blocks.
func (m *Manager) Retired(parts []ledger.Retired) {}
