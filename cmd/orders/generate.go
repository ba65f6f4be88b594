package orders

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/processor/stream"
)

const (
	customers = 50
	genEvery  = 20 * time.Millisecond
	// jitter of event times stays well within MaxDisorder, so that no order is late.
	jitter = 200 * time.Millisecond
)

// Generate writes about rate orders a second until ctx ends, and adds to count what the broker has
// acknowledged. The end of ctx is no error.
func Generate(ctx context.Context, brokers []string, topic string, rate int, count *atomic.Int64) (err error) {
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: brokers})
	if err != nil {
		return err
	}
	defer admin.Close()
	tick := time.NewTicker(genEvery)
	defer tick.Stop()
	rng := rand.New(rand.NewPCG(1, 2))
	began := time.Now()
	written := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		due := int(time.Since(began).Seconds() * float64(rate))
		batch := make([]stream.Record, 0, due-written)
		for ; written < due; written++ {
			batch = append(batch, order(rng, written, time.Now()))
		}
		// A batch that was begun is seen through: how much of it the broker has is never unknown.
		if err := admin.Produce(context.WithoutCancel(ctx), topic, batch); err != nil {
			return fmt.Errorf("write orders: %w", err)
		}
		count.Add(int64(len(batch)))
	}
}

func order(rng *rand.Rand, n int, now time.Time) stream.Record {
	customer := fmt.Sprintf("c-%02d", rng.IntN(customers))
	at := now.Add(-time.Duration(rng.Int64N(int64(jitter)))).UnixMilli()
	value := fmt.Sprintf(`{"order":"o-%07d","customer":%q,"cents":%d,"at":%d}`, n, customer, 1+rng.IntN(100_000), at)
	return stream.Record{Key: []byte(customer), Value: []byte(value), Time: at}
}

// Prepare makes the topics.
func Prepare(ctx context.Context, brokers []string, from, to string) (err error) {
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: brokers})
	if err != nil {
		return err
	}
	defer admin.Close()
	return errors.Join(
		admin.CreateTopic(ctx, from, Partitions, nil),
		admin.CreateTopic(ctx, to, Partitions, nil),
	)
}
