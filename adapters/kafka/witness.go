package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/participant"
)

const (
	offsetsTopic = "__consumer_offsets"
	// ownWitnessTopic is made where clients cannot see the offsets topic.
	ownWitnessTopic = "unisink.witness"
	ownWitnessParts = 16
	// fencePartition is the key that holds a resource's newest generation; witnesses use the others.
	fencePartition = 0
)

// keys are the partitions that a resource's private group commits offsets for.
type keys struct {
	topic string
	parts int32
}

// slotKey is the key of a slot's witness. No two slots of one generation share one, and none is
// the fence's: where there are more slots than partitions, further groups hold the rest.
func (k keys) slotKey(group string, generation uint64, slot int) witness {
	per := uint64(k.parts - 1)
	if block := uint64(slot) / per; block > 0 {
		group += "." + strconv.FormatUint(block, 10)
	}
	return witness{Group: group, Topic: k.topic, Partition: 1 + int32((generation+uint64(slot))%per)}
}

// findKeys decides which topic's partitions are the keys. The broker's own offsets topic is the
// best: nobody deletes it. A fresh cluster makes it when the first group is asked for.
func findKeys(ctx context.Context, e endpoint, cl *kgo.Client, want, group string) (keys, error) {
	topic := want
	if topic == "" {
		topic = offsetsTopic
	}
	if err := awaitGroups(ctx, cl, witness{Group: group, Topic: topic, Partition: fencePartition}); err != nil {
		return keys{}, fmt.Errorf("ask %s for group %s: %w", e, group, err)
	}
	k, err := seeKeys(ctx, e, cl, want)
	if err != nil {
		return keys{}, err
	}
	if k.parts == 0 {
		if want != "" {
			return keys{}, fmt.Errorf("%w: the witness topic %q does not exist at %s, or may not be seen: create it, or leave the setting out", participant.ErrMisconfigured, want, e)
		}
		if k, err = makeKeys(ctx, e, cl); err != nil {
			return keys{}, err
		}
	}
	if k.parts < 3 {
		return keys{}, fmt.Errorf("%w: the witness topic %q at %s has %d partitions; it needs one for the fence and one for each slot, 16 are plenty", participant.ErrMisconfigured, k.topic, e, k.parts)
	}
	return k, nil
}

// awaitGroups asks for a group until its coordinator answers. On a fresh cluster the first
// question makes the offsets topic, which takes a moment.
func awaitGroups(ctx context.Context, cl *kgo.Client, w witness) error {
	wait := slow()
	for {
		_, _, err := fetchOffset(ctx, cl, w)
		if !isAny(err, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator) {
			return err
		}
		if werr := wait.wait(ctx); werr != nil {
			return fmt.Errorf("%w: %w", err, werr)
		}
	}
}

// seeKeys finds the topic of keys that is there; no partitions: none is.
func seeKeys(ctx context.Context, e endpoint, cl *kgo.Client, want string) (keys, error) {
	names := []string{offsetsTopic, ownWitnessTopic}
	if want != "" {
		names = []string{want}
	}
	_, topics, err := metadata(ctx, cl, names...)
	if err != nil {
		return keys{}, classed(fmt.Errorf("ask %s for topic %s: %w", e, names[0], err))
	}
	for _, name := range names {
		if t, ok := topics[name]; ok && t.err == nil && len(t.parts) > 0 {
			return keys{topic: name, parts: int32(len(t.parts))}, nil
		}
	}
	return keys{}, nil
}

// makeKeys creates our own topic of keys.
func makeKeys(ctx context.Context, e endpoint, cl *kgo.Client) (keys, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = ownWitnessTopic, ownWitnessParts, -1
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil && len(resp.Topics) == 1 {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return keys{}, classed(fmt.Errorf("create the witness topic %q at %s: %w", ownWitnessTopic, e, err))
	}
	wait := slow()
	for {
		k, err := seeKeys(ctx, e, cl, ownWitnessTopic)
		if err == nil && k.parts > 0 {
			return k, nil
		}
		if werr := wait.wait(ctx); werr != nil { // a topic just made takes a moment to be seen everywhere
			return keys{}, errors.Join(werr, err)
		}
	}
}

// testify puts the witness into a transaction: an offset that becomes visible if and only if the
// transaction commits. From any client, as long as the epoch is the transaction's.
func testify(ctx context.Context, cl *kgo.Client, b *body, number uint64) error {
	return offsetIn(ctx, cl, b, *b.Witness, int64(number), b.testimony())
}

// offsetIn commits an offset inside a transaction.
func offsetIn(ctx context.Context, cl *kgo.Client, b *body, w witness, offset int64, note string) error {
	if b.Class == classOld {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = b.TxnID, b.PID, b.Epoch, w.Group
		resp, err := add.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			return fmt.Errorf("add group %s to %s: %w", w.Group, b.TxnID, err)
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = b.TxnID, w.Group, b.PID, b.Epoch
	req.Generation = -1
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = w.Topic
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset, part.Metadata = w.Partition, offset, kmsg.StringPtr(note)
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("write to group %s in %s: %w", w.Group, b.TxnID, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("write to group %s in %s, key %s: %w", w.Group, b.TxnID, splitID(w.Topic, p.Partition), err)
			}
		}
	}
	return nil
}

// testimony is what the witness says: the branch's name, and the producer that wrote it, which
// alone names the transaction for handles that a listing made.
func (b *body) testimony() string { return b.Branch + b.testimonyEnd() }

func (b *body) testimonyEnd() string {
	return " " + strconv.FormatInt(b.PID, 10) + ":" + strconv.Itoa(int(b.Epoch))
}

// fetchOffset reads a committed offset of a group and its metadata; -1 where there is none.
// What transactions still hold is not shown, so what is shown was committed.
func fetchOffset(ctx context.Context, cl *kgo.Client, w witness) (int64, string, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = w.Group
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.Partitions = w.Topic, []int32{w.Partition}
	group.Topics = append(group.Topics, topic)
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return -1, "", classed(fmt.Errorf("fetch offset of group %s: %w", w.Group, err))
	}
	for _, g := range resp.Groups {
		err := kerr.ErrorForCode(g.ErrorCode)
		if errors.Is(err, kerr.GroupIDNotFound) {
			return -1, "", nil
		}
		if err != nil {
			return -1, "", classed(fmt.Errorf("fetch offset of group %s: %w", w.Group, err))
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				err := kerr.ErrorForCode(p.ErrorCode)
				switch {
				case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
					return -1, "", nil
				case err != nil:
					return -1, "", classed(fmt.Errorf("fetch offset of group %s: %w", w.Group, err))
				case p.Metadata == nil:
					return p.Offset, "", nil
				default:
					return p.Offset, *p.Metadata, nil
				}
			}
		}
	}
	return -1, "", nil
}
