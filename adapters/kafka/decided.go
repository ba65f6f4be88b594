package kafka

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kgo"
)

// decided passes on, in order, the records of one partition below an offset under which all is decided, and leaves
// out what was rolled back. A client that reads committed records does so too, but it never tells that it has
// come past records which it leaves out: were they the last, whoever counts on their offsets would wait for ever.
type decided struct {
	below int64
	queue []*awaited
	open  map[int64][]*awaited // of producers whose marker has not come
}

// awaited is a record whose turn has not come.
type awaited struct {
	r    *kgo.Record
	fate fate
}

// fate of a record.
type fate uint8

const (
	fateOpen fate = iota
	fateKept
	fateDropped
)

// take sees every record and marker of the partition, in order, and returns the records whose turn has come.
func (d *decided) take(r *kgo.Record) []*kgo.Record {
	switch {
	case r.Attrs.IsControl():
		f := fateDropped
		if len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 1 { // version, then type: 1 is a commit
			f = fateKept
		}
		for _, w := range d.open[r.ProducerID] {
			w.fate = f
		}
		delete(d.open, r.ProducerID)
	case r.Offset < d.below:
		w := &awaited{r: r, fate: fateKept}
		if r.Attrs.IsTransactional() {
			w.fate = fateOpen
			d.open[r.ProducerID] = append(d.open[r.ProducerID], w)
		}
		d.queue = append(d.queue, w)
	}
	return d.ready(false)
}

// ready takes from the queue what may go. At the end of the partition that is all: a marker that is not there
// was compacted away, which happens to those of committed records alone.
func (d *decided) ready(end bool) (out []*kgo.Record) {
	n := 0
	for _, w := range d.queue {
		if w.fate == fateOpen && !end {
			break
		}
		if w.fate != fateDropped {
			out = append(out, w.r)
		}
		n++
	}
	d.queue = d.queue[n:]
	return out
}
