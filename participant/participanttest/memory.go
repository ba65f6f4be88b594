package participanttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/unisink/unisink/participant"
)

// Kind of Memory's handles.
const Kind = "memory"

// Store is what a Memory resource changes. It outlives the processes that use it, as a disk does:
// prepared branches, markers and fences stay when a Memory is closed or crashes.
type Store struct {
	identity string

	mu        sync.Mutex // guards the rest
	seq       uint64
	prepared  map[string]*prepared
	markers   map[string]participant.Verdict
	fences    map[fence]uint64
	committed []string
	trail     []string
	broken    breakage
	watch     func(Change)
	form      form
	leaks     leaks
}

// form is how much a store can: all, but where a test says otherwise.
type form struct {
	// blind: what is prepared cannot be listed.
	blind bool
	// forgetful: there are no fences and no markers, so that proofs are a call's success.
	forgetful bool
}

type prepared struct {
	name    participant.BranchName
	handle  participant.Handle
	records []string
	since   time.Time
}

// fence is what older generations are told apart by.
type fence struct {
	ns                      participant.Namespace
	scope, member, resource string
}

// NewStore makes an empty store. The identity names it in handles.
func NewStore(identity string) *Store {
	return &Store{
		identity: identity, prepared: map[string]*prepared{}, markers: map[string]participant.Verdict{}, fences: map[fence]uint64{},
	}
}

// Records are the committed ones, in the order in which they became visible.
func (s *Store) Records() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.committed)
}

// Prepared lists the names of what is prepared and not finished, sorted.
func (s *Store) Prepared() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, p := range s.prepared {
		names = append(names, p.name.String())
	}
	slices.Sort(names)
	return names
}

// Plant makes a prepared branch as a process would that was slow enough to slip past every fence,
// and returns its handle.
func (s *Store) Plant(name participant.BranchName, records ...string) participant.Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(name, records, 0)
}

// Trail is everything that happened to branches, in order: "prepare …", "commit …", "roll back …",
// each with the branch's name. Repeats that changed nothing are not in it.
func (s *Store) Trail() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.trail)
}

// Call names a method of the contract.
type Call string

// The calls that a hook sees.
const (
	CallDescribe Call = "describe"
	CallOpen     Call = "open"
	CallBegin    Call = "begin"
	CallPrepare  Call = "prepare"
	CallDiscard  Call = "discard"
	CallCommit   Call = "commit"
	CallRollback Call = "rollback"
	CallInspect  Call = "inspect"
	CallList     Call = "list"
)

// When a hook is called.
type When uint8

const (
	whenUnset When = iota
	// Before the call has had any effect: an error means that it has none.
	Before
	// After the effect: an error means that the answer is lost.
	After
)

// Hook is called around every call of a Memory, with the branch's or handle's name ("" where there
// is none). It may block (a slow resource), return an error (a failure, a lost answer), or crash the
// process by Memory.Crash.
type Hook func(ctx context.Context, call Call, when When, name string) error

// ErrCrashed is what a crashed Memory answers to everything.
var ErrCrashed = errors.New("process crashed")

// Memory is the reference Resource: one process's access to a Store. It is exactly as strict as
// the contract.
type Memory struct {
	store *Store

	mu      sync.Mutex // guards the rest; taken before the store's
	hook    Hook
	crashed bool
	closed  bool
	bounded time.Duration
	pad     int
	open    *participant.Opening
	newest  uint64 // n of the newest branch begun in the opened generation
	writing map[*MemoryBranch]bool
}

// Process gives a new process's access to the store.
func (s *Store) Process() *Memory { return &Memory{store: s, writing: map[*MemoryBranch]bool{}} }

// SetHook makes h see every call from now on; nil ends that.
func (m *Memory) SetHook(h Hook) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = h
}

// SetBounded makes votes carry a deadline, d after Prepare. Nothing is dropped at it.
func (m *Memory) SetBounded(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bounded = d
}

// SetHandleBytes pads the bodies of handles to n bytes, for tests of what is too large.
func (m *Memory) SetHandleBytes(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pad = n
}

// Crash ends the process as kill -9 would: no later call has an effect, what was not prepared is gone.
func (m *Memory) Crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashed = true
	clear(m.writing)
}

