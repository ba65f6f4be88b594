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
	// stamp is the epoch as headers, shared by all records; at most one.
	stamp []kgo.RecordHeader

	// What follows belongs to whoever has the turn.
	state   branchState
	begun   time.Time // before the first record was produced; zero if there is none
	as      producer
	written int
	tally   tally
	vote    participant.Vote

	mu     sync.Mutex // guards cancel and gone; never held across I/O
	cancel context.CancelCauseFunc
	gone   error // the branch was ended from outside

	got receipts
}

type branchState uint8

const (
	branchWriting branchState = iota + 1
	branchPrepared
	branchRefused // the vote was no
	branchDone    // read-only, or discarded
)

// tally is what a branch wrote, by topic.
type tally struct {
	topics map[string]*written
	latest *written // the topic written last: mostly the only one
}

// written is what a branch wrote to a topic.
type written struct {
	name    string
	records int
	oldest  int64 // smallest timestamp, Unix milliseconds
}

func newBranch(t *tenure, s *slot, name participant.BranchName) *Branch {
	b := &Branch{
		t: t, slot: s, name: name, turn: make(chan struct{}, 1), state: branchWriting,
		tally: tally{topics: make(map[string]*written)}, got: newReceipts(t.cap), stamp: stampOf(t.sink.cfg.EpochHeader, name),
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
			b.got.fail(err)
			return fmt.Errorf("write to %s: %w", b.name, err)
		}
	}
	for len(records) > 0 {
		c := b.t.sink.chunks.Get().(*chunk) //nolint:forcetypeassert // the pool makes nothing else
		n, err := c.fill(b, records)
		if err == nil {
			err = b.got.admit(ctx, c.bytes)
		}
		if err != nil {
			c.drop()
			b.got.fail(err)
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
	return b.got.failure()
}

// start begins the transaction. Its clock runs from before the first record.
func (b *Branch) start(ctx context.Context) error {
	pid, epoch, err := b.t.ready(ctx, b.slot)
	if err != nil {
		return err
	}
	b.as = producer{pid, epoch}
	b.got.from(b.as)
	fault.Point("kafka/before-first-produce")
	b.begun = time.Now()
	return nil
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
		// Whoever has the turn was told to leave, and abandons the branch on leaving, which is bounded. A client
		// that is still open when the sink is closed would be nobody's.
		late := time.NewTimer(2 * dropWait)
		defer late.Stop()
		select {
		case <-b.turn:
		case <-late.C:
			return
		}
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

// count notes a record's topic and age. The caller has the branch's turn.
func (t *tally) count(topic string, at int64) {
	w := t.latest
	if w == nil || w.name != topic {
		if w = t.topics[topic]; w == nil {
			w = &written{name: topic, oldest: math.MaxInt64}
			t.topics[topic] = w
		}
		t.latest = w
	}
	w.records++
	w.oldest = min(w.oldest, at)
}
