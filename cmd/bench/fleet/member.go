package fleet

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/unisink/unisink/participant"
)

// member is a scope's one member.
type member struct {
	w    *Writer
	busy *atomic.Bool // of the whole crew: makes an epoch as often as it may

	mu   sync.Mutex // guards what follows; held for memory only
	run  participant.Run
	over bool
	next int64
}

// resource and split are what a member writes and reads.
const (
	resource = "cell"
	split    = "0"
)

// Restore implements participant.Task.
func (m *member) Restore(_ context.Context, r participant.Restore) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = 0
	if len(r.Positions) > 0 {
		m.next = r.Positions[0].Offset
	}
	return nil
}

// Start implements participant.Task.
func (m *member) Start(_ context.Context, s participant.Start) error {
	m.mu.Lock()
	m.run, m.over = s.Run, false
	m.mu.Unlock()
	m.w.began()
	m.work()
	return nil
}

// work says that there is something to make an epoch of, if there is.
func (m *member) work() {
	m.mu.Lock()
	run := m.run
	if m.over {
		run = nil
	}
	m.mu.Unlock()
	if run != nil && m.busy.Load() {
		run.HasWork()
	}
}

// Barrier implements participant.Task: the epoch holds one record.
func (m *member) Barrier(ctx context.Context, b participant.Barrier) error {
	m.mu.Lock()
	run := m.run
	m.next++
	at := participant.Position{Resource: "in", Split: split, Offset: m.next, LeaderEpoch: -1}
	m.mu.Unlock()
	if _, err := run.Branch(ctx, resource); err != nil {
		return err
	}
	if err := run.Vote(ctx, b, participant.Contribution{Positions: []participant.Position{at}}); err != nil {
		return err
	}
	if !b.Final {
		m.work()
	}
	return nil
}

// Halted implements participant.Task.
func (m *member) Halted(_ context.Context, why string) error {
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
	m.w.halted(why)
	return nil
}
