package rig

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReadCommitted calls f with each record of a topic that readers of committed records see now, those of a partition in
// their order. It is an error when they do not all come within limit: that nothing comes does not mean that nothing is there.
func ReadCommitted(ctx context.Context, brokers []string, topic string, limit time.Duration, f func(r *kgo.Record)) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords()) // the last one of a partition is mostly a marker
	if err != nil {
		return fmt.Errorf("make a reader of %s: %w", topic, err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	left, err := committed(ctx, kadm.NewClient(cl), topic)
	if err != nil {
		return err
	}
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read %s, of which partitions are left up to offsets %v: %w", topic, left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, more := left[r.Partition]
			if more && !r.Attrs.IsControl() && r.Offset < end {
				f(r)
			}
			if r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
	}
	return nil
}

// committed is where the committed records end of each partition that has any.
func committed(ctx context.Context, adm *kadm.Client, topic string) (map[int32]int64, error) {
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list committed offsets of %s: %w", topic, err)
	}
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list start offsets of %s: %w", topic, err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if s, ok := starts.Lookup(o.Topic, o.Partition); ok && s.Offset < o.Offset {
			left[o.Partition] = o.Offset
		}
	})
	return left, nil
}
