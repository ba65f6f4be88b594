package state

import (
	"encoding/binary"
	"errors"
)

// Keyed is keyed state as snapshots see it, whatever the accumulators are: entries in key groups, each
// with a start, a key and a value. Start and key name an entry. See [OfWindows] and [OfSessions].
type Keyed interface {
	Recorded
	Restored
}

// Recorded is what a snapshot asks: Index, then what it needs of the others, and Settle when the changes
// are in a part that later ones build on.
type Recorded interface {
	// Index takes in what has happened since it was called last.
	Index() Size
	// AppendGroup appends how many entries a group has, and the entries: start (zigzag), length and bytes
	// of the key, length and bytes of the value; numbers are varints.
	AppendGroup(dst []byte, group uint32) []byte
	// AppendChanges appends what has changed in a group since Settle: how many entries were removed, their
	// starts and keys, and then, as AppendGroup does, the entries that are new or have changed.
	AppendChanges(dst []byte, group uint32) []byte
	// Gone lists the starts that were dropped since Settle, with all entries of all groups. They come before
	// the other changes.
	Gone() []int64
	// Settle says that everything up to the last Index is written.
	Settle()
}

// Restored is what a restore asks, in the order of the parts.
type Restored interface {
	// Reserve makes room for as many entries as Size.Windows says.
	Reserve(start int64, entries int)
	// Put makes or replaces an entry.
	Put(start int64, hash uint64, key, value []byte) error
	// Remove removes an entry, which must be there.
	Remove(start int64, hash uint64, key []byte) error
	// Drop removes all entries of a start, if there are any.
	Drop(start int64)
}

// Size is what a snapshot is planned by.
type Size struct {
	// Entries of all groups together, and of each. The slice is good until the next Index.
	Entries int
	Groups  []int
	// Changed is how many entries AppendChanges appends or removes, in all groups.
	Changed int
	// Touched: something may have changed since the last Index.
	Touched bool
	// Windows is what a restore may call Reserve with.
	Windows []Window
}

// Window is how many entries have a start.
type Window struct {
	Start   int64
	Entries int
}

var errNotThere = errors.New("it removes an entry that is not there")

// ref is an entry of a table or a place in a slab.
type ref struct{ table, entry int32 }

// byGroup sorts references by key group; its memory is used again.
type byGroup struct {
	refs []ref
	ends []int // of each group in refs
}

// sort takes n references from each, twice, and leaves them sorted by group.
func (b *byGroup) sort(groups uint32, n int, each func(add func(hash uint64, r ref))) {
	if cap(b.refs) < n {
		b.refs = make([]ref, n)
	}
	b.refs = b.refs[:n]
	if len(b.ends) != int(groups) {
		b.ends = make([]int, groups)
	}
	clear(b.ends)
	each(func(hash uint64, _ ref) { b.ends[Group(hash, groups)]++ })
	sum := 0
	for g, n := range b.ends {
		b.ends[g], sum = sum, sum+n
	}
	each(func(hash uint64, r ref) {
		g := Group(hash, groups)
		b.refs[b.ends[g]] = r
		b.ends[g]++
	})
}

// of are the references of a group.
func (b *byGroup) of(g uint32) []ref {
	begin := 0
	if g > 0 {
		begin = b.ends[g-1]
	}
	return b.refs[begin:b.ends[g]]
}

func appendEntry(dst []byte, start int64, key, value []byte) []byte {
	return appendBytes(appendBytes(binary.AppendVarint(dst, start), key), value)
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}
