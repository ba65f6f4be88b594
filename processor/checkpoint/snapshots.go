package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

const (
	// leastPart and mostPart bound the size from which a part is closed, and mostBase is into about how
	// many parts a base is cut; bytes before compression.
	leastPart = 1 << 20
	mostPart  = 8 << 20
	baseParts = 32
	// inlineChange is the most that a change may have to stay in the vote, bytes. There is at most one.
	inlineChange = 2 << 10
	// usualEntry is how many bytes an entry has as long as none was written.
	usualEntry = 48
)

// Config says whose snapshots they are.
type Config struct {
	// Scope stands before the ids in the store: "<pipeline>.<shard>.".
	Scope     string
	Member    string
	Operator  string
	KeyGroups uint32
	Store     state.Store // nil: none
}

// Snapshots are those of one operator of one member. One goroutine uses it at a time.
type Snapshots struct {
	cfg    Config
	writer *writer
	chain  chain
	// perEntry is how many bytes an entry had when the last ones were written.
	perEntry int
	payload  []byte
	frames   state.Framer
}

// New is for an operator that has no snapshot yet; see Load.
func New(cfg Config) *Snapshots {
	s := &Snapshots{cfg: cfg, perEntry: usualEntry}
	if cfg.Store != nil {
		s.writer = newWriter(cfg.Store)
	}
	s.Clear()
	return s
}

// Clear forgets what the last snapshot was made of: the operator begins anew.
func (s *Snapshots) Clear() { s.chain.clear(s.cfg.KeyGroups) }

// Wait returns when nothing is being written any more. End the contexts of Take first.
func (s *Snapshots) Wait() {
	if s.writer != nil {
		s.writer.group.Wait()
	}
}

// Snapshot is what a vote says of the state.
type Snapshot struct {
	Parts []participant.StatePart
	// Ready returns when all parts are durable; only then may the vote leave. It may be called at any time
	// and again. Nil: they are.
	Ready func(ctx context.Context) error
}

// Take makes the snapshot for the epoch that the barrier ends: meta, and keyed, which may be nil. It copies
// what is to be written and returns; the writing goes on beside the caller until Ready returns, or ctx ends, which
// must live as long as the generation. It waits while too much is on its way to the store. Limit is how many bytes a
// vote may carry. After an error s can't be used but for Load or Clear.
func (s *Snapshots) Take(ctx context.Context, b participant.Barrier, meta []byte, keyed state.Keyed, limit int) (Snapshot, error) {
	if keyed == nil {
		return s.inline(b, s.whole(meta), limit)
	}
	size := keyed.Index()
	if len(s.chain.links) > 0 && !size.Touched {
		return s.chained(b, meta, size, limit)
	}
	fits, err := s.small(b, meta, keyed, size, limit)
	if err != nil || len(fits.Parts) > 0 {
		return fits, err
	}
	if s.cfg.Store == nil {
		return Snapshot{}, fmt.Errorf("%w: the state has about %d bytes and a vote carries at most %d; give the pipeline a StateStore",
			participant.ErrMisconfigured, len(meta)+size.Entries*s.perEntry, limit)
	}
	writes, err := s.extend(ctx, b, keyed, size, limit)
	if err != nil {
		return Snapshot{}, err
	}
	snap, err := s.chained(b, meta, size, limit)
	if len(writes) > 0 && !mutant.On("checkpoint/durable-before-vote") {
		snap.Ready = func(ctx context.Context) error { return ready(ctx, writes) }
	}
	return snap, err
}

// whole begins the payload of a first part that has everything.
func (s *Snapshots) whole(meta []byte) []byte {
	p := append(s.payload[:0], sectionWhole)
	p = binary.AppendUvarint(p, uint64(len(meta)))
	s.payload = append(p, meta...)
	return s.payload
}

// first is the first part of a snapshot, which is inline in the vote.
func (s *Snapshots) first(b participant.Barrier, payload []byte) (participant.StatePart, error) {
	body, err := s.frames.AppendSealed(nil, state.Base, payload)
	return participant.StatePart{
		ID: s.cfg.id(b, 0), Operator: s.cfg.Operator, KeyGroupLast: s.cfg.KeyGroups - 1, Body: body,
	}, err
}

// inline is a snapshot of one part.
func (s *Snapshots) inline(b participant.Barrier, payload []byte, limit int) (Snapshot, error) {
	p, err := s.first(b, payload)
	if err == nil && len(p.Body) > limit {
		err = fmt.Errorf("%w: the state beside the keyed one needs %d bytes and a vote carries at most %d; split the pipeline into shards",
			participant.ErrMisconfigured, len(p.Body), limit)
	}
	return Snapshot{Parts: []participant.StatePart{p}}, err
}

