package kafka

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/participant"
)

// A cluster answers a commit well when the records that it was about are gone: their topic was
// deleted, or made again under the same name, or its retention deleted what was undecided. So a
// handle keeps each topic's id and each partition's first offset, and a commit compares them
// with the cluster. What is lost then is said in the proof, which is a heuristic one; what is
// left is committed all the same, for that is the decision.

// ready looks, before a commit is sent, whether it can keep what the vote promised: every
// partition has a leader for its marker, and the records are there. It says what is lost.
func (f *finish) ready(ctx context.Context) (lost string, err error) {
	begun := make(chan error, 1)
	var cut string
	gctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		var err error
		cut, err = f.deletedFrom(gctx)
		begun <- err
	}()
	topics, without, err := leadersNow(ctx, f.cl, f.b)
	if err != nil || without != "" {
		cancel()
	}
	cutErr := <-begun
	if err != nil {
		return "", err
	}
	if without != "" && !mutant.On("kafka/leader-before-commit") {
		if f.pressed(ctx, without) {
			return "", nil
		}
		return "", &participant.RetryAfter{After: leaderWait, Err: fmt.Errorf("%s has no leader now, and a commit could lose its marker", without)}
	}
	if lost, err = f.replaced(ctx, topics); lost != "" || err != nil {
		return lost, err
	}
	if cutErr != nil && f.pressed(ctx, cutErr.Error()) {
		return "", nil
	}
	if cutErr != nil || cut == "" {
		return "", cutErr
	}
	return f.lostUndecided(ctx, cut)
}

// urgent is how long before its time-out a commit is sent whatever the partitions look like.
const urgent = time.Minute

// pressed reports whether the broker is about to end the transaction by itself. A commit that loses a
// marker can be mended; an abort of what was decided cannot.
func (f *finish) pressed(ctx context.Context, without string) bool {
	d, err := f.described(ctx)
	if err != nil || !d.ongoing(f.b) || d.timeout >= Unbounded || d.since.IsZero() {
		return false
	}
	left := time.Until(d.since.Add(d.timeout))
	if left > min(urgent, d.timeout/2) {
		return false
	}
	f.sink.log().WarnContext(ctx, "a commit is sent while a partition has no leader, because its time-out is near", obs.Branch(f.b.name()), obs.Cause(without), obs.Next(left))
	return true
}

// replaced names a topic of the handle that is not there any more, or is another one under the same
// name. A broker that has just started may know an older state of the cluster, so all of them
// must say the same, twice.
func (f *finish) replaced(ctx context.Context, topics map[string]topicInfo) (string, error) {
	lost := f.missing(topics)
	for round := 0; lost != "" && round < 2; round++ {
		if round > 0 {
			pause := pause{next: leaderWait, most: leaderWait}
			if err := pause.wait(ctx); err != nil {
				return "", err
			}
		}
		all, err := f.everyBroker(ctx)
		if err != nil {
			return "", err
		}
		for _, topics := range all {
			if f.missing(topics) == "" {
				return "", &participant.RetryAfter{After: leaderWait, Err: fmt.Errorf("the brokers do not agree: for some %s, for others it is there", lost)}
			}
		}
	}
	return lost, nil
}

// missing compares topics as a broker shows them with those of the handle.
func (f *finish) missing(topics map[string]topicInfo) string {
	for _, s := range f.b.Topics {
		if bytes.Count(s.ID, []byte{0}) == len(s.ID) {
			continue // not known: the handle is from a listing
		}
		t, ok := topics[s.Topic]
		switch {
		case !ok || t.missing():
			return fmt.Sprintf("topic %s was deleted, and %s of the branch with it", s.Topic, plural.Of(s.records(), "record"))
		case t.err == nil && !bytes.Equal(t.id[:], s.ID):
			return fmt.Sprintf("topic %s was deleted and made again, and %s of the branch went with the old one", s.Topic, plural.Of(s.records(), "record"))
		}
	}
	return ""
}

// everyBroker asks each broker for the topics of the handle.
func (f *finish) everyBroker(ctx context.Context) ([]map[string]topicInfo, error) {
	brokers, err := brokers(ctx, f.cl)
	if err != nil {
		return nil, classed(fmt.Errorf("ask for the brokers: %w", err))
	}
	names := f.b.topicNames()
	out := make([]map[string]topicInfo, 0, len(brokers))
	for _, id := range brokers {
		_, topics, err := metadata(ctx, f.cl.Broker(int(id)), names...)
		if err != nil {
			return nil, classed(fmt.Errorf("ask broker %d for topics %s: %w", id, strings.Join(names, ", "), err))
		}
		out = append(out, topics)
	}
	return out, nil
}

