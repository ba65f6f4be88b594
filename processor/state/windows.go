package state

import "slices"

// maxFree is how many emptied tables are kept for the next windows.
const maxFree = 8

// Windows holds a Table per open window, by the window's start. It is not safe for concurrent use.
type Windows[A any] struct {
	tables map[int64]*Table[A]
	free   []*Table[A]
	// last is the window of the last At, since records of one window come together.
	last      *Table[A]
	lastStart int64
}

// At returns the table of a window and makes it if there is none.
func (w *Windows[A]) At(start int64) *Table[A] {
	if w.last != nil && w.lastStart == start {
		return w.last
	}
	t := w.tables[start]
	if t == nil {
		if n := len(w.free); n > 0 {
			t, w.free = w.free[n-1], w.free[:n-1]
		} else {
			t = new(Table[A])
		}
		if w.tables == nil {
			w.tables = make(map[int64]*Table[A])
		}
		w.tables[start] = t
	}
	w.last, w.lastStart = t, start
	return t
}

// Starts lists the open windows, ascending.
func (w *Windows[A]) Starts() []int64 {
	out := make([]int64, 0, len(w.tables))
	for s := range w.tables {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// First is the start of the earliest open window.
func (w *Windows[A]) First() (start int64, ok bool) {
	for s := range w.tables {
		if !ok || s < start {
			start, ok = s, true
		}
	}
	return start, ok
}

// Drop forgets a window.
func (w *Windows[A]) Drop(start int64) {
	t := w.tables[start]
	if t == nil {
		return
	}
	delete(w.tables, start)
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
	for s := range w.tables {
		w.Drop(s)
	}
}

// Len counts the windows and the keys in all of them.
func (w *Windows[A]) Len() (windows, keys int) {
	for _, t := range w.tables {
		keys += t.Len()
	}
	return len(w.tables), keys
}
