package state

// sessionChanges is what has changed in Sessions since the last Settle.
type sessionChanges struct {
	list []int32 // places of the slab that were opened or changed
	gone []gone  // sessions that were there at the last Settle, and are not now
	keys []byte  // of gone
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
	c.list, c.gone, c.keys = c.list[:0], c.gone[:0], c.keys[:0]
	clear(c.heads)
	clear(c.sizes)
}

// changed notes that a session is new or has changed.
func (s *Sessions[A]) changed(i int32) {
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
