package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// scanIdle is how long a scan waits for a record before it asks what there is.
const scanIdle = 500 * time.Millisecond

// scan reads a partition from one offset up to, but not including, another. The last records of the range may have been
// compacted away, as the tombstones of what was deleted are in time.
func (s *StateStore) scan(ctx context.Context, partition int32, from, to int64, fn func(*kgo.Record)) error {
	if from >= to {
		return nil
	}
	cl, err := s.at.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: {partition: kgo.NewOffset().At(from)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	for at := from; at < to; {
		idle, cancel := context.WithTimeout(ctx, scanIdle)
		fetches := cl.PollFetches(idle)
		cancel()
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < to {
				fn(r)
			}
			at = max(at, r.Offset+1)
		})
		err := fetches.Err()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			at, err = s.skipGap(ctx, partition, at, to)
		}
		if err != nil {
			return classed(fmt.Errorf("read topic %q at %s: %w", s.topic, s.at, err))
		}
	}
	return nil
}

// skipGap looks with a fetch of its own at what stands behind an offset, since a consumer says nothing while there is
// nothing but batches without records. It returns the offset behind the gap: that of the next record at most, or to.
func (s *StateStore) skipGap(ctx context.Context, partition int32, at, to int64) (int64, error) {
	_, topics, err := metadata(ctx, s.cl, s.topic)
	if err != nil {
		return at, err
	}
	info := topics[s.topic]
	i := slices.IndexFunc(info.parts, func(p partInfo) bool { return p.number == partition && p.leader >= 0 })
	if i < 0 {
		return at, nil // nobody leads it now
	}
	req := kmsg.NewPtrFetchRequest()
	req.SessionEpoch, req.MaxBytes = -1, storeProbe
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = s.topic, info.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, at, storeProbe
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, s.cl.Broker(int(info.parts[i].leader)))
	if err != nil {
		return at, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return at, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return at, fmt.Errorf("the answer about partition %d at offset %d is not about it alone", partition, at)
	}
	got := &resp.Topics[0].Partitions[0]
	opts := kgo.ProcessFetchPartitionOpts{Topic: s.topic, Partition: partition, Offset: at}
	fp, next := kgo.ProcessFetchPartition(opts, got, kgo.DefaultDecompressor(), nil)
	switch {
	case kerr.IsRetriable(fp.Err): // a leader that moves: the consumer finds it, and so does the next look
		return at, nil
	case fp.Err != nil:
		return at, fp.Err
	case len(fp.Records) > 0: // the consumer is about to bring them
		return at, nil
	case len(got.RecordBatches) == 0 && fp.HighWatermark >= to:
		return to, nil
	}
	return max(at, next), nil
}

// storeProbe is how much one look at a gap reads at most, of a batch that is larger all the same.
const storeProbe = 1 << 20
