package rig

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 4
	// As many customers, and names as long and as hard to compress, as it takes to make the state of
	// two open windows too large for a vote, so that it goes through the store.
	customers  = 1000
	nameBytes  = 72
	writeEvery = 20 * time.Millisecond
	// jitter of event times stays within the pipeline's bound of disorder, so no order is late.
	jitter = 200 * time.Millisecond
)

// MakeTopics makes what the orders pipeline reads and writes.
func MakeTopics(ctx context.Context, cl *kgo.Client, topics ...string) error {
	made, err := kadm.NewClient(cl).CreateTopics(ctx, partitions, 1, nil, topics...)
	if err != nil {
		return fmt.Errorf("create the topics: %w", err)
	}
	for _, t := range made {
		if t.Err != nil && !errors.Is(t.Err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", t.Topic, t.Err)
		}
	}
	return nil
}

// Generate writes about rate orders a second to a topic until ctx ends, and adds to count what was
// acknowledged. While the broker is away it waits. The end of ctx is no error.
func Generate(ctx context.Context, cl *kgo.Client, topic string, rate int, seed uint64, count *atomic.Int64) error {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	rng := rand.New(rand.NewPCG(seed, 1))
	names := customerNames(rng)
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		batch := make([]*kgo.Record, max(1, rate*int(writeEvery)/int(time.Second)))
		for i := range batch {
			batch[i] = order(topic, rng, names[rng.IntN(customers)], n, time.Now())
			n++
		}
		if err := seenThrough(ctx, cl, batch, 30*time.Second); err != nil {
			return fmt.Errorf("write orders: %w", err)
		}
		count.Add(int64(len(batch)))
	}
}

// seenThrough writes what was begun also when ctx has ended, so that the next is written behind it in every
// partition, but for patience at most then: where the broker is gone for good, the run has to end all the same.
// Records that may have been sent are the client's until it is closed.
func seenThrough(ctx context.Context, cl *kgo.Client, batch []*kgo.Record, patience time.Duration) error {
	written := make(chan error, 1)
	go func() { written <- cl.ProduceSync(context.WithoutCancel(ctx), batch...).FirstErr() }()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
	}
	last := time.NewTimer(patience)
	defer last.Stop()
	select {
	case err := <-written:
		return err
	case <-last.C:
		return fmt.Errorf("%w within %s after the end of writing", errNotWritten, patience)
	}
}

var errNotWritten = errors.New("the broker has not taken what was begun")

func customerNames(rng *rand.Rand) []string {
	names := make([]string, customers)
	raw := make([]byte, nameBytes)
	for i := range names {
		for j := range raw {
			raw[j] = byte(rng.Uint32())
		}
		names[i] = fmt.Sprintf("c-%04d-%s", i, base64.RawURLEncoding.EncodeToString(raw))
	}
	return names
}

func order(topic string, rng *rand.Rand, customer string, n int, now time.Time) *kgo.Record {
	at := now.Add(-time.Duration(rng.Int64N(int64(jitter))))
	value := fmt.Sprintf(`{"order":"o-%07d","customer":%q,"cents":%d,"at":%d}`, n, customer, 1+rng.IntN(100_000), at.UnixMilli())
	return &kgo.Record{Topic: topic, Key: []byte(customer), Value: []byte(value), Timestamp: at}
}
