package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/unisink/unisink/processor/stream"
)

// What has become of a partition stands behind the topic's id in its positions, where there is something to
// tell: it cannot be found out later, and whoever judges what was late has to know.
const (
	flagAdded  = 1 << iota // others had been read when the partition came
	flagEnded              // it had been read to its end, in a bounded source
	flagBehind             // the source had ended before, and went on
)

const idBytes = len(kadm.TopicID{})

func flagsOf(p stream.Position) byte {
	if len(p.Opaque) != idBytes+1 {
		return 0
	}
	return p.Opaque[idBytes]
}

// topicOf is the topic's id in a position.
func topicOf(p stream.Position) []byte { return p.Opaque[:min(idBytes, len(p.Opaque))] }

// flag adds to what the next positions tell.
func (p *part) flag(f byte) {
	p.flags |= f
	p.mark = append(slices.Clip(p.topicID), p.flags)
}

// Added reports whether a position is that of a partition that was added when others had been read: until then it
// held no window back, so its records may have come late without being behind others of it.
func Added(p stream.Position) bool { return flagsOf(p)&flagAdded != 0 }

// Behind reports whether a position is of a bounded source that had ended before it went on: what is read
// since may be late for what fired at that end.
func Behind(p stream.Position) bool { return flagsOf(p)&flagBehind != 0 }

// goesOn reports whether the source had ended where it is opened, now or once before.
func goesOn(from []stream.Position) bool {
	running := func(p stream.Position) bool { return flagsOf(p)&flagEnded == 0 }
	return slices.ContainsFunc(from, Behind) || len(from) > 0 && !slices.ContainsFunc(from, running)
}

// Drained notes that the pipeline was drained at a position, which is an end as well: what comes behind it
// may be late.
func (s *Source) Drained(p stream.Position) stream.Position {
	if len(p.Opaque) >= idBytes {
		p.Opaque = append(slices.Clip(topicOf(p)), flagsOf(p)|flagEnded)
	}
	return p
}
