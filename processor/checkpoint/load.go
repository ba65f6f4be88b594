package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

// Load gives a restore point's state to a new operator: begin gets what was meta, and returns where the
// keyed state goes, which must be empty. Parts are read side by side, a few at a time. What is damaged, missing,
// out of order or of a newer version is refused by name. The next Take goes on from there.
func (s *Snapshots) Load(ctx context.Context, r participant.Restore, begin func(meta []byte) (state.Keyed, error)) error {
	s.Clear()
	for _, p := range r.Parts {
		if p.Operator != s.cfg.Operator {
			return fmt.Errorf("%w: restore point %d.%d has state of operator %q, and the pipeline has only %q; run the old specification, or start from scratch",
				participant.ErrMisconfigured, r.RestoreGeneration, r.RestoreN, p.Operator, s.cfg.Operator)
		}
	}
	if len(r.Parts) == 0 {
		return fmt.Errorf("%w: restore point %d.%d holds no state of operator %q; start from scratch if that is meant",
			participant.ErrMisconfigured, r.RestoreGeneration, r.RestoreN, s.cfg.Operator)
	}
	l := loader{s: s, parts: r.Parts[1:]}
	if err := l.first(ctx, r.Parts[0], begin); err != nil {
		return fmt.Errorf("state part %s: %w", r.Parts[0].ID, err)
	}
	if err := l.rest(ctx); err != nil {
		return err
	}
	if l.keyed == nil {
		return nil
	}
	s.chain.resume()
	size := l.keyed.Index() // from here on it is untouched
	if l.chained && size.Entries != l.info.entries {
		return fmt.Errorf("state part %s: %w: the parts make %d entries, and there should be %d", r.Parts[0].ID, state.ErrFormat, size.Entries, l.info.entries)
	}
	return nil
}

// loader reads one snapshot.
type loader struct {
	s     *Snapshots
	parts []participant.StatePart // all but the first
	keyed state.Keyed             // nil: the operator has none
	// chained: the parts are a chain, and info says which. Older programs wrote whole snapshots only.
	chained bool
	info    chainInfo
	// wholeIn is the index of the newest part in which each group is whole.
	wholeIn []int
}

// first reads what the operator remembers beside the keyed state, and what other parts there must be.
func (l *loader) first(ctx context.Context, p participant.StatePart, begin func(meta []byte) (state.Keyed, error)) error {
	body, err := l.s.body(ctx, p)
	if err != nil {
		return err
	}
	_, payload, err := l.s.frames.Open(body)
	if err != nil {
		return err
	}
	d := state.Decoder{Rest: payload}
	section, meta := d.Byte(), d.Bytes()
	if d.Err != nil {
		return d.Err
	}
	if section != sectionWhole && section != sectionChain {
		return notFirst(section)
	}
	// Whose state it is comes first: of another operator's, nothing else need be in order.
	if l.keyed, err = begin(meta); err != nil {
		return err
	}
	if l.chained = section == sectionChain; l.chained {
		l.info = readChain(&d, l.s.cfg.KeyGroups)
		if d.Err == nil && len(d.Rest) > 0 {
			d.Err = fmt.Errorf("%w: there is something behind its end", state.ErrFormat)
		}
		if d.Err == nil {
			d.Err = l.expected()
		}
		if d.Err != nil {
			return d.Err
		}
	}
	if l.chained && l.keyed == nil || l.keyed == nil && len(l.parts)+len(d.Rest) > 0 {
		return fmt.Errorf("%w: it has keyed state, and the operator keeps none", state.ErrFormat)
	}
	if l.chained {
		for _, w := range l.info.windows {
			l.keyed.Reserve(w.Start, w.Entries)
		}
		return nil
	}
	if len(d.Rest) == 0 {
		return nil
	}
	return state.DecodeWhole(d.Rest, l.s.cfg.KeyGroups, l.keyed)
}

func notFirst(section byte) error {
	if section > sectionChain {
		return fmt.Errorf("%w: its section %d is newer than this program", state.ErrFormat, section)
	}
	return fmt.Errorf("%w: it is no first part of a snapshot", state.ErrFormat)
}

// expected compares the parts that the restore point names with those that the first part counts on.
func (l *loader) expected() error {
	n := len(l.info.links)
	if len(l.parts) != n {
		return fmt.Errorf("%w: the restore point names %d parts of the keyed state, and there should be %d", state.ErrFormat, len(l.parts), n)
	}
	if last := l.info.last; n == 0 || placeOf(l.parts[n-1].ID) != last {
		return fmt.Errorf("%w: the last part of the keyed state should be number %d of epoch %d.%d",
			state.ErrFormat, last.index, last.generation, last.n)
	}
	l.wholeIn = make([]int, l.s.cfg.KeyGroups)
	for g := range l.wholeIn {
		l.wholeIn[g] = -1
	}
	for i, link := range l.info.links {
		for g := link.whole.first; link.whole.has(g); g++ {
			l.wholeIn[g] = i
		}
	}
	for g, at := range l.wholeIn {
		if at < 0 {
			return fmt.Errorf("%w: key group %d is whole in no part of the snapshot", state.ErrFormat, g)
		}
	}
	return nil
}

