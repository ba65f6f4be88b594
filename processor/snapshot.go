package processor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

// A snapshot is a list of parts. The first is always inline in the vote: the operator's meta, and the
// keyed state too if all of it fits. Otherwise the keyed state lies in further parts in a store, cut
// at key groups. Ids are "<member>.<operator>.<generation>.<n>.<index>", so a part belongs to one
// member and one epoch, for ever; in the store "<pipeline>.<shard>." stands before them.

const (
	// partTarget is the size from which a part in a store is closed, bytes before compression.
	partTarget = 1 << 20

	// What is in a part's payload: first byte.
	sectionWhole = 1 // length of meta (uvarint), meta, keyed state
	sectionKeyed = 2 // keyed state
)

// snapshotter writes, reads and deletes the snapshots of one member's operator.
type snapshotter struct {
	scope     string // "<pipeline>.<shard>."
	member    string
	operator  string
	keyGroups uint32
	store     state.Store // nil: none

	// stored are the store's parts of the last snapshot, good again while the keyed state is unchanged.
	stored  []participant.StatePart
	payload []byte
	frames  state.Framer
}

// take makes a snapshot for the epoch that the barrier ends. Parts in the store are durable on return.
func (s *snapshotter) take(ctx context.Context, op operator, b participant.Barrier, limit int) ([]participant.StatePart, error) {
	meta := op.meta(nil)
	keyed, touched := s.encode(op.keyed())
	if len(s.stored) > 0 && !touched {
		return s.split(b, meta, limit)
	}
	if len(keyed.Bytes) <= 16*limit { // compression hardly saves more
		whole := s.first(b, meta, keyed.Bytes)
		if len(whole.Body) <= limit {
			s.stored = nil
			return []participant.StatePart{whole}, nil
		}
	}
	if s.store == nil {
		return nil, fmt.Errorf("%w: the state has %d bytes and a vote carries at most %d; give the pipeline a StateStore",
			participant.ErrMisconfigured, len(keyed.Bytes)+len(meta), limit)
	}
	var err error
	if s.stored, err = s.put(ctx, b, keyed); err != nil {
		return nil, err
	}
	return s.split(b, meta, limit)
}

type encoded struct {
	Bytes  []byte
	Groups []bound
}

type bound struct {
	Group uint32
	Off   int
}

func (s *snapshotter) encode(k state.Keyed) (out encoded, touched bool) {
	if k == nil {
		return out, false
	}
	size := k.Index()
	for g, n := range size.Groups {
		if n > 0 {
			out.Groups = append(out.Groups, bound{uint32(g), len(out.Bytes)})
			out.Bytes = binary.AppendUvarint(out.Bytes, uint64(g))
			out.Bytes = k.AppendGroup(out.Bytes, uint32(g))
		}
	}
	k.Settle()
	return out, size.Touched
}

// split is the snapshot whose keyed state lies in the store.
func (s *snapshotter) split(b participant.Barrier, meta []byte, limit int) ([]participant.StatePart, error) {
	first := s.first(b, meta, nil)
	if len(first.Body) > limit {
		return nil, fmt.Errorf("%w: the watermarks of all splits need %d bytes and a vote carries at most %d; split the pipeline into shards",
			participant.ErrMisconfigured, len(first.Body), limit)
	}
	return append([]participant.StatePart{first}, slices.Clone(s.stored)...), nil
}

// first is the inline part.
func (s *snapshotter) first(b participant.Barrier, meta, keyed []byte) participant.StatePart {
	p := append(s.payload[:0], sectionWhole)
	p = binary.AppendUvarint(p, uint64(len(meta)))
	p = append(p, meta...)
	p = append(p, keyed...)
	s.payload = p
	return participant.StatePart{
		ID: s.id(b, 0), Operator: s.operator, KeyGroupLast: s.keyGroups - 1, Body: s.frames.Seal(state.Base, p),
	}
}

// put writes the keyed state to the store, cut at key groups.
func (s *snapshotter) put(ctx context.Context, b participant.Barrier, keyed encoded) ([]participant.StatePart, error) {
	var parts []participant.StatePart
	groups := keyed.Groups
	for len(groups) > 0 {
		n := 1
		for n < len(groups) && groups[n].Off-groups[0].Off < partTarget {
			n++
		}
		end := len(keyed.Bytes)
		if n < len(groups) {
			end = groups[n].Off
		}
		part := participant.StatePart{
			ID: s.id(b, len(parts)+1), Operator: s.operator, Store: s.store.Name(),
			KeyGroupFirst: groups[0].Group, KeyGroupLast: groups[n-1].Group,
		}
		s.payload = append(append(s.payload[:0], sectionKeyed), keyed.Bytes[groups[0].Off:end]...)
		if err := s.store.Put(ctx, s.scope+part.ID, s.frames.Seal(state.Base, s.payload)); err != nil {
			return nil, err
		}
		parts, groups = append(parts, part), groups[n:]
	}
	return parts, nil
}

