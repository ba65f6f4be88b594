package processor

import (
	"context"
	"fmt"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// outbox gathers results per sink and writes them in batches to the branches of the epoch that is
// being written. Its records and their buffers are used again after each write.
type outbox struct {
	sinks   []namedSink
	boxes   []box
	writers []Writer // of this epoch; nil until the first write
	// carrier is the sink whose branches take a sink's records: itself, if they are not shared.
	carrier []int
	// branch gives the branch of a sink for this epoch; it waits while the pipeline is held back.
	branch func(ctx context.Context, resource string) (participant.Branch, error)
}

type box struct {
	records []stream.Record
	n       int
}

// outBatch is how many results go to a sink at once.
const outBatch = 512

func newOutbox(sinks []namedSink) *outbox {
	o := &outbox{sinks: sinks, boxes: make([]box, len(sinks)), writers: make([]Writer, len(sinks)), carrier: make([]int, len(sinks))}
	for i := range sinks {
		o.carrier[i] = i
	}
	return o
}

// next is the next record to fill for a sink; Key, Value and Headers come empty.
func (o *outbox) next(sink int) *stream.Record {
	b := &o.boxes[sink]
	if b.n == len(b.records) {
		b.records = append(b.records, stream.Record{})
	}
	r := &b.records[b.n]
	b.n++
	*r = stream.Record{Key: emptied(r.Key), Value: emptied(r.Value), Headers: r.Headers[:0]}
	return r
}

// emptied is never nil: a nil value is a tombstone, and only encode may make one.
func emptied(b []byte) []byte {
	if b == nil {
		return make([]byte, 0, 64)
	}
	return b[:0]
}

// undo takes the last next back.
func (o *outbox) undo(sink int) { o.boxes[sink].n-- }

// full writes what has gathered for a sink if that is enough for a batch.
func (o *outbox) full(ctx context.Context, sink int) error {
	if o.boxes[sink].n < outBatch {
		return nil
	}
	return o.write(ctx, sink)
}

// flush writes everything.
func (o *outbox) flush(ctx context.Context) error {
	for i := range o.boxes {
		if o.boxes[i].n > 0 {
			if err := o.write(ctx, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *outbox) write(ctx context.Context, sink int) error {
	b := &o.boxes[sink]
	if err := o.send(ctx, sink, b.records[:b.n]); err != nil {
		return fmt.Errorf("sink %q: %w", o.sinks[sink].name, err)
	}
	b.n = 0
	return nil
}

// send writes records to the branch of a sink's carrier.
func (o *outbox) send(ctx context.Context, sink int, records []stream.Record) error {
	by := o.carrier[sink]
	if o.writers[by] == nil {
		b, err := o.branch(ctx, o.sinks[by].name)
		if err != nil {
			return err
		}
		w, ok := b.(Writer)
		if !ok {
			return fmt.Errorf("%w: %w", participant.ErrBug, errNoWriter)
		}
		o.writers[by] = w
	}
	if by == sink {
		return o.writers[by].Write(ctx, records)
	}
	shared, ok := o.writers[by].(SharedWriter)
	if !ok {
		return fmt.Errorf("%w: it shares the branches of sink %q, and they have no WriteFor", participant.ErrBug, o.sinks[by].name)
	}
	return shared.WriteFor(ctx, o.sinks[sink].sink, records)
}

// voted ends the epoch: the branches belong to the Run.
func (o *outbox) voted() { clear(o.writers) }
