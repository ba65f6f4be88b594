package processortest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Sink keeps what was committed, in memory. It is a participant.Resource whose branches have Write,
// and stands for a resource outside: it survives the pipelines that write to it.
type Sink struct {
	name string

	mu         sync.Mutex // guards what follows
	fences     map[holder]uint64
	prepared   map[string]*branch
	done       map[string]participant.Verdict
	committed  []Committed
	prepareErr error
	writeErr   error
}

// holder is who writes to a sink in its own generations.
type holder struct {
	ns            participant.Namespace
	scope, member string
}

// Committed is a record that readers can see.
type Committed struct {
	Generation, N uint64
	Record        stream.Record
}

// NewSink makes an empty sink.
func NewSink(name string) *Sink {
	return &Sink{name: name, fences: map[holder]uint64{}, prepared: map[string]*branch{}, done: map[string]participant.Verdict{}}
}

// Committed lists what readers can see, in the order of the commits.
func (s *Sink) Committed() []Committed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.committed)
}

// Prepared counts branches that are prepared and not finished.
func (s *Sink) Prepared() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.prepared)
}

// FailWrite makes writes fail until it is called with nil.
func (s *Sink) FailWrite(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeErr = err
}

// FailPrepare makes branches vote no until it is called with nil.
func (s *Sink) FailPrepare(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepareErr = err
}

// Describe says what it is.
func (s *Sink) Describe(context.Context) (participant.Description, error) {
	return participant.Description{Kind: "recording", Identity: s.name, Text: "recording " + s.name, CanList: true}, nil
}

// Open fences older generations.
func (s *Sink) Open(_ context.Context, o participant.Opening) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := holder{o.Namespace, o.Scope, o.Member}
	if o.Generation < s.fences[who] {
		return fmt.Errorf("sink %q, generation %d: %w", s.name, o.Generation, participant.ErrFenced)
	}
	s.fences[who] = o.Generation
	return nil
}

// Begin starts a branch of the opened generation.
func (s *Sink) Begin(_ context.Context, name participant.BranchName) (participant.Branch, error) {
	if err := s.fenced(name); err != nil {
		return nil, err
	}
	return &branch{sink: s, name: name}, nil
}

// Commit makes a branch visible, once.
func (s *Sink) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	if err := s.mine(ctx, h); err != nil {
		return participant.Proof{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.done[h.Name]; ok {
		return participant.Proof{Verdict: v, Evidence: "done before"}, nil
	}
	b := s.prepared[h.Name]
	if b == nil {
		return participant.Proof{}, fmt.Errorf("sink %q: %s was never prepared: %w", s.name, h.Name, participant.ErrLost)
	}
	for _, r := range b.records {
		s.committed = append(s.committed, Committed{b.name.Generation, b.name.N, r})
	}
	return s.finish(h, participant.Committed), nil
}

// Rollback drops a branch.
func (s *Sink) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	if err := s.mine(ctx, h); err != nil {
		return participant.Proof{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.done[h.Name]; ok {
		return participant.Proof{Verdict: v, Evidence: "done before"}, nil
	}
	return s.finish(h, participant.RolledBack), nil
}

// mine refuses handles of others, and calls that are cancelled.
func (s *Sink) mine(ctx context.Context, h participant.Handle) error {
	if h.Kind != "recording" || h.Version != 1 || h.Identity != s.name {
		return fmt.Errorf("sink %q, handle %s: %w", s.name, h.Name, participant.ErrUnknownHandle)
	}
	return context.Cause(ctx)
}

func (s *Sink) finish(h participant.Handle, v participant.Verdict) participant.Proof {
	delete(s.prepared, h.Name)
	s.done[h.Name] = v
	return participant.Proof{Verdict: v, Evidence: "seen"}
}

// Inspect looks.
func (s *Sink) Inspect(ctx context.Context, h participant.Handle) (participant.State, error) {
	if err := s.mine(ctx, h); err != nil {
		return participant.Unknown, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch v, ok := s.done[h.Name]; {
	case ok && v == participant.Committed:
		return participant.StateCommitted, nil
	case ok:
		return participant.StateRolledBack, nil
	case s.prepared[h.Name] != nil:
		return participant.Undecided, nil
	}
	return participant.Unknown, nil
}

// List names what is prepared.
func (s *Sink) List(_ context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []participant.Listed
	for _, b := range s.prepared {
		if b.name.Namespace == ns {
			out = append(out, participant.Listed{Handle: b.handle(), Name: b.name})
		}
	}
	return out, nil
}

// Close publishes nothing.
func (s *Sink) Close() error { return nil }

func (s *Sink) fenced(name participant.BranchName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.fences[holder{name.Namespace, name.Scope(), name.Member}]; name.Generation != open {
		return fmt.Errorf("sink %q, branch %s: %w: generation %d is open", s.name, name, participant.ErrFenced, open)
	}
	return nil
}

type branch struct {
	sink     *Sink
	name     participant.BranchName
	records  []stream.Record
	prepared bool
}

func (b *branch) handle() participant.Handle {
	return participant.Handle{Kind: "recording", Version: 1, Identity: b.sink.name, Alias: b.name.Resource, Name: b.name.String(), Text: b.name.String()}
}

// Write copies the records.
func (b *branch) Write(_ context.Context, records []stream.Record) error {
	if b.prepared {
		return fmt.Errorf("branch %s: %w", b.name, participant.ErrPrepared)
	}
	b.sink.mu.Lock()
	err := b.sink.writeErr
	b.sink.mu.Unlock()
	if err != nil {
		return err
	}
	for _, r := range records {
		r.Key, r.Value, r.Headers = slices.Clone(r.Key), slices.Clone(r.Value), cloneHeaders(r.Headers)
		b.records = append(b.records, r)
	}
	return nil
}

// Prepare keeps the branch for good.
func (b *branch) Prepare(context.Context) (participant.Vote, error) {
	if err := b.sink.fenced(b.name); err != nil {
		return participant.Vote{Kind: participant.No, Reason: err}, nil
	}
	b.sink.mu.Lock()
	defer b.sink.mu.Unlock()
	if err := b.sink.prepareErr; err != nil {
		return participant.Vote{Kind: participant.No, Reason: err}, nil
	}
	if len(b.records) == 0 {
		return participant.Vote{Kind: participant.ReadOnly}, nil
	}
	b.prepared = true
	b.sink.prepared[b.name.String()] = b
	return participant.Vote{Kind: participant.Yes, Handle: b.handle()}, nil
}

// Discard drops a branch that was not prepared.
func (b *branch) Discard(context.Context) error {
	if b.prepared {
		return participant.ErrPrepared
	}
	b.records = nil
	return nil
}
