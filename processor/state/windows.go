package state

import "slices"

// maxFree is how many emptied tables are kept for the next windows.
const maxFree = 8

// Windows holds a Table per open window, by the window's start. It is not safe for concurrent use.
type Windows[A any] struct {
	tables map[int64]*Table[A]
	starts []int64 // ascending
	free   []*Table[A]
	// last is the window of the last At, since records of one window come together.
	last      *Table[A]
	lastStart int64
	track     windowChanges
}

// At returns the table of a window and makes it if there is none.
func (w *Windows[A]) At(start int64) *Table[A] {
	if w.last != nil && w.lastStart == start {
		return w.last
	}
	t := w.tables[start]
	if t == nil {
		t = w.open(start)
	}
	w.last, w.lastStart = t, start
	return t
}

func (w *Windows[A]) open(start int64) *Table[A] {
	t := new(Table[A])
	if n := len(w.free); n > 0 {
		t, w.free = w.free[n-1], w.free[:n-1]
	}
	if w.tables == nil {
		w.tables = make(map[int64]*Table[A])
	}
	w.tables[start] = t
	i, _ := slices.BinarySearch(w.starts, start)
	w.starts = slices.Insert(w.starts, i, start)
	return t
}

// Starts lists the open windows, ascending; good until the next call of At, Drop or Reset.
func (w *Windows[A]) Starts() []int64 { return w.starts }

// First is the start of the earliest open window.
func (w *Windows[A]) First() (start int64, ok bool) {
	if len(w.starts) == 0 {
		return 0, false
	}
	return w.starts[0], true
}

// Drop forgets a window.
func (w *Windows[A]) Drop(start int64) {
	t := w.tables[start]
	if t == nil {
		return
	}
	w.dropped(start, t)
	delete(w.tables, start)
	if i, ok := slices.BinarySearch(w.starts, start); ok {
		w.starts = slices.Delete(w.starts, i, i+1)
	}
	if w.last == t {
		w.last = nil
	}
	if len(w.free) < maxFree {
		t.Clear()
		w.free = append(w.free, t)
	}
}

// Reset forgets everything.
func (w *Windows[A]) Reset() {
	for len(w.starts) > 0 {
		w.Drop(w.starts[len(w.starts)-1])
	}
	w.track.reset()
}
