package state

import (
	"bytes"
	"slices"
)

// Hash is FNV-1a, 64 bits, of a key. It decides a key's group and never changes.
func Hash(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// Group is the key group of a key with that hash, of groups many.
func Group(hash uint64, groups uint32) uint32 {
	return uint32(hash % uint64(groups)) // less than groups
}

// Table holds one accumulator per key. It is not safe for concurrent use. Pointers to accumulators
// are good until the next Upsert, and only what Upsert returned may be changed: that is how the next
// snapshot knows what has changed.
type Table[A any] struct {
	entries []entry[A]
	keys    []byte  // the keys of all entries, one after the other
	slots   []int32 // open addressing; index into entries plus 1, 0 is free
	order   []int32
	track   tableChanges
}

type entry[A any] struct {
	hash uint64
	off  int
	size uint32 // of the key; its highest bit says that the entry is in the list of changes
	next int32  // of the same key group; index into entries plus 1
	acc  A
}

// marked is the highest bit of an entry's size: no key has 2 GiB.
const marked = 1 << 31

const minSlots = 64

// Len is the number of keys.
func (t *Table[A]) Len() int { return len(t.entries) }

// Upsert returns the accumulator of a key, and whether it was made by this call: then it is the
// zero value. The key is copied.
func (t *Table[A]) Upsert(hash uint64, key []byte) (acc *A, made bool) {
	if len(t.entries)*4 >= len(t.slots)*3 {
		t.grow(max(minSlots, len(t.slots)*2))
	}
	t.track.touched = true
	mask := uint64(len(t.slots) - 1)
	i := mix(hash) & mask
	for {
		s := t.slots[i]
		if s == 0 {
			break
		}
		e := &t.entries[s-1]
		if e.hash == hash && bytes.Equal(t.key(e), key) {
			if s <= t.track.settled && e.size&marked == 0 {
				t.mark(s - 1)
			}
			return &e.acc, false
		}
		i = (i + 1) & mask
	}
	off := len(t.keys)
	t.keys = append(t.keys, key...)
	t.entries = append(t.entries, entry[A]{hash: hash, off: off, size: uint32(len(key))})
	t.slots[i] = int32(len(t.entries)) // 2^31 keys of one window do not fit into memory
	return &t.entries[len(t.entries)-1].acc, true
}

func (t *Table[A]) key(e *entry[A]) []byte {
	end := e.off + int(e.size&^marked)
	return t.keys[e.off:end:end]
}

// Undo takes back the last Upsert, which made the key's accumulator.
func (t *Table[A]) Undo() {
	last := len(t.entries) - 1
	e := t.entries[last]
	mask := uint64(len(t.slots) - 1)
	i := mix(e.hash) & mask
	for t.slots[i] != int32(last+1) { // as in Upsert
		i = (i + 1) & mask
	}
	// The newest entry is the last of every probe sequence that it is in, so its slot can be freed
	// without moving others.
	t.slots[i] = 0
	t.keys = t.keys[:e.off]
	t.entries = t.entries[:last]
}

// Each calls f for every key, in the order in which they were made, until it returns an error. The
// key must not be kept.
func (t *Table[A]) Each(f func(hash uint64, key []byte, acc *A) error) error {
	for i := range t.entries {
		e := &t.entries[i]
		if err := f(e.hash, t.key(e), &e.acc); err != nil {
			return err
		}
	}
	return nil
}

// Sorted is Each in the order of the keys' bytes.
func (t *Table[A]) Sorted(f func(key []byte, acc *A) error) error {
	t.order = t.order[:0]
	for i := range t.entries {
		t.order = append(t.order, int32(i)) // as in Upsert
	}
	slices.SortFunc(t.order, func(a, b int32) int {
		return bytes.Compare(t.key(&t.entries[a]), t.key(&t.entries[b]))
	})
	for _, i := range t.order {
		e := &t.entries[i]
		if err := f(t.key(e), &e.acc); err != nil {
			return err
		}
	}
	return nil
}

// Clear empties the table and keeps its memory.
func (t *Table[A]) Clear() {
	clear(t.entries) // accumulators may hold pointers
	t.entries = t.entries[:0]
	t.keys = t.keys[:0]
	clear(t.slots)
	t.track.reset()
}

func (t *Table[A]) grow(n int) {
	t.slots = make([]int32, n)
	mask := uint64(n - 1) // positive
	for k := range t.entries {
		i := mix(t.entries[k].hash) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = int32(k + 1) // as in Upsert
	}
}

// mix spreads a hash over its low bits; the group takes the low bits of the hash itself.
func mix(h uint64) uint64 {
	h ^= h >> 32
	return h * 0x9e3779b97f4a7c15 >> 20
}
