package kafka

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Branch is one Kafka transaction while it is written. One goroutine uses it at a time; Open of
// a newer generation and Close of the sink may end it from outside.
type Branch struct {
	t    *tenure
	slot *slot
	name participant.BranchName
	turn chan struct{} // one token: who has it works on the branch

	// What follows belongs to whoever has the turn.
	state   branchState
	begun   time.Time // before the first record was produced; zero if there is none
	pid     int64
	epoch   int16
	written int
	topics  map[string]*written
	latest  *written // the topic written last: mostly the only one
	vote    participant.Vote

	mu       sync.Mutex // guards what follows; never held across I/O
	cancel   context.CancelCauseFunc
	gone     error // the branch was ended from outside
	acked    int
	failed   error // the first
	inFlight int   // bytes not acknowledged
	room     chan struct{}
	spans    map[place]*extent
	last     *extent // the partition acknowledged last
}

type branchState uint8

const (
	branchWriting branchState = iota + 1
	branchPrepared
	branchRefused // the vote was no
	branchDone    // read-only, or discarded
)

// written is what a branch wrote to a topic.
type written struct {
	name    string
	records int
	oldest  int64 // smallest timestamp, Unix milliseconds
}

// place is a partition.
type place struct {
	topic     string
	partition int32
}

// extent is what was acknowledged of a partition.
type extent struct {
	place
	first, last, count int64
}

func newBranch(t *tenure, s *slot, name participant.BranchName) *Branch {
	b := &Branch{
		t: t, slot: s, name: name, turn: make(chan struct{}, 1), state: branchWriting,
		topics: make(map[string]*written), room: make(chan struct{}, 1), spans: make(map[place]*extent),
	}
	b.turn <- struct{}{}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.branch = b
	if t.over {
		b.gone = fmt.Errorf("%w: generation %d of %s is over", participant.ErrFenced, t.name.Generation, t.group)
	}
	return b
}

// enter takes the turn, for work that can be ended from outside.
func (b *Branch) enter(ctx context.Context) (context.Context, func(), error) {
	select {
	case <-b.turn:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel = cancel
	if b.gone != nil {
		cancel(b.gone)
	}
	return ctx, func() {
		b.mu.Lock()
		b.cancel = nil
		gone := b.gone != nil
		b.mu.Unlock()
		if gone && b.state == branchWriting {
			// Ended from outside while we worked.
			end, stop := context.WithTimeout(context.WithoutCancel(ctx), dropWait)
			b.abandon(end)
			stop()
			b.state = branchDone
		}
		cancel(nil)
		b.turn <- struct{}{}
	}, nil
}

// ended is why the branch was ended from outside, or nil.
func (b *Branch) ended() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone
}

// Write hands records to the client and waits only while too much is unacknowledged. An error
// names the record that could not be written; the branch then votes no.
func (b *Branch) Write(ctx context.Context, records []stream.Record) error {
	if len(records) == 0 {
		return nil
	}
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return fmt.Errorf("write to %s: %w", b.name, err)
	}
	defer leave()
	if err := b.writable(); err != nil {
		return fmt.Errorf("write to %s: %w", b.name, err)
	}
	if b.begun.IsZero() {
		if err := b.start(ctx); err != nil {
			b.fail(err)
			return fmt.Errorf("write to %s: %w", b.name, err)
		}
	}
	for len(records) > 0 {
		c := b.t.sink.chunks.Get().(*chunk) //nolint:forcetypeassert // the pool makes nothing else
		n, err := c.fill(b, records)
		if err == nil {
			err = b.admit(ctx, c.bytes)
		}
		if err != nil {
			c.drop()
			b.fail(err)
			return fmt.Errorf("write to %s: %w", b.name, err)
		}
		b.produce(ctx, c)
		records = records[n:]
	}
	return nil
}

