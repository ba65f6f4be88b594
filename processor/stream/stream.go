// Package stream holds the plain values that flow through a pipeline: records in batches,
// positions, watermarks and barriers. They do nothing but say what they are.
package stream

import (
	"fmt"
	"time"
)

// Header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record of a source, or one result for a sink. Its slices belong to the batch it
// came in: whoever keeps them past the batch copies them.
type Record struct {
	Key     []byte
	Value   []byte // nil: a tombstone
	Headers []Header
	// Time is the record's timestamp at the source, Unix milliseconds.
	Time int64
	// EventTime is filled by the pipeline from Time or a field; Unix milliseconds.
	EventTime int64
	// Topic, Partition and Offset say where a record of a source stood, for error messages and checks.
	Topic     string
	Partition int32
	Offset    int64
	// From is where the one record stood that a result was made of; set by the pipeline, for error messages.
	From Origin
}

// Origin is a place in a source.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String is the place as messages name it.
func (o Origin) String() string { return fmt.Sprintf("%s[%d]@%d", o.Topic, o.Partition, o.Offset) }

// Came says where a record stood in its source, or the one that it was made of. False: it was made of several.
func (r *Record) Came() (Origin, bool) {
	if r.From.Topic != "" {
		return r.From, true
	}
	return Origin{r.Topic, r.Partition, r.Offset}, r.Topic != ""
}

// Split is one independently read part of a source: a Kafka partition, a file.
type Split struct {
	Resource string // the source's name in its pipeline
	ID       string // "orders/3"
}

// Position says how far a split has been read.
type Position struct {
	Split       Split
	Offset      int64 // next to read
	LeaderEpoch int32 // of the last record read, -1 unknown
	Opaque      []byte
}

// Batch is what one Poll returns: records of one split in order, and the position behind them.
type Batch struct {
	Split   Split
	Records []Record
	// Next is the position after the last record.
	Next Position
	// Ended: the split has nothing more now or for ever (bounded sources).
	Ended bool
	// HighWater is the end of the split as the source last saw it; -1 unknown.
	HighWater int64
}

// Watermark says that no record of a split with a smaller event time is expected. Unix milliseconds.
type Watermark int64

// The ends of event time.
const (
	MinWatermark Watermark = -1 << 62
	MaxWatermark Watermark = 1<<62 - 1
)

// Barrier ends an epoch in a stream.
type Barrier struct {
	Generation uint64
	N          uint64
	Final      bool
	Drain      bool
}

// Window is a half-open interval of event time, Unix milliseconds.
type Window struct {
	Start, End int64
}

// Duration of the window.
func (w Window) Duration() time.Duration { return time.Duration(w.End-w.Start) * time.Millisecond }
