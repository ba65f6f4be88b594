package state

import (
	"bytes"
	"cmp"
	"slices"
)

// Span is a session's time, [Start, End).
type Span struct{ Start, End int64 }

// Fold says how records come into sessions. Add folds in the record at hand.
type Fold[A any] struct {
	Init  func(acc *A)
	Add   func(acc *A) error
	Merge func(acc, other *A) error
}

// Sessions holds open sessions by key. Two open sessions of one key never overlap or touch. What it
// does depends on the order of calls alone. It is not safe for concurrent use; the zero value is ready.
type Sessions[A any] struct {
	slab  []session[A]
	free  []int32 // of slab
	live  int
	keys  []byte // of all sessions, one after the other, with holes
	holes int    // bytes in keys that belong to no session
	slots []int32
	ends  endHeap
	joins []int32 // of the last find
	due   []int32
	track sessionChanges
}

type session[A any] struct {
	hash       uint64
	start, end int64
	off        int
	size       uint32 // of the key
	// turn tells the sessions that had this place in the slab one after the other apart.
	turn  uint32
	marks sessionMark
	// next and prev link the sessions of a key group: places in the slab plus 1.
	next, prev int32
	acc        A
}

type sessionMark uint8

const (
	// inUse: the place holds a session.
	inUse sessionMark = 1 << iota
	// listed: the place is in the list of changes.
	listed
	// settled: the session was there at the last Settle, with this start.
	settled
	// linked: the session is in the list of its group.
	linked
)

// Len is the number of open sessions.
func (s *Sessions[A]) Len() int { return s.live }

// Add takes the record at hand, of time at, into the session [at, at+gap), joined with all sessions of
// its key that this overlaps or touches. Sessions that end at closed or before are over, whether Fire
// has been called for them or not, and take nothing. If the joined session would be over too, the record
// is late: then, and after an error, nothing has changed. Accumulators are merged in the order of the
// sessions' starts, and the record comes last.
func (s *Sessions[A]) Add(hash uint64, key []byte, at, gap, closed int64, fold *Fold[A]) (span Span, late bool, err error) {
	span = s.find(hash, key, at, gap, closed)
	if span.End <= closed {
		return span, true, nil
	}
	switch len(s.joins) {
	case 0:
		i := s.open(hash, key, span)
		fold.Init(&s.slab[i].acc)
		if err := fold.Add(&s.slab[i].acc); err != nil {
			s.remove(i)
			return span, false, err
		}
		return span, false, nil
	case 1:
		if err := fold.Add(&s.slab[s.joins[0]].acc); err != nil {
			return span, false, err
		}
	default:
		var joined A // the old ones stay as they are until nothing can fail any more
		fold.Init(&joined)
		for _, i := range s.joins {
			if err := fold.Merge(&joined, &s.slab[i].acc); err != nil {
				return span, false, err
			}
		}
		if err := fold.Add(&joined); err != nil {
			return span, false, err
		}
		s.slab[s.joins[0]].acc = joined
		for _, i := range s.joins[1:] {
			s.remove(i)
		}
	}
	s.stretch(s.joins[0], span)
	return span, false, nil
}

// Span is what Add would return; span.End <= closed says that the record would be late.
func (s *Sessions[A]) Span(hash uint64, key []byte, at, gap, closed int64) Span {
	return s.find(hash, key, at, gap, closed)
}

// find lists in joins, by start, which open sessions [at, at+gap) is to be joined with.
func (s *Sessions[A]) find(hash uint64, key []byte, at, gap, closed int64) Span {
	span := Span{at, at + gap}
	s.joins = s.joins[:0]
	s.probe(hash, key, func(i int32) bool {
		x := &s.slab[i]
		if x.end > closed && x.start <= at+gap && at <= x.end {
			s.joins = append(s.joins, i)
			span.Start, span.End = min(span.Start, x.start), max(span.End, x.end)
		}
		return true
	})
	if len(s.joins) > 1 {
		slices.SortFunc(s.joins, func(a, b int32) int { return cmp.Compare(s.slab[a].start, s.slab[b].start) })
	}
	return span
}

// First is a time before which no session ends; false: none is open.
func (s *Sessions[A]) First() (end int64, ok bool) {
	for len(s.ends) > 0 {
		x := &s.slab[s.ends[0].place]
		if x.turn == s.ends[0].turn && x.marks&inUse != 0 {
			return s.ends[0].end, true
		}
		s.ends.pop()
	}
	return 0, false
}

// Fire calls f for every session that ends at upTo or before, in the order of ends, then of the keys'
// bytes, then of starts, and forgets it. Key and acc must not be kept. f must not call s. After an error
// of f the sessions from there on are still open.
func (s *Sessions[A]) Fire(upTo int64, f func(key []byte, span Span, acc *A) error) error {
	s.due = s.due[:0]
	for len(s.ends) > 0 && s.ends[0].end <= upTo {
		item := s.ends.pop()
		x := &s.slab[item.place]
		switch {
		case x.turn != item.turn || x.marks&inUse == 0: // it was joined with another
		case x.end > upTo: // it has grown since it was put here
			s.ends.push(ending{x.end, item.place, item.turn})
		default:
			s.due = append(s.due, item.place)
		}
	}
	slices.SortFunc(s.due, func(a, b int32) int {
		x, y := &s.slab[a], &s.slab[b]
		return cmp.Or(cmp.Compare(x.end, y.end), bytes.Compare(s.key(x), s.key(y)), cmp.Compare(x.start, y.start))
	})
	for n, i := range s.due {
		x := &s.slab[i]
		if err := f(s.key(x), Span{x.start, x.end}, &x.acc); err != nil {
			for _, i := range s.due[n:] {
				s.ends.push(ending{s.slab[i].end, i, s.slab[i].turn})
			}
			return err
		}
		s.remove(i)
	}
	return nil
}

