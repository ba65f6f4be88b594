package window

import "github.com/unisink/unisink/processor/stream"

// Sliding windows of one size: window k is [k*Every, k*Every+Size) in event time, so that a time falls
// into Size/Every of them. With Every = Size they are tumbling ones.
type Sliding struct {
	Size  int64 // milliseconds, a multiple of Every
	Every int64 // milliseconds, more than 0
}

// Open returns the starts of the first and the last window of an event time that are not closed, which
// are Every apart; none: all of them are closed, and the record is late.
func (s Sliding) Open(eventTime int64, closed stream.Watermark) (first, last int64, ok bool) {
	last = floor(eventTime, s.Every)
	first = last - s.Size + s.Every
	if end := int64(closed); first+s.Size <= end {
		first = floor(end-s.Size, s.Every) + s.Every
	}
	return first, last, first <= last
}

// Window returns the window that starts at a multiple of Every.
func (s Sliding) Window(start int64) stream.Window {
	return stream.Window{Start: start, End: start + s.Size}
}

// Fired reports whether the window that starts at start has been fired, or must be now, at a watermark:
// the watermark has reached its end.
func (s Sliding) Fired(start int64, w stream.Watermark) bool {
	return start+s.Size <= int64(w)
}

// floor is the largest multiple of step that is not above at, also below 0.
func floor(at, step int64) int64 {
	r := at % step
	if r < 0 {
		r += step
	}
	return at - r
}
