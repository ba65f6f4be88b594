package window

import "github.com/unisink/unisink/processor/stream"

// Session windows of one key: a record at time t makes [t, t+gap), and what overlaps or touches is one
// session. A record that is on time may come at the watermark itself, and would touch a session that ends
// there; so a session is over when the watermark is past its end, and not when it has reached it.

// SessionsOver is the end through which sessions are over at a watermark: they fire, or have fired, and
// take no record any more.
func SessionsOver(w stream.Watermark) int64 { return int64(w) - 1 }

// SessionOverAt is the least watermark at which a session that ends at end is over.
func SessionOverAt(end int64) stream.Watermark { return stream.Watermark(end) + 1 }