// around runs a call between its hooks.
func (m *Memory) around(ctx context.Context, call Call, name string, effect func() error) error {
	if err := m.at(ctx, call, Before, name); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	return m.at(ctx, call, After, name)
}

func (m *Memory) at(ctx context.Context, call Call, when When, name string) error {
	m.mu.Lock()
	hook := m.hook
	m.mu.Unlock()
	var err error
	if hook != nil {
		err = hook(ctx, call, when, name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.crashed:
		return ErrCrashed
	case err != nil:
		return fmt.Errorf("%s %s: %w", call, name, err)
	case m.closed && call != CallDescribe:
		return fmt.Errorf("%s %s: %w: the resource is closed", call, name, participant.ErrBug)
	case when == Before && ctx.Err() != nil:
		if m.store.broken == losesOnCancel {
			m.store.lose(name)
		}
		return context.Cause(ctx)
	}
	return nil
}

// Describe implements participant.Resource.
func (m *Memory) Describe(ctx context.Context) (participant.Description, error) {
	d := participant.Description{
		Kind: Kind, Identity: m.store.identity, Text: "memory " + m.store.identity,
		CanList: !m.store.form.blind, Asserted: m.store.form.forgetful,
	}
	if m.store.broken == anonymous {
		d.Identity = ""
	}
	err := m.around(ctx, CallDescribe, "", func() error { return nil })
	m.mu.Lock()
	d.Bounded = m.bounded > 0 && m.store.broken != hidesClaims
	m.mu.Unlock()
	return d, err
}

// Open implements participant.Resource.
func (m *Memory) Open(ctx context.Context, o participant.Opening) error {
	return m.around(ctx, CallOpen, o.Scope, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.store.mu.Lock()
		defer m.store.mu.Unlock()
		key := m.store.key(fence{o.Namespace, o.Scope, o.Member, o.Resource})
		if have := m.store.fences[key]; have > o.Generation && m.store.fenced() {
			return fmt.Errorf("open generation %d of %s: %w by generation %d", o.Generation, o.Scope, participant.ErrFenced, have)
		}
		if m.store.broken == fenceForgets && m.store.fences[key] < o.Generation {
			m.store.loseDecided()
		}
		m.store.fences[key] = max(m.store.fences[key], o.Generation)
		m.store.changed(Change{Call: CallOpen, Opening: o})
		if m.open == nil || m.open.Generation != o.Generation {
			if m.store.broken != keepsBranches {
				clear(m.writing)
			}
			m.newest = 0
		}
		m.open = &o
		return nil
	})
}