// rest reads the other parts in their order, some of them ahead.
func (l *loader) rest(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	frames := make(chan *state.Framer, slots) // each is for one part in memory
	for range slots {
		frames <- new(state.Framer)
	}
	fetched := make([]chan fetch, len(l.parts))
	for i := range fetched {
		fetched[i] = make(chan fetch, 1)
	}
	group.Go(func() {
		for i, p := range l.parts {
			select {
			case f := <-frames:
				group.Go(func() { fetched[i] <- l.s.fetch(ctx, p, f) })
			case <-ctx.Done():
				return
			}
		}
	})
	settled := !l.chained // else the next snapshot is a base, whatever has changed
	for i, p := range l.parts {
		var f fetch
		select {
		case f = <-fetched[i]:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !settled && !l.info.links[i].sealed {
			settled = l.settle()
		}
		if f.err == nil {
			f.err = l.apply(i, f.payload)
		}
		if f.err != nil {
			return fmt.Errorf("state part %s: %w", p.ID, f.err)
		}
		frames <- f.frames
	}
	if !settled {
		l.settle()
	}
	return nil
}

// settle says that what was read so far is what later changes build on. What is not sealed comes behind
// it: the next change has it too.
func (l *loader) settle() bool {
	l.keyed.Index()
	l.keyed.Settle()
	return true
}

// fetch is a part that was read.
type fetch struct {
	payload []byte
	frames  *state.Framer
	err     error
}

func (s *Snapshots) fetch(ctx context.Context, p participant.StatePart, frames *state.Framer) fetch {
	body, err := s.body(ctx, p)
	if err != nil {
		return fetch{err: err}
	}
	_, payload, err := frames.Open(body)
	return fetch{payload, frames, err}
}

func (s *Snapshots) body(ctx context.Context, p participant.StatePart) ([]byte, error) {
	switch {
	case p.Store == "":
		return p.Body, nil
	case s.cfg.Store == nil:
		return nil, fmt.Errorf("%w: it lies in %s, and the pipeline has no StateStore; give it that one (state_dir or state_store in a specification)",
			participant.ErrMisconfigured, p.Store)
	}
	body, err := s.cfg.Store.Get(ctx, s.cfg.Scope+p.ID)
	if errors.Is(err, state.ErrNoPart) {
		return nil, fmt.Errorf("%w: %w", participant.ErrMisconfigured, s.missing(p, err))
	}
	return body, err
}

// missing says of a part that its store does not have where it was looked for, and what a person can do.
func (s *Snapshots) missing(p participant.StatePart, err error) error {
	pipeline, shard, _ := strings.Cut(strings.TrimSuffix(s.cfg.Scope, "."), ".")
	next := fmt.Sprintf("`unisink pipeline show %s` lists the kept restore points, and `unisink pipeline rewind %s/%s --to EPOCH` goes back to one whose parts are there",
		pipeline, pipeline, shard)
	if at := s.cfg.Store.Name(); at != p.Store {
		return fmt.Errorf("it was written to %s, and is looked for in %s: let the pipeline use the store that it was written to, or move the parts; else %s: %w", p.Store, at, next, err)
	}
	return fmt.Errorf("it was written to %s, and is not there any more: put it back under its name, from a backup for instance; else %s: %w", p.Store, next, err)
}

// apply puts a part into the state.
func (l *loader) apply(i int, payload []byte) error {
	d := state.Decoder{Rest: payload}
	section := d.Byte()
	switch {
	case d.Err != nil:
		return d.Err
	case section > sectionChain:
		return fmt.Errorf("%w: its section %d is newer than this program", state.ErrFormat, section)
	case !l.chained && section == sectionKeyed:
		return state.DecodeWhole(d.Rest, l.s.cfg.KeyGroups, l.keyed)
	case !l.chained || section != sectionLink:
		return fmt.Errorf("%w: it is no part of such a snapshot", state.ErrFormat)
	}
	head := readHead(&d)
	if d.Err != nil {
		return d.Err
	}
	if err := l.inOrder(i, head); err != nil {
		return err
	}
	for _, start := range head.gone {
		l.keyed.Drop(start)
	}
	groups, next := l.s.cfg.KeyGroups, uint64(0)
	err := readGroups(&d, func(g uint32, body []byte) error {
		if uint64(g) < next || g < head.first || g > head.last {
			return fmt.Errorf("%w: key group %d is out of order", state.ErrFormat, g)
		}
		next = uint64(g) + 1
		switch {
		case l.wholeIn[g] > i: // a later part has all of it
			return nil
		case head.info.whole.has(g):
			return state.DecodeGroup(body, g, groups, l.keyed)
		case mutant.On("checkpoint/every-change"):
			return nil
		default:
			return state.DecodeChanges(body, g, groups, l.keyed)
		}
	})
	if err != nil {
		return err
	}
	l.s.chain.add(link{l.parts[i], head.info})
	return nil
}

// inOrder refuses a part that is not the one that should be here.
func (l *loader) inOrder(i int, h partHead) error {
	p, groups := l.parts[i], l.s.cfg.KeyGroups
	switch {
	case mutant.On("checkpoint/parts-in-order"):
	case h.id != p.ID:
		return fmt.Errorf("%w: what lies there is part %q", state.ErrFormat, h.id)
	case i > 0 && h.after != l.parts[i-1].ID:
		return fmt.Errorf("%w: it comes behind %q, and the restore point names %q before it", state.ErrFormat, h.after, l.parts[i-1].ID)
	case h.info != l.info.links[i]:
		return fmt.Errorf("%w: it holds %+v, and should hold %+v", state.ErrFormat, h.info, l.info.links[i])
	case h.first > h.last || h.last >= groups:
		return fmt.Errorf("%w: key groups %d to %d, of %d", state.ErrFormat, h.first, h.last, groups)
	}
	return nil
}