// writable refuses a branch that is past writing, or that cannot be committed any more.
func (b *Branch) writable() error {
	if err := b.ended(); err != nil {
		return err
	}
	if b.state != branchWriting {
		return fmt.Errorf("%w: the branch is not open for writing", participant.ErrBug)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// start begins the transaction. Its clock runs from before the first record.
func (b *Branch) start(ctx context.Context) error {
	pid, epoch, err := b.t.ready(ctx, b.slot)
	if err != nil {
		return err
	}
	b.pid, b.epoch = pid, epoch
	fault.Point("kafka/before-first-produce")
	b.begun = time.Now()
	return nil
}

// admit waits until n more bytes may be under way. One chunk is always let in.
func (b *Branch) admit(ctx context.Context, n int) error {
	for {
		b.mu.Lock()
		failed := b.failed
		fits := b.inFlight == 0 || b.inFlight+n <= b.t.cap
		if fits && failed == nil {
			b.inFlight += n
		}
		b.mu.Unlock()
		if failed != nil {
			return failed
		}
		if fits {
			return nil
		}
		select {
		case <-b.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// produce hands a chunk to the client. Its records come back one by one, through done.
func (b *Branch) produce(ctx context.Context, c *chunk) {
	// The records outlive the call, so its end must not fail them.
	ctx = context.WithoutCancel(ctx)
	b.written += len(c.records)
	for i := range c.records {
		b.slot.client.Produce(ctx, &c.records[i], c.done)
	}
}

// fail keeps the first failure.
func (b *Branch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		b.failed = err
	}
}

// acknowledged takes back one record of a chunk. It runs on the client's goroutine.
func (b *Branch) acknowledged(c *chunk, r *kgo.Record, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		if b.failed == nil {
			b.failed = classed(fmt.Errorf("%s could not be written to %s: %w", c.origin(r), placeOf(r), err))
		}
	case r.ProducerID != b.pid || r.ProducerEpoch != b.epoch:
		// The client took up another identity by itself, and with it dropped what went before.
		if b.failed == nil {
			b.failed = fmt.Errorf("%s was written to %s at %d by producer %d epoch %d, but the transaction is %d epoch %d: %w",
				c.origin(r), placeOf(r), r.Offset, r.ProducerID, r.ProducerEpoch, b.pid, b.epoch, participant.ErrLost)
		}
	default:
		b.extend(r)
		b.acked++
	}
	c.left--
	if c.left == 0 {
		b.inFlight -= c.bytes
		c.drop()
		select {
		case b.room <- struct{}{}:
		default:
		}
	}
}

// extend notes where a record went. The caller holds mu.
func (b *Branch) extend(r *kgo.Record) {
	e := b.last
	if e == nil || e.partition != r.Partition || e.topic != r.Topic {
		at := place{r.Topic, r.Partition}
		if e = b.spans[at]; e == nil {
			e = &extent{place: at, first: r.Offset}
			b.spans[at] = e
		}
		b.last = e
	}
	e.first, e.last = min(e.first, r.Offset), max(e.last, r.Offset)
	e.count++
}

// Discard drops the branch, unless it has voted yes.
func (b *Branch) Discard(ctx context.Context) error {
	_, leave, err := b.enter(ctx)
	if err != nil {
		return fmt.Errorf("discard %s: %w", b.name, err)
	}
	defer leave()
	switch b.state {
	case branchPrepared:
		return fmt.Errorf("discard %s: %w", b.name, participant.ErrPrepared)
	case branchWriting:
		b.abandon(ctx)
		b.state = branchDone
	case branchRefused, branchDone:
	}
	return nil
}

// drop ends the branch from outside, unless it has voted yes.
func (b *Branch) drop(ctx context.Context, why error) {
	b.mu.Lock()
	b.gone = why
	if b.cancel != nil {
		b.cancel(why)
	}
	b.mu.Unlock()
	select {
	case <-b.turn:
	case <-ctx.Done():
		return // whoever has the turn abandons the branch on leaving
	}
	if b.state == branchWriting {
		b.abandon(ctx)
		b.state = branchDone
	}
	b.turn <- struct{}{}
}

// abandon aborts the branch's transaction and gives its slot back. A client with which that fails
// is thrown away: what it leaves is aborted when the slot is initialised again, or by a sweep.
func (b *Branch) abandon(ctx context.Context) {
	if b.begun.IsZero() {
		b.t.release(b.slot)
		return
	}
	cl := b.slot.client
	err := cl.AbortBufferedRecords(ctx)
	if err == nil {
		err = cl.EndTransaction(ctx, kgo.TryAbort)
	}
	if err != nil || b.t.can.class == classOld {
		cl.Close()
		b.slot.client = nil
	}
	b.t.release(b.slot)
}

// dropWait is how long an abort that nobody waits for may take.
const dropWait = 5 * time.Second

// chunkRecords is how many records share one slab.
const chunkRecords = 512

// chunk is a slab of records with their bytes. It is used again once all are acknowledged.
type chunk struct {
	branch  *Branch
	records []kgo.Record
	origins []origin
	headers []kgo.RecordHeader
	arena   []byte
	first   int // the first record's number in the branch
	bytes   int
	left    int // not acknowledged; guarded by the branch's mu
	done    func(*kgo.Record, error)
}

// origin is where a record was read, for sentences about it.
type origin struct {
	topic     string
	partition int32
	offset    int64
}

func newChunk() *chunk {
	c := &chunk{}
	c.done = func(r *kgo.Record, err error) { c.branch.acknowledged(c, r, err) }
	return c
}

// fill copies records in, at most a slab full, and returns how many.
func (c *chunk) fill(b *Branch, records []stream.Record) (int, error) {
	n := min(len(records), chunkRecords)
	size, headers := 0, 0
	for i := range records[:n] {
		r := &records[i]
		size += len(r.Key) + len(r.Value)
		headers += len(r.Headers)
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
		c.records, c.origins = make([]kgo.Record, 0, n), make([]origin, 0, n)
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
	out := kgo.Record{Topic: to, Key: c.copied(r.Key), Value: c.copied(r.Value), Partition: r.Partition}
	at := r.Time
	if at != 0 {
		out.Timestamp = time.UnixMilli(at)
	} else {
		out.Timestamp = time.Now()
		at = out.Timestamp.UnixMilli()
	}
	if len(r.Headers) > 0 {
		from := len(c.headers)
		for _, h := range r.Headers {
			c.headers = append(c.headers, kgo.RecordHeader{Key: h.Key, Value: c.copied(h.Value)})
		}
		out.Headers = c.headers[from:len(c.headers):len(c.headers)]
	}
	b.count(to, at)
	c.records = append(c.records, out)
	c.origins = append(c.origins, origin{r.Topic, r.Partition, r.Offset})
	return nil
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

// count notes a record's topic and age. The caller has the turn.
func (b *Branch) count(topic string, at int64) {
	w := b.latest
	if w == nil || w.name != topic {
		if w = b.topics[topic]; w == nil {
			w = &written{name: topic, oldest: math.MaxInt64}
			b.topics[topic] = w
		}
		b.latest = w
	}
	w.records++
	w.oldest = min(w.oldest, at)
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
	if o := c.origins[i]; o.topic != "" {
		return fmt.Sprintf("record %d of the branch, read from %s at %d,", c.first+i, splitID(o.topic, o.partition), o.offset)
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
