package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/processor/stream"
)

// watch reads what is committed to a topic as soon as it can be read, from its beginning until ctx ends,
// which is no error. While a broker is away it asks again.
func watch(ctx context.Context, brokers []string, topic string, take func(r *stream.Record, at time.Time) error) error {
	s, err := kafka.NewSource(kafka.SourceConfig{Name: "watch", Brokers: brokers, Topics: []string{topic}})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // it reads only
	at := map[stream.Split]stream.Position{}
	for ctx.Err() == nil {
		from := make([]stream.Position, 0, len(at))
		for _, p := range at {
			from = append(from, p)
		}
		if err := s.Open(ctx, from); err != nil {
			_ = group.Sleep(ctx, 20*time.Millisecond) // the loop looks at ctx
			continue
		}
		if err := watchOpened(ctx, s, at, take); errors.Is(err, errSeen) {
			return err
		}
	}
	return nil
}

// errSeen marks that something wrong was seen; all other errors are the broker's, and pass.
var errSeen = errors.New("the output is wrong")

// watchOpened reads until the source fails, ctx ends, or take says that something is wrong.
func watchOpened(ctx context.Context, s *kafka.Source, at map[stream.Split]stream.Position, take func(*stream.Record, time.Time) error) error {
	for {
		b, err := s.Poll(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		now := time.Now()
		for i := range b.Records {
			if err := take(&b.Records[i], now); err != nil {
				return fmt.Errorf("%w: %w", errSeen, err)
			}
		}
		p := b.Next
		p.Opaque = append([]byte(nil), p.Opaque...)
		at[b.Split] = p
	}
}
