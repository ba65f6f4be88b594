package processor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// tape is the source of a life: logs by split. What is read from it is what the script says; where it
// begins is what Open was told.
type tape struct {
	logs []tapeLog
	from []stream.Position // of the last Open
	// known: it says where its splits end.
	known bool
	fault *sabotage
	batch stream.Batch
	// feed is what Poll returns, and asked how often it was called; of tasking.
	feed  chan fed
	asked atomic.Int64
}

type fed struct {
	batch *stream.Batch
	err   error
}

type tapeLog struct {
	records []taped
	at      int64 // next to read
	closed  bool
	gone    bool // not listed when it was read to its end
	listed  bool // since the last Open
}

// taped is a record and what the model shall think of it.
type taped struct {
	record stream.Record
	naive  naiveRecord
	kind   string
}

func (t *tape) split(i int64) stream.Split {
	return stream.Split{Resource: "in", ID: strconv.FormatInt(i, 10)}
}

// put appends a record.
func (t *tape) put(s setup, kind string, split, key, at int64) {
	log := &t.logs[split]
	if log.closed {
		return
	}
	if kind == kindAgain {
		if len(log.records) == 0 {
			return
		}
		last := log.records[len(log.records)-1]
		last.record.Offset, last.naive.id = int64(len(log.records)), fmt.Sprintf("%d/%d", split, len(log.records))
		log.records = append(log.records, last)
		return
	}
	offset := int64(len(log.records))
	r := taped{kind: kind, naive: naiveRecord{
		id: fmt.Sprintf("%d/%d", split, offset), split: split, key: string('a' + rune(key)), at: at, value: 1,
	}}
	field := at
	switch kind {
	case kindGood:
	case opFlood:
		r.naive.key = fmt.Sprintf("k%d", key)
	case kindHuge:
		r.naive.value = 1 << 62
	case kindSour:
		r.naive.sour, r.naive.value = true, sour
	case kindDropped:
		r.naive.filtered = true
	case kindIllegible, kindTorn:
		r.naive.bad = "decode"
	case kindUnmappable:
		r.naive.bad = "map"
	case kindTimeless:
		field = maxEventTime
		r.naive.bad = "range"
	case kindStubborn:
		r.naive.stubborn = true
	case kindTombstone:
		r.naive.value = 0
	}
	r.record = stream.Record{
		Key: []byte(r.naive.key), Headers: []stream.Header{{Key: "kind", Value: []byte(kind)}, {Key: "nothing"}},
		Value: fmt.Appendf(nil, "%d %d", field, r.naive.value), Time: field, Topic: "in", Partition: int32(split), Offset: offset,
	}
	switch {
	case kind == kindTombstone || kind == kindTorn:
		r.record.Value = nil
	case s.clock != "source":
		r.record.Time = 12345 // which must not be looked at
	}
	if r.record.Value == nil && s.clock != "source" {
		r.record.Time = at // it has nothing else
	}
	log.records = append(log.records, r)
}

// repair makes a record a good one, as whoever owns the source does when it stopped the pipeline.
func (t *tape) repair(s setup, split, offset int64) {
	old := t.logs[split].records
	r := old[offset]
	t.logs[split].records = old[:offset:offset]
	closed := t.logs[split].closed
	t.logs[split].closed = false
	t.put(s, kindDropped, split, int64(r.naive.key[0]-'a'), r.naive.at)
	t.logs[split].closed = closed
	t.logs[split].records = append(t.logs[split].records, old[offset+1:]...)
}

// readable says how many records of a split are left, -1: it cannot be asked for.
func (t *tape) readable(split int64) int64 {
	if split >= int64(len(t.logs)) || !t.logs[split].listed {
		return -1
	}
	return int64(len(t.logs[split].records)) - t.logs[split].at
}

// take is one Poll: at most n records of a split, and what they are for the model. The last batch is
// spoilt, so that who keeps it is found out.
func (t *tape) take(split, n int64) (b *stream.Batch, taken []taped, ended, behind bool) {
	for i := range t.batch.Records {
		clear(t.batch.Records[i].Key)
		clear(t.batch.Records[i].Value)
		for _, h := range t.batch.Records[i].Headers {
			clear(h.Value)
		}
		t.batch.Records[i] = stream.Record{Topic: "spoilt"}
	}
	log := &t.logs[split]
	to := min(log.at+n, int64(len(log.records)))
	taken = log.records[log.at:to]
	t.batch = stream.Batch{Split: t.split(split), HighWater: -1, Next: stream.Position{Split: t.split(split), Offset: to, LeaderEpoch: -1}}
	if t.known {
		t.batch.HighWater = int64(len(log.records))
	}
	t.batch.Ended = log.closed && to == int64(len(log.records))
	for _, r := range taken {
		c := r.record
		c.Key, c.Value, c.Headers = slices.Clone(c.Key), slices.Clone(c.Value), slices.Clone(c.Headers)
		for i := range c.Headers {
			c.Headers[i].Value = slices.Clone(c.Headers[i].Value)
		}
		t.batch.Records = append(t.batch.Records, c)
	}
	log.at = to
	ended, behind = t.batch.Ended, t.batch.HighWater > to
	if t.fault.batch != nil {
		t.fault.batch(&t.batch)
	}
	return &t.batch, taken, ended, behind
}

func (t *tape) Describe(context.Context) (participant.Description, error) {
	return participant.Description{Kind: "tape", Identity: "in"}, nil
}

func (t *tape) Open(_ context.Context, from []stream.Position) error {
	if t.fault.open != nil {
		from = t.fault.open(slices.Clone(from))
	}
	t.from = slices.Clone(from)
	for i := range t.logs {
		t.logs[i].at = 0
	}
	for _, p := range from {
		i, err := strconv.Atoi(p.Split.ID)
		if err != nil || i >= len(t.logs) || p.Offset < 0 || p.Offset > int64(len(t.logs[i].records)) {
			return fmt.Errorf("%w: no position %+v", participant.ErrMisconfigured, p)
		}
		t.logs[i].at = p.Offset
	}
	for i := range t.logs {
		l := &t.logs[i]
		l.listed = !l.gone || l.at < int64(len(l.records))
	}
	return nil
}

func (t *tape) Splits() []stream.Split {
	var out []stream.Split
	for _, i := range t.list() {
		out = append(out, t.split(i))
	}
	return out
}

func (t *tape) list() (out []int64) {
	for i := range t.logs {
		if t.logs[i].listed {
			out = append(out, int64(i))
		}
	}
	return out
}

func (t *tape) Poll(ctx context.Context) (*stream.Batch, error) {
	t.asked.Add(1)
	select {
	case f := <-t.feed:
		return f.batch, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (t *tape) Close() error { return nil }