// movingTries are enough for leaders that have just moved: about two thirds of a second.
const movingTries = 5

// deletedFrom names the partitions whose log begins behind the first record of the transaction
// now. It says nothing about when that was deleted.
func (f *finish) deletedFrom(ctx context.Context) (string, error) {
	wait := slow()
	for tries := 1; ; tries++ {
		start, err := f.starts(ctx)
		if err == nil {
			return f.b.before(start), nil
		}
		if tries == movingTries || !kerr.IsRetriable(err) {
			return "", classed(fmt.Errorf("ask where the logs begin: %w", err))
		}
		if err := wait.wait(ctx); err != nil {
			return "", err
		}
	}
}

// starts asks for the first offset of each partition whose records the handle knows. What is gone
// is left out: the topic's identity says it.
func (f *finish) starts(ctx context.Context) (map[place]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for _, s := range f.b.Topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = s.Topic
		for _, p := range s.Parts {
			if len(p) == 4 {
				part := kmsg.NewListOffsetsRequestTopicPartition()
				part.Partition, part.Timestamp = int32(p[0]), -2
				t.Partitions = append(t.Partitions, part)
			}
		}
		if len(t.Partitions) > 0 {
			req.Topics = append(req.Topics, t)
		}
	}
	start := make(map[place]int64)
	if len(req.Topics) == 0 {
		return start, nil
	}
	for _, shard := range f.cl.RequestSharded(ctx, req) {
		if isAny(shard.Err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID) {
			continue
		}
		resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if shard.Err != nil || !ok {
			return nil, shard.Err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				err := kerr.ErrorForCode(p.ErrorCode)
				if err != nil && !isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID) {
					return nil, fmt.Errorf("%s: %w", splitID(t.Topic, p.Partition), err)
				}
				start[place{t.Topic, p.Partition}] = p.Offset
			}
		}
	}
	return start, nil
}

// before names the partitions that begin behind the transaction's first record.
func (b *body) before(start map[place]int64) string {
	var gone []string
	for _, s := range b.Topics {
		for _, p := range s.Parts {
			at := place{s.Topic, int32(p[0])}
			if len(p) == 4 && start[at] > p[1] {
				gone = append(gone, fmt.Sprintf("%s now begins at %d, and the branch's records there began at %d", splitID(at.topic, at.partition), start[at], p[1]))
			}
		}
	}
	return strings.Join(gone, "; ")
}

// lostUndecided tells records that were deleted while their transaction was undecided, which are
// lost, from those that were committed first. What it finds is noted in the cluster before the
// commit is sent, because afterwards nobody could tell.
func (f *finish) lostUndecided(ctx context.Context, cut string) (string, error) {
	d, err := f.described(ctx)
	if err != nil {
		return "", err
	}
	w, ok := f.lossKey()
	if !ok {
		return "", nil
	}
	said := "records of the branch were deleted before they were decided, by retention or by hand: " + cut
	if !d.ongoing(f.b) {
		_, note, err := fetchOffset(ctx, f.cl, w)
		if err != nil || note != f.b.testimony() {
			return "", err
		}
		return said, nil
	}
	fault.Point("kafka/before-loss-note")
	f.sink.log().ErrorContext(ctx, "undecided records were deleted", obs.Branch(f.b.name()), obs.Cause(cut))
	if err := noteOffset(ctx, f.cl, w, f.b.testimony()); err != nil {
		return "", err
	}
	fault.Point("kafka/after-loss-note")
	return said, nil
}

// lossKey is where the loss of a branch's records is noted: beside its witness.
func (f *finish) lossKey() (witness, bool) {
	if f.b.Witness == nil {
		return witness{}, false
	}
	w := *f.b.Witness
	w.Group += ".lost"
	return w, true
}

// confirmed looks again, after a commit, whether the topics are still the same ones.
func (f *finish) confirmed(ctx context.Context) (lost string, err error) {
	names := f.b.topicNames()
	if len(names) == 0 {
		return "", nil
	}
	_, topics, err := metadata(ctx, f.cl, names...)
	if err != nil {
		return "", classed(fmt.Errorf("ask for topics %s: %w", strings.Join(names, ", "), err))
	}
	return f.replaced(ctx, topics)
}

// noteOffset commits an offset outside any transaction.
func noteOffset(ctx context.Context, cl kmsg.Requestor, w witness, note string) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = w.Group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = w.Topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = w.Partition, time.Now().UnixMilli(), -1, &note
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return classed(fmt.Errorf("write to group %s: %w", w.Group, err))
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return classed(fmt.Errorf("write to group %s: %w", w.Group, err))
			}
		}
	}
	return nil
}
