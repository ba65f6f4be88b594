package state

import (
	"encoding/binary"
	"slices"
)

const (
	// mostWindows is how many windows a snapshot lists the sizes of.
	mostWindows = 64
	// largeWindow is from how many entries on it is worth to make room for them in advance.
	largeWindow = 1 << 12
)

// OfWindows is the snapshots' view of w, in so many key groups: put appends an accumulator to dst, get
// reads one into acc, which is the zero value. An entry's start is that of its window. Of each w there
// must be one view only.
func OfWindows[A any](w *Windows[A], groups uint32, put func(dst []byte, acc *A) []byte, get func(src []byte, acc *A) error) Keyed {
	return &windowsView[A]{w: w, groups: groups, put: put, get: get}
}

type windowsView[A any] struct {
	w      *Windows[A]
	groups uint32
	put    func(dst []byte, acc *A) []byte
	get    func(src []byte, acc *A) error

	tables  []*Table[A] // in the order of their starts, as of the last Index
	starts  []int64
	windows []Window
	changed int
	sorted  bool // changes is of the last Index
	changes byGroup
	scratch []byte
}

func (v *windowsView[A]) Index() Size {
	c := &v.w.track
	if len(c.sizes) != int(v.groups) {
		c.sizes = make([]int, v.groups)
	}
	size := Size{Groups: c.sizes, Touched: c.touched}
	c.touched = false
	v.starts = append(v.starts[:0], v.w.starts...)
	clear(v.tables)
	v.tables, v.windows = v.tables[:0], v.windows[:0]
	for _, start := range v.starts {
		t := v.w.tables[start]
		v.tables = append(v.tables, t)
		t.link(v.groups, c.sizes)
		size.Touched = size.Touched || t.track.touched
		t.track.touched = false
		size.Entries += t.Len()
		size.Changed += t.changed()
		if t.Len() >= largeWindow && len(v.starts) <= mostWindows {
			v.windows = append(v.windows, Window{start, t.Len()})
		}
	}
	size.Windows = v.windows
	v.changed, v.sorted = size.Changed, false
	return size
}

func (v *windowsView[A]) AppendGroup(dst []byte, group uint32) []byte {
	dst = binary.AppendUvarint(dst, uint64(v.w.track.sizes[group])) // not negative
	for i, t := range v.tables {
		for at := t.track.lists[group].head; at != 0; at = t.entries[at-1].next {
			dst = v.entry(dst, v.starts[i], t, at-1)
		}
	}
	return dst
}

func (v *windowsView[A]) AppendChanges(dst []byte, group uint32) []byte {
	if !v.sorted {
		v.changes.sort(v.groups, v.changed, v.eachChange)
		v.sorted = true
	}
	refs := v.changes.of(group)
	dst = append(dst, 0) // no entry of a window is ever removed alone
	dst = binary.AppendUvarint(dst, uint64(len(refs)))
	for _, r := range refs {
		dst = v.entry(dst, v.starts[r.table], v.tables[r.table], r.entry)
	}
	return dst
}

func (v *windowsView[A]) eachChange(add func(hash uint64, r ref)) {
	for i, t := range v.tables {
		for _, e := range t.track.marked {
			add(t.entries[e].hash, ref{int32(i), e}) // the number of windows is small
		}
		for e := int(t.track.settled); e < len(t.entries); e++ {
			add(t.entries[e].hash, ref{int32(i), int32(e)}) // as in Upsert
		}
	}
}

func (v *windowsView[A]) entry(dst []byte, start int64, t *Table[A], i int32) []byte {
	e := &t.entries[i]
	v.scratch = v.put(v.scratch[:0], &e.acc)
	return appendEntry(dst, start, t.key(e), v.scratch)
}

func (v *windowsView[A]) Gone() []int64 { return slices.Sorted(slices.Values(v.w.track.gone)) }

func (v *windowsView[A]) Settle() {
	v.w.track.gone = v.w.track.gone[:0]
	for _, t := range v.tables {
		t.settle()
	}
}

func (v *windowsView[A]) Reserve(start int64, entries int) { v.w.At(start).reserve(entries) }

func (v *windowsView[A]) Put(start int64, hash uint64, key, value []byte) error {
	acc, made := v.w.At(start).Upsert(hash, key)
	if !made {
		var none A
		*acc = none
	}
	return v.get(value, acc)
}

func (v *windowsView[A]) Remove(int64, uint64, []byte) error { return errNotThere }

func (v *windowsView[A]) Drop(start int64) { v.w.Drop(start) }
