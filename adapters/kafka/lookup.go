package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// outcome is what can be read about a transaction.
type outcome struct {
	open     bool // not ended, or its end is not complete
	verdict  participant.Verdict
	evidence string
	guessed  bool // nothing speaks for the verdict but that nothing speaks against it
	unsure   bool // a log was not found, which may be there again
}

// look reads how a transaction stands without changing it: the coordinator first, then the
// witness, then the markers in the log. The order matters: the other way round a commit between
// the two looks would leave no trace in either.
func (f *finish) look(ctx context.Context) (outcome, error) {
	d, err := f.described(ctx)
	if err != nil {
		return outcome{}, err
	}
	if d.ongoing(f.b) || d.ending(f.b) {
		return outcome{open: true, evidence: d.said()}, nil
	}
	if v := d.ended(f.b); v != 0 {
		return outcome{verdict: v, evidence: d.said()}, nil
	}
	if f.b.Witness != nil && !mutant.On("kafka/witness") {
		_, note, err := fetchOffset(ctx, f.cl, *f.b.Witness)
		if err != nil {
			return outcome{}, err
		}
		if note != "" && (note == f.b.testimony() || f.b.Branch == "" && strings.HasSuffix(note, f.b.testimonyEnd())) {
			return outcome{verdict: participant.Committed, evidence: "the witness in group " + f.b.Witness.Group + " is committed"}, nil
		}
	}
	return f.markers(ctx, 0, markersIn)
}

// described asks the coordinator; an id that it does not know is described as nothing.
func (f *finish) described(ctx context.Context) (described, error) {
	all, err := describe(ctx, f.cl, f.b.TxnID)
	if err != nil {
		return described{}, classed(err)
	}
	if len(all) != 1 {
		return described{}, fmt.Errorf("describe %s: %d answers", f.b.TxnID, len(all))
	}
	d := all[0]
	if errors.Is(d.err, kerr.TransactionalIDNotFound) {
		return described{id: d.id, state: "unknown", pid: -1, epoch: -1}, nil
	}
	if d.err != nil {
		return described{}, classed(fmt.Errorf("describe %s: %w", d.id, d.err))
	}
	return d, nil
}

// said is the description as evidence.
func (d described) said() string {
	if d.pid < 0 {
		return "the coordinator does not know the id"
	}
	return fmt.Sprintf("the coordinator shows %s of producer %d epoch %d", d.state, d.pid, d.epoch)
}

// ours reports whether a description of an ended transaction is of this one. Its end raises the
// epoch in the new class. In the old class it does not, and the next epoch may be that of the
// next transaction as well as of a fence or a time-out that ended this one.
func (d described) ours(b *body) bool {
	if b.Class == classOld {
		return d.pid == b.PID && d.epoch == b.Epoch
	}
	return d.pid == b.PID && d.epoch == b.Epoch+1
}

func (d described) ongoing(b *body) bool {
	return d.state == stateOngoing && d.pid == b.PID && d.epoch == b.Epoch
}

// ending reports whether the markers are being written. With the old class this may be the end of
// the next transaction too; then it is soon over.
func (d described) ending(b *body) bool {
	raised := b.Class == classOld && d.pid == b.PID && d.epoch == b.Epoch+1
	return (d.state == statePrepareCommit || d.state == statePrepareAbort) && (d.ours(b) || raised)
}

// ended is how the transaction ended, if the coordinator still remembers it.
func (d described) ended(b *body) participant.Verdict {
	switch {
	case !d.ours(b):
		return 0
	case d.state == stateCommitted:
		return participant.Committed
	case d.state == stateAborted:
		return participant.RolledBack
	}
	return 0
}

// markersIn is on how many partitions markers are looked for; they all say the same. Where they say nothing the others
// may, whose records are kept for longer.
const markersIn = 4

// markers looks for the transaction's end in the log itself, from its first record on, in so many of its partitions.
func (f *finish) markers(ctx context.Context, from, to int) (outcome, error) {
	at, unsure := -1, false
	for _, s := range f.b.Topics {
		for _, p := range s.Parts {
			if len(p) < 2 {
				continue
			}
			if at++; at < from || at >= to {
				continue
			}
			out, err := f.markerIn(ctx, s.Topic, int32(p[0]), p[1])
			if err != nil || out.verdict != 0 {
				return out, err
			}
			unsure = unsure || out.unsure
		}
	}
	return outcome{unsure: unsure}, nil
}

// markerIn reads a partition from the transaction's first record to its present end.
func (f *finish) markerIn(ctx context.Context, topic string, partition int32, from int64) (outcome, error) {
	end, found, err := f.readable(ctx, topic, partition, from)
	if err != nil || !found || end <= from {
		return outcome{unsure: !found}, err
	}
	cl, err := f.sink.at.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		return outcome{}, err
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return outcome{}, classed(fmt.Errorf("read the markers of %s: %w", splitID(topic, partition), err))
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if v := f.marks(r); v != 0 {
				return outcome{verdict: v, evidence: fmt.Sprintf("the log of %s has its marker at %d", splitID(topic, partition), r.Offset)}, nil
			}
			if r.Offset+1 >= end {
				return outcome{}, nil
			}
		}
	}
}

// marks is the verdict of a record that is our transaction's marker. Brokers stamp it with the
// epoch of the records, or with the one that the end raised it to.
func (f *finish) marks(r *kgo.Record) participant.Verdict {
	if !r.Attrs.IsControl() || r.ProducerID != f.b.PID || (r.ProducerEpoch != f.b.Epoch && r.ProducerEpoch != f.b.Epoch+1) {
		return 0
	}
	var key kmsg.ControlRecordKey
	if err := key.ReadFrom(r.Key); err != nil {
		return 0 // some other control record
	}
	switch key.Type {
	case kmsg.ControlRecordKeyTypeCommit:
		return participant.Committed
	case kmsg.ControlRecordKeyTypeAbort:
		return participant.RolledBack
	}
	return 0
}

// readable gives the end of a partition, and nothing that is behind the offset if it does not have that any more. It is
// not found while no broker knows of it.
func (f *finish) readable(ctx context.Context, topic string, partition int32, from int64) (end int64, found bool, err error) {
	start, err := f.offset(ctx, topic, partition, -2)
	if err != nil || start < 0 {
		return 0, false, err
	}
	if from < start {
		return 0, true, nil
	}
	end, err = f.offset(ctx, topic, partition, -1)
	return end, err == nil && end >= 0, err
}

// offset asks for the first (-2) or the end (-1) offset of a partition; -1 where there is none.
func (f *finish) offset(ctx context.Context, topic string, partition int32, at int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, at
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, f.cl)
	if isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID) {
		return -1, nil
	}
	if err != nil {
		return -1, classed(fmt.Errorf("ask for the offsets of %s: %w", splitID(topic, partition), err))
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return -1, fmt.Errorf("ask for the offsets of %s: an answer without it", splitID(topic, partition))
	}
	got := resp.Topics[0].Partitions[0]
	err = kerr.ErrorForCode(got.ErrorCode)
	if isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID) {
		return -1, nil
	}
	return got.Offset, classed(err)
}