// Reset forgets everything, and keeps the memory.
func (s *Sessions[A]) Reset() {
	clear(s.slab) // accumulators may hold pointers
	clear(s.slots)
	s.slab, s.free, s.keys, s.ends = s.slab[:0], s.free[:0], s.keys[:0], s.ends[:0]
	s.live, s.holes = 0, 0
	s.track.reset()
}

func (s *Sessions[A]) key(x *session[A]) []byte {
	end := x.off + int(x.size)
	return s.keys[x.off:end:end]
}

// probe calls f for every session of a key until it returns false. f must not change s.
func (s *Sessions[A]) probe(hash uint64, key []byte, f func(i int32) bool) {
	if len(s.slots) == 0 {
		return
	}
	mask := uint64(len(s.slots) - 1)
	for at := mix(hash) & mask; s.slots[at] != 0; at = (at + 1) & mask {
		x := &s.slab[s.slots[at]-1]
		if x.hash == hash && bytes.Equal(s.key(x), key) && !f(s.slots[at]-1) {
			return
		}
	}
}

// open makes a session, without joining any.
func (s *Sessions[A]) open(hash uint64, key []byte, span Span) int32 {
	if (s.live+1)*4 >= len(s.slots)*3 {
		s.grow(max(minSlots, len(s.slots)*2))
	}
	s.tidy()
	i := int32(len(s.slab)) // 2^31 sessions do not fit into memory
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.slab = append(s.slab, session[A]{})
	}
	x := &s.slab[i]
	x.hash, x.start, x.end, x.off, x.size = hash, span.Start, span.End, len(s.keys), uint32(len(key))
	x.turn++
	x.marks |= inUse
	s.keys = append(s.keys, key...)
	s.live++
	mask := uint64(len(s.slots) - 1)
	at := mix(hash) & mask
	for s.slots[at] != 0 {
		at = (at + 1) & mask
	}
	s.slots[at] = i + 1
	s.ends.push(ending{span.End, i, x.turn})
	s.changed(i)
	return i
}

// stretch gives a session another time, which holds its old one.
func (s *Sessions[A]) stretch(i int32, span Span) {
	x := &s.slab[i]
	if span.Start != x.start {
		s.forget(x) // its old start is a part of its name in snapshots
	}
	x.start, x.end = span.Start, span.End
	s.changed(i)
}

func (s *Sessions[A]) remove(i int32) {
	x := &s.slab[i]
	s.track.touched = true
	s.forget(x)
	s.unlink(x)
	s.unslot(i)
	s.holes += int(x.size)
	s.live--
	var none A
	x.acc = none
	x.marks &= listed
	s.free = append(s.free, i)
}

// unslot takes a session out of the slots and moves back what stood behind it for want of its slot.
func (s *Sessions[A]) unslot(i int32) {
	mask := uint64(len(s.slots) - 1)
	at := mix(s.slab[i].hash) & mask
	for s.slots[at] != i+1 {
		at = (at + 1) & mask
	}
	for next := (at + 1) & mask; s.slots[next] != 0; next = (next + 1) & mask {
		home := mix(s.slab[s.slots[next]-1].hash) & mask
		if (next-home)&mask >= (next-at)&mask { // at lies between its home and where it is
			s.slots[at] = s.slots[next]
			at = next
		}
	}
	s.slots[at] = 0
}

func (s *Sessions[A]) grow(n int) {
	s.slots = make([]int32, n)
	mask := uint64(n - 1) // positive
	for k := range s.slab {
		if s.slab[k].marks&inUse == 0 {
			continue
		}
		at := mix(s.slab[k].hash) & mask
		for s.slots[at] != 0 {
			at = (at + 1) & mask
		}
		s.slots[at] = int32(k + 1) // as in open
	}
}

// leastHoles is how many bytes of keys may be wasted before it is worth to move them.
const leastHoles = 64 << 10

// tidy makes the keys dense again when more than half of their memory is holes.
func (s *Sessions[A]) tidy() {
	if s.holes < leastHoles || s.holes*2 < len(s.keys) {
		return
	}
	dense := make([]byte, 0, len(s.keys))
	for k := range s.slab {
		x := &s.slab[k]
		if x.marks&inUse == 0 {
			continue
		}
		off := len(dense)
		dense = append(dense, s.key(x)...)
		x.off = off
	}
	s.keys, s.holes = dense, 0
}

// ending is when a session ended when it was put into the heap; it may end later by now.
type ending struct {
	end   int64
	place int32
	turn  uint32
}

// endHeap has the least end first.
type endHeap []ending

func (h *endHeap) push(e ending) {
	x := append(*h, e)
	for i := len(x) - 1; i > 0; {
		up := (i - 1) / 2
		if x[up].end <= x[i].end {
			break
		}
		x[up], x[i] = x[i], x[up]
		i = up
	}
	*h = x
}

func (h *endHeap) pop() ending {
	x := *h
	least, last := x[0], len(x)-1
	x[0] = x[last]
	x = x[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && x[down+1].end < x[down].end {
			down++
		}
		if x[i].end <= x[down].end {
			break
		}
		x[i], x[down] = x[down], x[i]
		i = down
	}
	*h = x
	return least
}
