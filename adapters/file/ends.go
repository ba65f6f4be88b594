package file

import (
	"slices"

	"github.com/unisink/unisink/processor/stream"
)

// At the end of a source that does not follow, all windows fire. If the pipeline is started again behind it, what
// is read then may be late for them, and the files alone don't tell. So positions do, from then on.

// Flags of a position, in its opaque part; none: it has no such part.
const (
	flagEnded  = 1 << iota // the file has ended, in a source that ends with its files
	flagBehind             // the source had ended before
)

func flags(p stream.Position) byte {
	if len(p.Opaque) != 1 {
		return 0
	}
	return p.Opaque[0]
}

// goesOn reports whether the source had ended where it is opened, now or once before.
func goesOn(from []stream.Position) bool {
	running := func(p stream.Position) bool { return flags(p)&flagEnded == 0 }
	return slices.ContainsFunc(from, Behind) || len(from) > 0 && !slices.ContainsFunc(from, running)
}

// Behind reports whether a position is of a source that had ended before it went on.
func Behind(p stream.Position) bool { return flags(p)&flagBehind != 0 }

func (s *Source) mark(ended bool) []byte {
	var f byte
	if ended && !s.c.Follow {
		f |= flagEnded
	}
	if s.behind {
		f |= flagBehind
	}
	if f == 0 {
		return nil
	}
	return []byte{f}
}

// Drained notes that the pipeline was drained at a position, which is an end as well: what comes behind it
// may be late.
func (s *Source) Drained(p stream.Position) stream.Position {
	p.Opaque = []byte{flags(p) | flagEnded}
	return p
}
