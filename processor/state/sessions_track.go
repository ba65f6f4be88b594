package state

import (
	"errors"
	"slices"
)

var errNoSpan = errors.New("its session has no length")

// sessionChanges is what has changed in Sessions since the last Settle.
type sessionChanges struct {
	touched bool    // since the last look
	list    []int32 // places of the slab that were opened or changed
	gone    []gone  // sessions that were there at the last Settle, and are not now
	keys    []byte  // of gone
	// heads and sizes say, by key group, where the list of its sessions begins (a place plus 1), and
	// how many there are. They are kept from the first snapshot on.
	heads, sizes []int32
}

type gone struct {
	hash     uint64
	start    int64
	off, end int
}

func (c *sessionChanges) reset() {
	c.list, c.gone, c.keys, c.touched = c.list[:0], c.gone[:0], c.keys[:0], true
	clear(c.heads)
	clear(c.sizes)
}

// changed notes that a session is new or has changed.
func (s *Sessions[A]) changed(i int32) {
	s.track.touched = true
	if x := &s.slab[i]; x.marks&listed == 0 {
		x.marks |= listed
		s.track.list = append(s.track.list, i)
	}
}

// forget notes that a session is not there any more under its start.
func (s *Sessions[A]) forget(x *session[A]) {
	if x.marks&settled == 0 {
		return
	}
	x.marks &^= settled
	c := &s.track
	off := len(c.keys)
	c.keys = append(c.keys, s.key(x)...)
	c.gone = append(c.gone, gone{x.hash, x.start, off, len(c.keys)})
}

// link puts what is new into the lists of its groups.
func (s *Sessions[A]) link(groups uint32) {
	c := &s.track
	if len(c.heads) != int(groups) {
		c.heads, c.sizes = make([]int32, groups), make([]int32, groups)
	}
	for _, i := range c.list {
		x := &s.slab[i]
		if x.marks&(inUse|linked) != inUse {
			continue
		}
		x.marks |= linked
		g := Group(x.hash, groups)
		x.prev, x.next = 0, c.heads[g]
		if x.next != 0 {
			s.slab[x.next-1].prev = i + 1
		}
		c.heads[g] = i + 1
		c.sizes[g]++
	}
}

// unlink takes a session out of the list of its group.
func (s *Sessions[A]) unlink(x *session[A]) {
	if x.marks&linked == 0 {
		return
	}
	c := &s.track
	g := Group(x.hash, uint32(len(c.heads))) // the number of groups
	if x.prev != 0 {
		s.slab[x.prev-1].next = x.next
	} else {
		c.heads[g] = x.next
	}
	if x.next != 0 {
		s.slab[x.next-1].prev = x.prev
	}
	x.marks &^= linked
	c.sizes[g]--
}

// at is the place of the session of a key with a start, or -1.
func (s *Sessions[A]) at(start int64, hash uint64, key []byte) int32 {
	found := int32(-1)
	s.probe(hash, key, func(i int32) bool {
		if s.slab[i].start == start {
			found = i
		}
		return found < 0
	})
	return found
}

// replace makes a session one of another end, without records.
func (s *Sessions[A]) replace(i int32, end int64) {
	x := &s.slab[i]
	var none A
	x.acc, x.end = none, end
	x.turn++ // what is in the heap is of the other end
	s.ends.push(ending{end, i, x.turn})
	s.changed(i)
}

// reserve makes room for that many sessions.
func (s *Sessions[A]) reserve(n int) {
	n = min(n, mostReserved)
	s.slab = slices.Grow(s.slab, max(0, n-len(s.slab)))
	slots := max(minSlots, len(s.slots))
	for (n+1)*4 >= slots*3 {
		slots *= 2
	}
	if slots > len(s.slots) {
		s.grow(slots)
	}
}

// settle begins a new list of changes.
func (s *Sessions[A]) settle() {
	for _, i := range s.track.list {
		x := &s.slab[i]
		x.marks &^= listed
		if x.marks&inUse != 0 {
			x.marks |= settled
		}
	}
	s.track.list, s.track.gone, s.track.keys = s.track.list[:0], s.track.gone[:0], s.track.keys[:0]
}
