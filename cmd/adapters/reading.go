package adapters

import (
	"context"
	"strconv"
	"strings"

	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

// Reading reads again what a source has delivered, and what readers of a sink can see, for verify. Nothing
// is changed. The caller closes what it is given.
type Reading struct {
	Source func(ctx context.Context, e spec.Env, u Use) (*SourceReading, error)
	// Sink reads up to what is there when it is called. Dead: the sink takes dead letters.
	Sink func(ctx context.Context, e spec.Env, u Use, dead bool) (*SinkReading, error)
}

// SourceReading is a source to be read again.
type SourceReading struct {
	verify.SourceReader
	// Splits are those that are there now.
	Splits []stream.Split
	// Gone says why not everything is there from the pipeline's beginning on; "": it is.
	Gone string
	// Bounded: the source ends. Grows: splits may have been added after others were read.
	Bounded, Grows bool
	// Grown reports whether that has happened, as the positions tell; nil: they don't.
	Grown func(at []stream.Position) bool
	// Behind reports whether the source had ended before and went on, as the positions tell; nil: they don't.
	Behind func(at []stream.Position) bool
	// Ended lists the splits that have nothing behind their positions and hold no window back.
	Ended func(at []stream.Position) []stream.Split
	Close func() error
}

// SinkReading is a sink to be read.
type SinkReading struct {
	verify.OutputReader
	// Key, Headers and Time: the sink keeps them beside the values.
	Key, Headers, Time bool
	// Stamps: a record that has no time is given that at which it is written.
	Stamps bool
	// Gone says why not everything is there that was written; "": it is.
	Gone string
	// NoCopies says why records of the source, which passed through, were late or dead, can't be found again in the
	// sink; "": they can.
	NoCopies string
	Close    func() error
}

// epochOf reads the epoch that a sink has put behind a record's own headers, as "7.12".
func epochOf(headers []stream.Header, name string) (generation, n uint64) {
	for i := len(headers) - 1; i >= 0; i-- {
		if headers[i].Key != name {
			continue
		}
		g, e, ok := strings.Cut(string(headers[i].Value), ".")
		generation, err1 := strconv.ParseUint(g, 10, 64)
		n, err2 := strconv.ParseUint(e, 10, 64)
		if ok && err1 == nil && err2 == nil {
			return generation, n
		}
		return 0, 0
	}
	return 0, 0
}
