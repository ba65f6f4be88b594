package window

import "github.com/unisink/unisink/processor/stream"

// Lateness says through which end windows are closed: nothing of them is kept, and no record can come
// into them any more. A window that has fired and is not closed still takes late records.
type Lateness struct {
	// Allowed is how far the watermark may be past a window's end before it is closed, milliseconds.
	Allowed int64

	closed stream.Watermark
}

// Reset takes over what a snapshot says. It may have been written with another Allowed: what was closed
// stays closed.
func (l *Lateness) Reset(closed stream.Watermark) { l.closed = closed }

// Closed is the end through which windows are closed at a watermark. It never falls.
func (l *Lateness) Closed(w stream.Watermark) stream.Watermark {
	if at := w - stream.Watermark(l.Allowed); at > l.closed {
		l.closed = at
	}
	return l.closed
}

// Close says that all windows that end at w or before are closed, however late records may be: what was
// kept of them is dropped.
func (l *Lateness) Close(w stream.Watermark) { l.closed = max(l.closed, w) }
