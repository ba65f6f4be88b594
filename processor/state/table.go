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
// are good until the next Upsert.
type Table[A any] struct {
	entries []entry[A]
	keys    []byte  // the keys of all entries, one after the other
	slots   []int32 // open addressing; index into entries plus 1, 0 is free
	order   []int32
}

type entry[A any] struct {
	hash uint64
	off  int
	end  int
	acc  A
}

const minSlots = 64

// Len is the number of keys.
func (t *Table[A]) Len() int { return len(t.entries) }

// Upsert returns the accumulator of a key, and whether it was made by this call: then it is the
// zero value. The key is copied.
func (t *Table[A]) Upsert(hash uint64, key []byte) (acc *A, made bool) {
	if len(t.entries)*4 >= len(t.slots)*3 {
		t.grow()
	}
	mask := uint64(len(t.slots) - 1)
	i := mix(hash) & mask
	for {
		s := t.slots[i]
		if s == 0 {
			break
		}
		e := &t.entries[s-1]
		if e.hash == hash && bytes.Equal(t.keys[e.off:e.end], key) {
			return &e.acc, false
		}
		i = (i + 1) & mask
	}
	off := len(t.keys)
	t.keys = append(t.keys, key...)
	t.entries = append(t.entries, entry[A]{hash: hash, off: off, end: len(t.keys)})
	t.slots[i] = int32(len(t.entries)) // 2^31 keys of one window do not fit into memory
	return &t.entries[len(t.entries)-1].acc, true
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
		if err := f(e.hash, t.keys[e.off:e.end:e.end], &e.acc); err != nil {
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
		x, y := &t.entries[a], &t.entries[b]
		return bytes.Compare(t.keys[x.off:x.end], t.keys[y.off:y.end])
	})
	for _, i := range t.order {
		e := &t.entries[i]
		if err := f(t.keys[e.off:e.end:e.end], &e.acc); err != nil {
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
}

func (t *Table[A]) grow() {
	n := max(minSlots, len(t.slots)*2)
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
