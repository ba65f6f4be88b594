package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// producer is the identity under which every record of a transaction must have been written.
type producer struct {
	pid   int64
	epoch int16
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

// receipts keeps account of a branch's records: how many bytes are under way, how many records
// were acknowledged and where they went, and what failed first.
type receipts struct {
	limit int           // bytes that may be under way
	room  chan struct{} // told when some came back
	as    producer      // set before the first record is sent

	mu       sync.Mutex // guards the two below; never held across I/O
	failed   error      // the first
	inFlight int        // bytes not acknowledged

	// What follows belongs to the client's promises, which are called one at a time, until complete has
	// seen that all of them have been.
	acked int
	spans map[place]*extent
	last  *extent // the partition acknowledged last
}

func newReceipts(limit int) receipts {
	return receipts{limit: limit, room: make(chan struct{}, 1), spans: make(map[place]*extent)}
}

// from pins the producer, before anything is sent.
func (g *receipts) from(p producer) { g.as = p }

// failure is what failed first, or nil.
func (g *receipts) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// fail keeps the first failure.
func (g *receipts) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed == nil && !mutant.On("kafka/failed-produce-is-no") {
		g.failed = err
	}
}

// admit waits until n more bytes may be under way. One chunk is always let in.
func (g *receipts) admit(ctx context.Context, n int) error {
	for {
		g.mu.Lock()
		failed := g.failed
		fits := g.inFlight == 0 || g.inFlight+n <= g.limit
		if fits && failed == nil {
			g.inFlight += n
		}
		g.mu.Unlock()
		if failed != nil {
			return failed
		}
		if fits {
			return nil
		}
		select {
		case <-g.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take notes what became of one record of a chunk. The client calls it for one record at a time, so
// it locks nothing for those that are well: there are millions of them.
func (g *receipts) take(c *chunk, r *kgo.Record, err error) {
	switch {
	case err != nil:
		g.fail(classed(fmt.Errorf("%s could not be written to %s: %w", c.origin(r), placeOf(r), err)))
	case r.ProducerID != g.as.pid || r.ProducerEpoch != g.as.epoch:
		// The client took up another identity by itself, and with it dropped what went before.
		g.fail(fmt.Errorf("%s was written to %s at %d by producer %d epoch %d, but the transaction is %d epoch %d: %w",
			c.origin(r), placeOf(r), r.Offset, r.ProducerID, r.ProducerEpoch, g.as.pid, g.as.epoch, participant.ErrLost))
	default:
		g.extend(r)
		g.acked++
	}
	if c.left--; c.left == 0 {
		g.back(c)
	}
}

// back makes room for what a chunk held, and gives it back.
func (g *receipts) back(c *chunk) {
	n := c.bytes
	c.drop()
	g.mu.Lock()
	g.inFlight -= n
	g.mu.Unlock()
	select {
	case g.room <- struct{}{}:
	default:
	}
}

// extend notes where a record went.
func (g *receipts) extend(r *kgo.Record) {
	e := g.last
	if e == nil || e.partition != r.Partition || e.topic != r.Topic {
		at := place{r.Topic, r.Partition}
		if e = g.spans[at]; e == nil {
			e = &extent{place: at, first: r.Offset}
			g.spans[at] = e
		}
		g.last = e
	}
	e.first, e.last = min(e.first, r.Offset), max(e.last, r.Offset)
	e.count++
}

// complete is nil if all that was sent was acknowledged, by the right producer. The caller has flushed; a
// record that was refused before it was buffered is none that a flush waits for, so its promise is waited for here.
func (g *receipts) complete(ctx context.Context, sent int) error {
	for {
		g.mu.Lock()
		failed, out := g.failed, g.inFlight > 0
		g.mu.Unlock()
		if failed != nil {
			return failed
		}
		if !out {
			break
		}
		select {
		case <-g.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if g.acked != sent {
		return fmt.Errorf("%w: %d records were sent and %d acknowledged", participant.ErrBug, sent, g.acked)
	}
	return nil
}

// topics lists what was acknowledged, in order. It is complete.
func (g *receipts) topics() []span {
	all := make([]*extent, 0, len(g.spans))
	for _, e := range g.spans {
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y *extent) int {
		return cmp.Or(cmp.Compare(x.topic, y.topic), cmp.Compare(x.partition, y.partition))
	})
	var out []span
	for _, e := range all {
		if n := len(out); n == 0 || out[n-1].Topic != e.topic {
			out = append(out, span{Topic: e.topic})
		}
		s := &out[len(out)-1]
		s.Parts = append(s.Parts, []int64{int64(e.partition), e.first, e.last - e.first, e.count})
	}
	return out
}
