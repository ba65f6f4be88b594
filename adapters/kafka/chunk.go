package kafka

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// chunkRecords is how many records share one slab.
const chunkRecords = 512

// chunk is a slab of records with their bytes. It is used again once all are acknowledged.
type chunk struct {
	branch  *Branch
	records []kgo.Record
	origins []stream.Origin
	headers []kgo.RecordHeader
	arena   []byte
	first   int // the first record's number in the branch
	bytes   int
	left    int // not acknowledged; belongs to the client's promises once it is handed over
	done    func(*kgo.Record, error)
}

func newChunk() *chunk {
	c := &chunk{}
	c.done = func(r *kgo.Record, err error) { c.branch.got.take(c, r, err) }
	return c
}

// fill copies records in, at most a slab full, and returns how many.
func (c *chunk) fill(b *Branch, records []stream.Record) (int, error) {
	n := min(len(records), chunkRecords)
	size, headers, stamped := 0, 0, len(b.stamp)
	for i := range records[:n] {
		r := &records[i]
		size += len(r.Key) + len(r.Value)
		if len(r.Headers) == 0 {
			continue
		}
		headers += len(r.Headers) + stamped
		for _, h := range r.Headers {
			size += len(h.Value)
		}
	}
	if cap(c.arena) < size {
		c.arena = make([]byte, 0, size+size/4)
	}
	if cap(c.headers) < headers {
		c.headers = make([]kgo.RecordHeader, 0, headers)
	}
	if cap(c.records) < n {
		c.records, c.origins = make([]kgo.Record, 0, n), make([]stream.Origin, 0, n)
	}
	c.branch, c.first, c.left = b, b.written, n
	c.arena, c.headers, c.records, c.origins = c.arena[:0], c.headers[:0], c.records[:0], c.origins[:0]
	c.bytes = size + n*64
	for i := range records[:n] {
		if err := c.add(b, &records[i]); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// add copies one record in.
func (c *chunk) add(b *Branch, r *stream.Record) error {
	to := b.t.sink.cfg.Topic
	if to == "" {
		to = r.Topic
	}
	if to == "" {
		return fmt.Errorf("record %d of the branch names no topic, and neither does the sink: %w", b.written+len(c.records), participant.ErrMisconfigured)
	}
	c.records = c.records[:len(c.records)+1] // there is room, and nothing in it
	out := &c.records[len(c.records)-1]
	out.Topic, out.Key, out.Value, out.Partition = to, c.copied(r.Key), c.copied(r.Value), r.Partition
	at := r.Time
	if at != 0 {
		out.Timestamp = time.UnixMilli(at)
	} else {
		out.Timestamp = time.Now()
		at = out.Timestamp.UnixMilli()
	}
	if out.Headers = b.stamp; len(r.Headers) > 0 {
		out.Headers = c.headersOf(b, r)
	}
	b.tally.count(to, at)
	from, _ := r.Came()
	c.origins = append(c.origins, from)
	return nil
}

// headersOf copies a record's headers, with the branch's epoch in the place of one that the record
// brought along from another sink.
func (c *chunk) headersOf(b *Branch, r *stream.Record) []kgo.RecordHeader {
	from := len(c.headers)
	for _, h := range r.Headers {
		if len(b.stamp) == 1 && h.Key == b.stamp[0].Key {
			continue
		}
		c.headers = append(c.headers, kgo.RecordHeader{Key: h.Key, Value: c.copied(h.Value)})
	}
	c.headers = append(c.headers, b.stamp...)
	return c.headers[from:len(c.headers):len(c.headers)]
}

// copied puts bytes into the arena; nil stays nil, which is a tombstone.
func (c *chunk) copied(p []byte) []byte {
	if p == nil {
		return nil
	}
	from := len(c.arena)
	c.arena = append(c.arena, p...)
	return c.arena[from:len(c.arena):len(c.arena)]
}

// drop gives the chunk back.
func (c *chunk) drop() {
	pool := &c.branch.t.sink.chunks
	clear(c.records)
	clear(c.headers)
	c.branch = nil
	pool.Put(c)
}

// origin names one of the chunk's records for people.
func (c *chunk) origin(r *kgo.Record) string {
	i := 0
	for j := range c.records {
		if &c.records[j] == r {
			i = j
		}
	}
	if o := c.origins[i]; o.Topic != "" {
		return fmt.Sprintf("record %d of the branch, read from %s at %d,", c.first+i, splitID(o.Topic, o.Partition), o.Offset)
	}
	return fmt.Sprintf("record %d of the branch", c.first+i)
}

// placeOf names the partition of a record that may not have got one.
func placeOf(r *kgo.Record) string {
	if r.Partition < 0 {
		return r.Topic
	}
	return splitID(r.Topic, r.Partition)
}
