package state

import "slices"

// What has changed since the last Settle, and which entries a key group has. Both cost nothing per
// record: a record marks its entry at most once between two snapshots, and entries that are new are
// those behind the settled ones. Groups are found when a snapshot asks, each entry once in its life.

// tableChanges is the part of one table.
type tableChanges struct {
	// touched: Upsert was called since the last look.
	touched bool
	// settled is how many entries there were at the last Settle; those behind them are new.
	settled int32
	marked  []int32 // entries among the settled ones that have changed
	// lists has the entries of each group, in the order in which they were made, for the first linked entries.
	lists  []groupList
	linked int
}

type groupList struct{ head, tail, size int32 } // index into entries plus 1

func (c *tableChanges) reset() {
	c.touched, c.settled, c.linked = true, 0, 0
	c.marked = c.marked[:0]
	clear(c.lists)
}

// changed counts the entries that are new or have changed.
func (t *Table[A]) changed() int {
	return len(t.entries) - int(t.track.settled) + len(t.track.marked)
}

func (t *Table[A]) mark(i int32) {
	t.entries[i].size |= marked
	t.track.marked = append(t.track.marked, i)
}

func (t *Table[A]) settle() {
	for _, i := range t.track.marked {
		t.entries[i].size &^= marked
	}
	t.track.marked = t.track.marked[:0]
	t.track.settled = int32(len(t.entries)) // as in Upsert
}

// link puts what is new into the lists of its groups, and adds to what each group has.
func (t *Table[A]) link(groups uint32, sizes []int) {
	c := &t.track
	if len(c.lists) != int(groups) {
		c.lists, c.linked = make([]groupList, groups), 0
	}
	for ; c.linked < len(t.entries); c.linked++ {
		e := &t.entries[c.linked]
		g := Group(e.hash, groups)
		l, this := &c.lists[g], int32(c.linked+1) // as in Upsert
		e.next = 0
		if l.tail == 0 {
			l.head = this
		} else {
			t.entries[l.tail-1].next = this
		}
		l.tail = this
		l.size++
		sizes[g]++
	}
}

// reserve makes room for that many entries, so that filling the table does not copy it again and again.
func (t *Table[A]) reserve(n int) {
	n = min(n, mostReserved)
	t.entries = slices.Grow(t.entries, max(0, n-len(t.entries)))
	slots := max(minSlots, len(t.slots))
	for n*4 >= slots*3 {
		slots *= 2
	}
	if slots > len(t.slots) {
		t.grow(slots)
	}
}

// mostReserved bounds what a wrong number can make us allocate.
const mostReserved = 1 << 22

// windowChanges is the part of all windows together.
type windowChanges struct {
	touched bool
	gone    []int64 // windows that had settled entries and were dropped
	sizes   []int   // of each group, over all tables, as far as they are linked
}

func (c *windowChanges) reset() {
	c.touched = true
	c.gone = c.gone[:0]
	clear(c.sizes)
}

// dropped notes that a window goes.
func (w *Windows[A]) dropped(start int64, t *Table[A]) {
	w.track.touched = true
	if t.track.settled > 0 && !slices.Contains(w.track.gone, start) {
		w.track.gone = append(w.track.gone, start)
	}
	for g, l := range t.track.lists {
		w.track.sizes[g] -= int(l.size)
	}
}
