package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/participant"
)

// kind of a cell's handles.
const kind = "bench"

// handleBytes is what the handle of a Kafka transaction takes, about.
const handleBytes = 256

// cell is a resource in the memory of this process: it costs as little as one can. What is prepared is forgotten
// when it is committed, and what was committed is known by the number of its epoch, so it does not grow.
type cell struct {
	name string
	w    *Writer

	mu         sync.Mutex // guards what follows; held for memory only
	generation uint64
	prepared   map[string]prepared // by the handle's name
	through    map[uint64]uint64   // newest committed epoch, by generation
}

type prepared struct {
	branch participant.BranchName
	handle participant.Handle
	at     time.Time
}

func newCell(name string, w *Writer) *cell {
	return &cell{name: name, w: w, prepared: map[string]prepared{}, through: map[uint64]uint64{}}
}

// Describe implements participant.Resource.
func (c *cell) Describe(context.Context) (participant.Description, error) {
	return participant.Description{Kind: kind, Identity: c.name, Text: "memory of " + c.name, CanList: true}, nil
}

// Open implements participant.Resource.
func (c *cell) Open(_ context.Context, o participant.Opening) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Generation < c.generation {
		return fmt.Errorf("open %s for generation %d: %w", c.name, o.Generation, participant.ErrFenced)
	}
	c.generation = o.Generation
	return nil
}

// Begin implements participant.Resource.
func (c *cell) Begin(_ context.Context, name participant.BranchName) (participant.Branch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name.Generation != c.generation {
		return nil, fmt.Errorf("begin %s: %w", name, participant.ErrFenced)
	}
	return &share{c: c, name: name}, nil
}

// Commit implements participant.Resource. The first call for a branch is when its decision was told.
func (c *cell) Commit(_ context.Context, h participant.Handle) (participant.Proof, error) {
	c.mu.Lock()
	p, first := c.prepared[h.Name]
	if first {
		delete(c.prepared, h.Name)
		c.through[p.branch.Generation] = max(c.through[p.branch.Generation], p.branch.N)
	}
	known := first || c.committed(h)
	c.mu.Unlock()
	if !known {
		return participant.Proof{}, fmt.Errorf("commit %s: %w", h.Name, participant.ErrUnknownHandle)
	}
	if first {
		c.w.decided(p.at)
	}
	return participant.Proof{Verdict: participant.Committed, Evidence: "in memory"}, nil
}

// committed reports whether a branch of this process was committed before. Called with mu held.
func (c *cell) committed(h participant.Handle) bool {
	name, err := participant.ParseBranchName(h.Name)
	return err == nil && name.N <= c.through[name.Generation]
}

// Rollback implements participant.Resource.
func (c *cell) Rollback(_ context.Context, h participant.Handle) (participant.Proof, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.committed(h) {
		return participant.Proof{Verdict: participant.Committed, Evidence: "in memory"}, nil
	}
	delete(c.prepared, h.Name)
	return participant.Proof{Verdict: participant.RolledBack, Evidence: "in memory"}, nil
}

// Inspect implements participant.Resource.
func (c *cell) Inspect(_ context.Context, h participant.Handle) (participant.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, found := c.prepared[h.Name]; found {
		return participant.Undecided, nil
	}
	if c.committed(h) {
		return participant.StateCommitted, nil
	}
	return participant.Unknown, nil
}

// List implements participant.Resource.
func (c *cell) List(context.Context, participant.Namespace) ([]participant.Listed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]participant.Listed, 0, len(c.prepared))
	for _, p := range c.prepared {
		out = append(out, participant.Listed{Handle: p.handle, Name: p.branch, Since: p.at})
	}
	return out, nil
}

// Close implements participant.Resource.
func (c *cell) Close() error { return nil }

// share is a branch of a cell.
type share struct {
	c    *cell
	name participant.BranchName
	vote *participant.Vote
}

// Prepare implements participant.Branch.
func (s *share) Prepare(context.Context) (participant.Vote, error) {
	if s.vote == nil {
		v := participant.Vote{Kind: participant.Yes, Handle: handleOf(s.c.name, s.name)}
		s.vote = &v
		s.c.mu.Lock()
		s.c.prepared[v.Handle.Name] = prepared{s.name, v.Handle, time.Now()}
		s.c.mu.Unlock()
	}
	return *s.vote, nil
}

// Discard implements participant.Branch.
func (s *share) Discard(context.Context) error {
	if s.vote != nil {
		return participant.ErrPrepared
	}
	return nil
}

func handleOf(identity string, name participant.BranchName) participant.Handle {
	return participant.Handle{
		Kind: kind, Version: 1, Identity: identity, Alias: name.Resource, Name: name.String(), Text: "memory of " + identity, Body: make([]byte, handleBytes),
	}
}