// small is the snapshot inline in the vote, or empty if it does not fit.
func (s *Snapshots) small(b participant.Barrier, meta []byte, keyed state.Keyed, size state.Size, limit int) (Snapshot, error) {
	// Compression hardly saves more than that. A state that has parts in the store must be plainly small.
	most, guess := 16*limit, size.Entries*s.perEntry
	if guess > 4*most || len(s.chain.links) > 0 && guess > limit {
		return Snapshot{}, nil
	}
	p := s.whole(meta)
	begin := len(p)
	for g, n := range size.Groups {
		if n > 0 {
			p = keyed.AppendGroup(binary.AppendUvarint(p, uint64(g)), uint32(g)) // no more than there are groups
		}
		if len(p) > most {
			break
		}
	}
	s.payload = p
	if len(p) > most {
		return Snapshot{}, nil
	}
	first, err := s.first(b, p)
	if err != nil || len(first.Body) > limit {
		return Snapshot{}, err
	}
	s.wrote(len(p)-begin, size.Entries)
	s.Clear()
	keyed.Settle()
	return Snapshot{Parts: []participant.StatePart{first}}, nil
}

func (s *Snapshots) wrote(bytes, entries int) {
	if entries > 0 {
		s.perEntry = max(1, bytes/entries)
	}
}

// chained is the snapshot whose keyed state is the chain.
func (s *Snapshots) chained(b participant.Barrier, meta []byte, size state.Size, limit int) (Snapshot, error) {
	p := append(s.payload[:0], sectionChain)
	p = binary.AppendUvarint(p, uint64(len(meta)))
	p = appendChain(append(p, meta...), &s.chain, size)
	s.payload = p
	snap, err := s.inline(b, p, limit)
	for _, l := range s.chain.links {
		part := l.part
		part.Body = slices.Clone(part.Body) // the vote's own
		snap.Parts = append(snap.Parts, part)
	}
	return snap, err
}

// extend writes what the epoch has changed, or a new base, and makes it a part of the chain.
func (s *Snapshots) extend(ctx context.Context, b participant.Barrier, keyed state.Keyed, size state.Size, limit int) ([]*write, error) {
	s.chain.unseal()
	p := s.chain.plan(size)
	var gone []int64
	target := mostPart
	if p.base {
		s.chain.clear(s.cfg.KeyGroups)
		target = min(max(size.Entries*s.perEntry/baseParts, leastPart), mostPart)
	} else {
		gone = keyed.Gone()
	}
	e := epochWriter{s: s, b: b, plan: p, room: min(inlineChange, limit/8)}
	bytes, entries := 0, 0
	for g := uint32(0); g < s.cfg.KeyGroups; {
		slot, err := s.writer.slot(ctx)
		if err != nil {
			return nil, err
		}
		var w partWriter
		w.begin(slot.payload, s.cfg.id(b, e.parts+1), s.chain.last(), p.sealed, g, gone)
		gone = nil
		for ; g < s.cfg.KeyGroups && len(w.buf) < target && err == nil; g++ {
			err = w.group(keyed, g, p.whole.has(g), size.Groups[g])
		}
		w.end(g - 1)
		slot.payload = w.buf
		if err == nil {
			err = e.part(ctx, slot, &w, g-1)
		} else {
			s.writer.free <- slot
		}
		if err != nil {
			return nil, err
		}
		bytes, entries = bytes+len(w.buf), entries+w.info.entries
	}
	s.chain.prune()
	if p.sealed {
		s.wrote(bytes, entries)
		keyed.Settle()
	}
	return e.writes, nil
}

// epochWriter takes the parts of one epoch to the store and into the chain.
type epochWriter struct {
	s      *Snapshots
	b      participant.Barrier
	plan   plan
	room   int // for a change that stays in the vote, bytes
	parts  int
	writes []*write
}

// part takes one part, whose slot it gives back.
func (e *epochWriter) part(ctx context.Context, at *slot, w *partWriter, last uint32) error {
	s := e.s
	e.parts++
	part := participant.StatePart{
		ID: s.cfg.id(e.b, e.parts), Operator: s.cfg.Operator, KeyGroupFirst: w.first, KeyGroupLast: last,
	}
	kind := state.Change
	if e.plan.base {
		kind = state.Base
	}
	if !e.plan.sealed && e.parts == 1 && last == s.cfg.KeyGroups-1 && len(w.buf) <= e.room {
		defer func() { s.writer.free <- at }()
		body, err := at.frames.AppendSealed(nil, kind, at.payload)
		if err != nil {
			return err
		}
		part.Body = body
	} else {
		part.Store = s.cfg.Store.Name()
		e.writes = append(e.writes, s.writer.put(ctx, at, kind, s.cfg.Scope+part.ID))
	}
	s.chain.add(link{part, w.info})
	return nil
}
