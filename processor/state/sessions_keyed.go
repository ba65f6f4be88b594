package state

import "encoding/binary"

// OfSessions is the snapshots' view of s; as [OfWindows]. An entry's start is that of its session, and
// its value begins with how long the session is.
func OfSessions[A any](s *Sessions[A], groups uint32, put func(dst []byte, acc *A) []byte, get func(src []byte, acc *A) error) Keyed {
	return &sessionsView[A]{s: s, groups: groups, put: put, get: get}
}

type sessionsView[A any] struct {
	s      *Sessions[A]
	groups uint32
	put    func(dst []byte, acc *A) []byte
	get    func(src []byte, acc *A) error

	sizes   []int
	changed int
	sorted  bool // changes and removed are of the last Index
	changes byGroup
	removed byGroup
	scratch []byte
}

func (v *sessionsView[A]) Index() Size {
	c := &v.s.track
	v.s.link(v.groups)
	if len(v.sizes) != int(v.groups) {
		v.sizes = make([]int, v.groups)
	}
	for g, n := range c.sizes {
		v.sizes[g] = int(n)
	}
	v.changed, v.sorted = 0, false
	v.eachChange(func(uint64, ref) { v.changed++ })
	size := Size{Entries: v.s.live, Groups: v.sizes, Changed: v.changed + len(c.gone), Touched: c.touched}
	if size.Entries >= largeWindow {
		size.Windows = []Window{{Entries: size.Entries}}
	}
	c.touched = false
	return size
}

func (v *sessionsView[A]) AppendGroup(dst []byte, group uint32) []byte {
	dst = binary.AppendUvarint(dst, uint64(v.sizes[group])) // not negative
	for at := v.s.track.heads[group]; at != 0; at = v.s.slab[at-1].next {
		dst = v.entry(dst, at-1)
	}
	return dst
}

func (v *sessionsView[A]) AppendChanges(dst []byte, group uint32) []byte {
	if !v.sorted {
		v.changes.sort(v.groups, v.changed, v.eachChange)
		v.removed.sort(v.groups, len(v.s.track.gone), v.eachGone)
		v.sorted = true
	}
	refs := v.removed.of(group)
	dst = binary.AppendUvarint(dst, uint64(len(refs)))
	for _, r := range refs {
		x := &v.s.track.gone[r.entry]
		dst = appendBytes(binary.AppendVarint(dst, x.start), v.s.track.keys[x.off:x.end])
	}
	refs = v.changes.of(group)
	dst = binary.AppendUvarint(dst, uint64(len(refs)))
	for _, r := range refs {
		dst = v.entry(dst, r.entry)
	}
	return dst
}

func (v *sessionsView[A]) eachChange(add func(hash uint64, r ref)) {
	for _, i := range v.s.track.list {
		if x := &v.s.slab[i]; x.marks&inUse != 0 {
			add(x.hash, ref{entry: i})
		}
	}
}

func (v *sessionsView[A]) eachGone(add func(hash uint64, r ref)) {
	for i := range v.s.track.gone {
		add(v.s.track.gone[i].hash, ref{entry: int32(i)}) // no more than sessions
	}
}

func (v *sessionsView[A]) entry(dst []byte, i int32) []byte {
	x := &v.s.slab[i]
	v.scratch = binary.AppendUvarint(v.scratch[:0], uint64(x.end-x.start)) // not negative
	v.scratch = v.put(v.scratch, &x.acc)
	return appendEntry(dst, x.start, v.s.key(x), v.scratch)
}

// Gone is empty: sessions of one start have nothing else in common.
func (v *sessionsView[A]) Gone() []int64 { return nil }

func (v *sessionsView[A]) Settle() { v.s.settle() }

func (v *sessionsView[A]) Reserve(_ int64, entries int) { v.s.reserve(entries) }

func (v *sessionsView[A]) Put(start int64, hash uint64, key, value []byte) error {
	d := Decoder{Rest: value}
	length := d.Uvarint()
	if d.Err != nil {
		return d.Err
	}
	end := start + int64(length)
	if length == 0 || end <= start {
		return errNoSpan
	}
	i := v.s.at(start, hash, key)
	if i < 0 {
		i = v.s.open(hash, key, Span{start, end})
	} else {
		v.s.replace(i, end)
	}
	return v.get(d.Rest, &v.s.slab[i].acc)
}

func (v *sessionsView[A]) Remove(start int64, hash uint64, key []byte) error {
	i := v.s.at(start, hash, key)
	if i < 0 {
		return errNotThere
	}
	v.s.remove(i)
	return nil
}

func (v *sessionsView[A]) Drop(int64) {}