// Begin implements participant.Resource.
func (m *Memory) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	var b *MemoryBranch
	err := m.around(ctx, CallBegin, name.String(), func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if name.Txn == "" {
			switch {
			case m.open == nil || m.open.Generation != name.Generation:
				return fmt.Errorf("begin %s: %w: its generation is not the opened one", name, participant.ErrBug)
			case name.N < m.newest || name.N == m.newest && m.store.broken == beginsOnce:
				return fmt.Errorf("begin %s: %w: names come in ascending order, the last was %d", name, participant.ErrBug, m.newest)
			}
			// A repeat, its first answer having been lost, takes the place of the first.
			for old := range m.writing {
				if old.name == name {
					delete(m.writing, old)
				}
			}
			m.newest = name.N
		}
		b = &MemoryBranch{memory: m, name: name}
		m.writing[b] = true
		if m.store.broken == leaksGoroutine {
			go func() { <-m.store.leaks.until }()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// MemoryBranch is a branch of a Memory.
type MemoryBranch struct {
	memory  *Memory
	name    participant.BranchName
	records []string
	vote    participant.Vote // once prepared
}

// Write adds a record to the branch.
func (b *MemoryBranch) Write(record string) error {
	b.memory.mu.Lock()
	defer b.memory.mu.Unlock()
	if !b.memory.writing[b] {
		return fmt.Errorf("write to %s: %w: the branch is over", b.name, participant.ErrBug)
	}
	b.records = append(b.records, record)
	return nil
}

// Prepare implements participant.Branch.
func (b *MemoryBranch) Prepare(ctx context.Context) (participant.Vote, error) {
	var vote participant.Vote
	err := b.memory.around(ctx, CallPrepare, b.name.String(), func() error {
		var err error
		vote, err = b.prepare()
		return err
	})
	if b.memory.store.broken == cancelMeansNo && errors.Is(err, context.Canceled) {
		return participant.Vote{Kind: participant.No, Reason: err}, nil
	}
	if err != nil {
		return participant.Vote{}, err
	}
	return vote, nil
}

func (b *MemoryBranch) prepare() (participant.Vote, error) {
	m := b.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if b.vote.Kind != 0 && m.store.broken != newHandleEachTime {
		return b.vote, nil
	}
	if b.vote.Kind == 0 && !m.writing[b] {
		return participant.Vote{Kind: participant.No, Reason: fmt.Errorf("prepare %s: %w: dropped before", b.name, participant.ErrLost)}, nil
	}
	key := m.store.key(fence{b.name.Namespace, b.name.Scope(), b.name.Member, b.name.Resource})
	if have := m.store.fences[key]; b.name.Txn == "" && have > b.name.Generation && m.store.fenced() {
		delete(m.writing, b)
		return participant.Vote{Kind: participant.No, Reason: fmt.Errorf("prepare %s: %w by generation %d", b.name, participant.ErrFenced, have)}, nil
	}
	delete(m.writing, b)
	if len(b.records) == 0 && m.store.broken != emptyIsYes {
		b.vote = participant.Vote{Kind: participant.ReadOnly}
		return b.vote, nil
	}
	h := m.store.add(b.name, b.records, m.pad)
	b.vote = participant.Vote{Kind: participant.Yes, Handle: h}
	if m.bounded > 0 {
		b.vote.Deadline = time.Now().Add(m.bounded)
	}
	return b.vote, nil
}

// add makes a branch durable. Called with mu held.
func (s *Store) add(name participant.BranchName, records []string, pad int) participant.Handle {
	s.seq++
	h := participant.Handle{
		Kind: Kind, Version: 1, Identity: s.identity, Alias: name.Resource,
		// Two prepares of one branch are two things (P7).
		Name: fmt.Sprintf("%s#%d", name, s.seq),
		Text: fmt.Sprintf("%d records in memory %s", len(records), s.identity),
	}
	if pad > 0 {
		h.Body = make([]byte, pad)
	}
	if s.broken == tellsSecret {
		h.Text += ", password " + secret
	}
	if s.broken == oneHandle {
		h.Name = name.Resource
	}
	if s.broken == hugeHandles {
		h.Body = make([]byte, participant.MaxHandle)
	}
	if s.broken == hashedNames {
		name.Member, name.Resource = "x.y", ""
	}
	if s.broken == mixesBranches && s.seq%50 == 0 {
		records = append(slices.Clone(records), "stray")
	}
	s.prepared[h.Name] = &prepared{name: name, handle: h, records: slices.Clone(records), since: time.Now()}
	s.trail = append(s.trail, "prepare "+name.String())
	s.changed(Change{Call: CallPrepare, Name: name, Handle: h.Name, Records: slices.Clone(records)})
	if s.broken == visibleEarly {
		s.committed = append(s.committed, records...)
	}
	return h
}

// Discard implements participant.Branch.
func (b *MemoryBranch) Discard(ctx context.Context) error {
	return b.memory.around(ctx, CallDiscard, b.name.String(), func() error {
		b.memory.mu.Lock()
		defer b.memory.mu.Unlock()
		if b.vote.Kind == participant.Yes {
			if b.memory.store.broken == discardsPrepared {
				b.memory.store.mu.Lock()
				delete(b.memory.store.prepared, b.vote.Handle.Name)
				b.memory.store.mu.Unlock()
				return nil
			}
			return fmt.Errorf("discard %s: %w", b.name, participant.ErrPrepared)
		}
		delete(b.memory.writing, b)
		return nil
	})
}

// lose forgets what is prepared under a handle, as no resource may.
func (s *Store) lose(handle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.prepared, handle)
}

// Close implements participant.Resource.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.store.broken == closePublishes {
		m.store.mu.Lock()
		for b := range m.writing {
			m.store.committed = append(m.store.committed, b.records...)
		}
		m.store.mu.Unlock()
	}
	if m.store.broken == losesOnCrash || m.store.broken == closesOthers && m.open != nil && m.open.Generation == 1 {
		m.store.mu.Lock()
		clear(m.store.prepared)
		m.store.mu.Unlock()
	}
	m.closed = true
	clear(m.writing)
	return nil
}
