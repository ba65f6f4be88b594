package window

import "github.com/unisink/unisink/processor/stream"

// Tumbling windows of one size: window k is [k*Size, (k+1)*Size) in event time.
type Tumbling struct {
	Size int64 // milliseconds, more than 0
}

// Start returns the start of the window that an event time falls in, also before 1970.
func (t Tumbling) Start(eventTime int64) int64 {
	return floor(eventTime, t.Size)
}

// Window returns the window that starts at a multiple of Size.
func (t Tumbling) Window(start int64) stream.Window {
	return stream.Window{Start: start, End: start + t.Size}
}

// Fired reports whether the window that starts at start has been fired, or must be now, at a
// watermark: the watermark has reached its end. A record of a fired window is late.
func (t Tumbling) Fired(start int64, w stream.Watermark) bool {
	return start+t.Size <= int64(w)
}