// load gives a restore point's state to a new operator, then deletes what nothing names any longer.
func (s *snapshotter) load(ctx context.Context, r participant.Restore) (meta []byte, keyed [][]byte, err error) {
	s.stored = nil
	for _, p := range r.Parts {
		if p.Operator != s.operator {
			return nil, nil, fmt.Errorf("%w: restore point %d.%d has state of operator %q, and the pipeline has only %q; run the old specification, or start from scratch",
				participant.ErrMisconfigured, r.RestoreGeneration, r.RestoreN, p.Operator, s.operator)
		}
		body, err := s.body(ctx, p)
		if err != nil {
			return nil, nil, fmt.Errorf("state part %s: %w", p.ID, err)
		}
		kind, payload, err := s.frames.Open(body)
		if err != nil {
			return nil, nil, fmt.Errorf("state part %s: %w", p.ID, err)
		}
		if kind != state.Base || len(payload) == 0 {
			return nil, nil, fmt.Errorf("state part %s: %w: this program reads whole snapshots only", p.ID, state.ErrFormat)
		}
		switch payload[0] {
		case sectionWhole:
			d := state.Decoder{Rest: payload[1:]}
			meta = d.Bytes()
			if d.Err != nil {
				return nil, nil, fmt.Errorf("state part %s: %w", p.ID, d.Err)
			}
			keyed = append(keyed, d.Rest)
		case sectionKeyed:
			keyed = append(keyed, payload[1:])
		default:
			return nil, nil, fmt.Errorf("state part %s: %w: unknown section", p.ID, state.ErrFormat)
		}
		if p.Store != "" {
			s.stored = append(s.stored, p)
		}
	}
	if meta == nil {
		return nil, nil, fmt.Errorf("%w: restore point %d.%d holds no state of operator %q; start from scratch if that is meant",
			participant.ErrMisconfigured, r.RestoreGeneration, r.RestoreN, s.operator)
	}
	return meta, keyed, nil
}

func (s *snapshotter) body(ctx context.Context, p participant.StatePart) ([]byte, error) {
	switch {
	case p.Store == "":
		return p.Body, nil
	case s.store == nil:
		return nil, fmt.Errorf("%w: it lies in %s, and the pipeline has no StateStore", participant.ErrMisconfigured, p.Store)
	}
	body, err := s.store.Get(ctx, s.scope+p.ID)
	if errors.Is(err, state.ErrNoPart) {
		return nil, fmt.Errorf("%w: it was written to %s: %w", participant.ErrMisconfigured, p.Store, err)
	}
	return body, err
}

// sweep deletes this member's parts of older generations that no kept restore point names. Parts
// of its own and newer generations are left alone: a process that was paused here for long would
// otherwise delete what its successor has written since.
func (s *snapshotter) sweep(ctx context.Context, generation uint64, kept []string) error {
	if s.store == nil {
		return nil
	}
	ids, err := s.store.List(ctx, s.scope+s.member+".")
	if err != nil {
		return err
	}
	named := make(map[string]bool, len(kept))
	for _, id := range kept {
		named[id] = true
	}
	for _, stored := range ids {
		id := strings.TrimPrefix(stored, s.scope)
		part, ok := parsePart(id)
		if !ok || part.member != s.member || part.generation >= generation || named[id] {
			continue
		}
		if err := s.store.Delete(ctx, stored); err != nil {
			return err
		}
	}
	return nil
}

// retired deletes parts that no restore point names any longer, as the ledger has said.
func (s *snapshotter) retired(ctx context.Context, ids []string) error {
	if s.store == nil {
		return nil
	}
	for _, id := range ids {
		// What is inline lies in no store.
		if part, ok := parsePart(id); !ok || part.member != s.member || part.index == 0 {
			continue
		}
		if err := s.store.Delete(ctx, s.scope+id); err != nil {
			return err
		}
	}
	return nil
}

func (s *snapshotter) id(b participant.Barrier, index int) string {
	return fmt.Sprintf("%s.%s.%d.%d.%d", s.member, s.operator, b.Generation, b.N, index)
}

// partName is what an id says.
type partName struct {
	member, operator     string
	generation, n, index uint64
}

// parsePart reads whose a part is; ids are parsed, never matched by prefix (L9).
func parsePart(id string) (p partName, ok bool) {
	f := strings.Split(id, ".")
	if len(f) != 5 {
		return p, false
	}
	p.member, p.operator = f[0], f[1]
	for i, to := range []*uint64{&p.generation, &p.n, &p.index} {
		v, err := strconv.ParseUint(f[2+i], 10, 64)
		if err != nil {
			return p, false
		}
		*to = v
	}
	return p, true
}
