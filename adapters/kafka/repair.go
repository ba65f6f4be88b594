package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
)

// Brokers up to 4.4 may call a transaction complete and have dropped the marker of a partition that
// had no leader at that moment. Readers stay blocked there, and the next transaction of the
// producer would decide the old records. The cure is to write the marker that is missing. It must
// not be able to decide a later transaction, however late it arrives: it carries transaction
// version 2 and the epoch that the end has raised the producer to, and with that version a partition takes a
// marker only for an epoch below the marker's own. The next transaction has that very epoch.

// markerVersion is the transaction version of every marker that is written here, never 0, which
// would be taken for any epoch up to the marker's own.
const markerVersion = 2

// torn is a partition that shows a transaction open which its coordinator has ended.
type torn struct {
	place
	first       int64 // of the transaction's offsets there
	coordinator int32 // epoch of the coordinator that the partition last heard of, for this producer
}

// names lists partitions for people.
func names(open []torn) string {
	out := make([]string, len(open))
	for i, t := range open {
		out[i] = splitID(t.topic, t.partition)
	}
	return strings.Join(out, ", ")
}

// openOn finds the partitions of the handle on which our transaction is still open. One that is
// gone holds nothing.
func (f *finish) openOn(ctx context.Context) ([]torn, error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	f.b.places(func(topic string, partition int32) {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != topic {
			t := kmsg.NewDescribeProducersRequestTopic()
			t.Topic = topic
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, partition)
	})
	if len(req.Topics) == 0 {
		return nil, nil
	}
	var open []torn
	for _, shard := range f.cl.RequestSharded(ctx, req) {
		if isAny(shard.Err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID) {
			continue
		}
		resp, ok := shard.Resp.(*kmsg.DescribeProducersResponse)
		if shard.Err != nil || !ok {
			return nil, classed(fmt.Errorf("ask who writes to the partitions: %w", shard.Err))
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				err := kerr.ErrorForCode(p.ErrorCode)
				if isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID) {
					continue
				}
				if err != nil {
					return nil, classed(fmt.Errorf("ask who writes to %s: %w", splitID(t.Topic, p.Partition), err))
				}
				open = f.ourOwn(open, place{t.Topic, p.Partition}, p.ActiveProducers)
			}
		}
	}
	slices.SortFunc(open, func(a, b torn) int {
		return strings.Compare(splitID(a.topic, a.partition), splitID(b.topic, b.partition))
	})
	return open, nil
}

// ourOwn adds the partition if our transaction is among those that write to it.
func (f *finish) ourOwn(open []torn, at place, active []kmsg.DescribeProducersResponseTopicPartitionActiveProducer) []torn {
	for _, a := range active {
		if a.ProducerID == f.b.PID && a.ProducerEpoch == int32(f.b.Epoch) && a.CurrentTxnStartOffset >= 0 {
			return append(open, torn{place: at, first: a.CurrentTxnStartOffset, coordinator: a.CoordinatorEpoch})
		}
	}
	return open
}

// mend writes the missing markers of a transaction that is torn, and says so as evidence. What
// can't be mended is an error that says what a person can do; the branch is then not resolved.
func (f *finish) mend(ctx context.Context, ended outcome, open []torn) (string, error) {
	if f.sink.noRepair {
		return "", &participant.RetryAfter{After: leaderWait, Err: fmt.Errorf("torn: the coordinator has ended the transaction (%s), but %s still shows it open; readers are blocked there until its marker is written", ended.evidence, names(open))}
	}
	switch {
	case ended.guessed:
		return "", f.alarm(ended, open, "nothing shows whether it was committed, so no marker is written")
	case f.b.Class == classOld:
		return "", f.alarm(ended, open, "with transaction version 1 a marker that is written late could decide a later transaction, so none is written")
	}
	if c, err := f.sink.probed(ctx); err != nil || !c.markers {
		return "", errors.Join(err, f.alarm(ended, open, "its marker cannot be written: not all brokers know WriteTxnMarkers version 2, which Kafka 4.2 brought"))
	}
	f.sink.log().WarnContext(ctx, "a transaction is torn; its missing markers are being written", obs.Branch(f.b.name()), obs.Cause(names(open)))
	fault.Point("kafka/before-repair")
	err := f.writeMarkers(ctx, ended.verdict, open, markerVersion)
	fault.Point("kafka/after-repair")
	switch {
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return "", f.alarm(ended, open, "its marker cannot be written: the right ALTER on the cluster (or CLUSTER_ACTION) is missing; grant it to this user, and the next try repairs it")
	case err != nil:
		return "", fmt.Errorf("torn: write the markers missing on %s: %w", names(open), err)
	}
	if open, err = f.openOn(ctx); err != nil {
		return "", err
	}
	if len(open) > 0 {
		return "", &participant.RetryAfter{After: leaderWait, Err: fmt.Errorf("torn: the missing marker was written, but %s still shows the transaction open", names(open))}
	}
	return "the markers that the brokers had dropped were written", nil
}

// alarm is the error for a torn transaction that a person must look at.
func (f *finish) alarm(ended outcome, open []torn, why string) error {
	verdict, wrong, right := "abort", "a COMMIT marker would show records that were rolled back", "kafka-transactions.sh abort writes the right one"
	if ended.verdict == participant.Committed {
		verdict, wrong, right = "commit", "kafka-transactions.sh abort would lose records that are committed", "write a COMMIT marker"
	}
	where := make([]string, len(open))
	for i, t := range open {
		where[i] = fmt.Sprintf("%s from offset %d", splitID(t.topic, t.partition), t.first)
	}
	return fmt.Errorf("torn: %w: the coordinator has ended transaction %s of producer %d epoch %d with %s (%s), but readers of %s are still blocked by it; %s. Choices: %s for producer %d (%s); or give those records up, and force the branch",
		participant.ErrMisconfigured, f.b.TxnID, f.b.PID, f.b.Epoch, verdict, ended.evidence, strings.Join(where, ", "), why, right, f.b.PID, wrong)
}

// writeMarkers asks the leaders to end our transaction on partitions. A partition that has heard
// of a newer epoch refuses, which is no error here: whoever asks looks again. A broker that knows
// the request in an older form only, which says nothing of the transaction version and is read as
// 0, is not asked.
func (f *finish) writeMarkers(ctx context.Context, v participant.Verdict, open []torn, version int8) error {
	least := new(kversion.Versions)
	least.SetMaxKeyVersion(int16(kmsg.WriteTxnMarkers), 2)
	cl, err := f.sink.at.client(kgo.MinVersions(least))
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	for _, t := range open { // one marker each: they may have heard of different coordinators
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.Committed = f.b.PID, f.b.Epoch+1, v == participant.Committed
		m.CoordinatorEpoch, m.TransactionVersion = max(t.coordinator, 0), version
		topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		topic.Topic, topic.Partitions = t.topic, []int32{t.partition}
		m.Topics = append(m.Topics, topic)
		req.Markers = append(req.Markers, m)
	}
	for _, shard := range cl.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.WriteTxnMarkersResponse)
		if shard.Err != nil || !ok {
			return fmt.Errorf("ask for the markers: %w", shard.Err)
		}
		for _, m := range resp.Markers {
			for _, t := range m.Topics {
				for _, p := range t.Partitions {
					err := kerr.ErrorForCode(p.ErrorCode)
					if err != nil && !isAny(err, kerr.InvalidProducerEpoch, kerr.UnknownTopicOrPartition) {
						return fmt.Errorf("marker for %s: %w", splitID(t.Topic, p.Partition), err)
					}
				}
			}
		}
	}
	return nil
}
