package kafka

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// begunPrefix begins the keys of parts that are being written; ids hold no '/'.
const begunPrefix = "begun/"

// statePart is what partition 0 says of a part: where its chunks lie, or, while it is written, how many there will be.
type statePart struct {
	Partition int32   `json:"partition"`
	Offsets   []int64 `json:"offsets,omitempty"` // of its chunks, ascending
	Bytes     int     `json:"bytes"`
	Sum       uint32  `json:"crc32c"`
	Chunks    int     `json:"chunks,omitempty"` // while it is written
	At        int64   `json:"at_ms,omitempty"`  // when it was begun
}

// chunks is how many records of the part there may be.
func (p *statePart) chunks() int {
	if p == nil {
		return 0
	}
	return max(len(p.Offsets), p.Chunks)
}

// partEntry is what is known of an id; begun may stand beside written when a part is put again.
type partEntry struct{ written, begun *statePart }

// partNames is partition 0 as far as it was read.
type partNames struct {
	parts map[string]partEntry
	next  int64
}

func newNames() partNames { return partNames{parts: map[string]partEntry{}} }

// apply takes one record of partition 0. A record without a value takes a name away.
func (n *partNames) apply(r *kgo.Record) error {
	id, begun := strings.CutPrefix(string(r.Key), begunPrefix)
	var p *statePart
	if r.Value != nil {
		p = new(statePart)
		if err := json.Unmarshal(r.Value, p); err != nil {
			return fmt.Errorf("topic %q, partition %d, offset %d is no name of a state part: %w; state needs a topic of its own",
				r.Topic, r.Partition, r.Offset, err)
		}
	}
	e := n.parts[id]
	if begun {
		e.begun = p
	} else {
		e.written = p
	}
	if e == (partEntry{}) {
		delete(n.parts, id)
	} else {
		n.parts[id] = e
	}
	return nil
}

// abandoned are the ids that were begun before an instant, and neither finished nor taken away.
func (n *partNames) abandoned(before time.Time) (ids []string) {
	for id, e := range n.parts {
		if e.begun != nil && e.written == nil && e.begun.At < before.UnixMilli() {
			ids = append(ids, id)
		}
	}
	return ids
}

func writtenRecord(topic, id string, p *statePart) *kgo.Record { return nameRecord(topic, id, p) }
func begunRecord(topic, id string, p *statePart) *kgo.Record {
	return nameRecord(topic, begunPrefix+id, p)
}

// nameRecord writes a name, or with nil takes it away.
func nameRecord(topic, key string, p *statePart) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: namesPartition, Key: []byte(key)}
	if p != nil {
		r.Value, _ = json.Marshal(p) // numbers alone: it cannot fail
	}
	return r
}

func chunkKey(id string, i int) []byte { return strconv.AppendInt([]byte(id+"/"), int64(i), 10) }
