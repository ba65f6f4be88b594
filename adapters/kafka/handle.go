package kafka

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// Versions of handles. A finisher leaves newer ones alone. The body is the same in all.
const (
	// handleVersion is of epochs: the name is the transactional id, which tells whose the branch is, producer and epoch.
	handleVersion = 1
	// handleByHand is of transactions by hand, whose transactional ids tell the process and not the transaction: the name
	// begins with that of the branch, by which every finisher judges whose it is. Handles of before are of handleVersion.
	handleByHand = 2
)

// The version classes of EndTxn. One transaction is ended with one class for ever: a broker
// answers a repeat of another class as if somebody else had ended it (I3).
const (
	classOld = 4 // transaction version 0 or 1: the epoch stays
	classNew = 5 // transaction version 2: every end raises the epoch
)

// body is what a handle carries: compact JSON, so that a person can read it too.
type body struct {
	Cluster string `json:"cluster"`
	TxnID   string `json:"txn"`
	PID     int64  `json:"pid"`
	Epoch   int16  `json:"epoch"`
	Class   int    `json:"class"`
	// Branch is empty in handles that a listing made: transactional ids do not carry epochs.
	Branch  string   `json:"branch,omitempty"`
	Witness *witness `json:"witness,omitempty"`
	// Offsets is the partition of the broker's own offsets topic that the witness went to; nil
	// where the broker does not show it.
	Offsets *int32 `json:"offsets,omitempty"`
	Topics  []span `json:"topics,omitempty"`
}

// witness names the key of the witness: an offset of a private group.
type witness struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// span is what a transaction wrote to one topic.
type span struct {
	Topic string `json:"t"`
	ID    []byte `json:"id,omitempty"`
	// Parts holds [partition, first offset, last - first, count] each; [partition] alone where
	// the offsets are not known.
	Parts [][]int64 `json:"p"`
}

// partitions calls fn for each data partition.
func (b *body) partitions(fn func(topic string, partition int32)) {
	for _, s := range b.Topics {
		for _, p := range s.Parts {
			fn(s.Topic, int32(p[0]))
		}
	}
}

// places calls fn for each partition, that of the witness among them.
func (b *body) places(fn func(topic string, partition int32)) {
	b.partitions(fn)
	if b.Offsets != nil {
		fn(offsetsTopic, *b.Offsets)
	}
}

// topicNames lists the topics that were written to.
func (b *body) topicNames() []string {
	out := make([]string, len(b.Topics))
	for i, s := range b.Topics {
		out[i] = s.Topic
	}
	return out
}

// records is how many were written to the topic, as far as it is known.
func (s span) records() (n int64) {
	for _, p := range s.Parts {
		if len(p) == 4 {
			n += p[3]
		}
	}
	return n
}

// name is what makes the transaction unique for ever in the cluster.
func (b *body) name() string { return handleName(b.TxnID, b.PID, b.Epoch) }

// named is the handle's version and name.
func (b *body) named() (version uint32, name string) {
	if n, err := participant.ParseBranchName(b.Branch); err == nil && n.Txn != "" && !mutant.On("kafka/by-hand-names-its-transaction") {
		return handleByHand, b.Branch + "|" + b.name()
	}
	return handleVersion, b.name()
}

// encode makes the handle, or says that it would be too large.
func (b *body) encode(alias string) (participant.Handle, error) {
	data, err := json.Marshal(b)
	if err != nil {
		return participant.Handle{}, fmt.Errorf("encode handle of %s: %w: %w", b.TxnID, participant.ErrBug, err)
	}
	h := participant.Handle{Kind: Kind, Identity: b.Cluster, Alias: alias, Text: b.text(), Body: data}
	h.Version, h.Name = b.named()
	const envelope = 64
	if n := len(data) + len(h.Name) + len(h.Text) + len(h.Identity) + len(alias) + envelope; n > participant.MaxHandle {
		parts := 0
		b.partitions(func(string, int32) { parts++ })
		return participant.Handle{}, fmt.Errorf("%w: one epoch wrote to %d partitions, and the handle that names them takes %d bytes of at most %d: write to fewer partitions, or split the pipeline into shards", participant.ErrMisconfigured, parts, n, participant.MaxHandle)
	}
	return h, nil
}

// text says for people what the transaction holds.
func (b *body) text() string {
	var what []string
	for _, s := range b.Topics {
		what = append(what, fmt.Sprintf("%d records in %d partitions of %s", s.records(), len(s.Parts), s.Topic))
		if len(what) == 3 {
			break
		}
	}
	if len(what) == 0 {
		return "transaction " + b.TxnID
	}
	return strings.Join(what, ", ")
}

// decode reads a handle of this adapter. Handles of other kinds and of newer versions are
// ErrUnknownHandle: another finisher's work.
func decode(h participant.Handle) (*body, error) {
	if h.Kind != Kind {
		return nil, fmt.Errorf("%w: kind %q, this is kafka", participant.ErrUnknownHandle, h.Kind)
	}
	if h.Version != handleVersion && h.Version != handleByHand {
		return nil, fmt.Errorf("%w: kafka handle version %d, this build knows %d and older: finish it with a newer build", participant.ErrUnknownHandle, h.Version, handleByHand)
	}
	var b body
	if err := json.Unmarshal(h.Body, &b); err != nil {
		return nil, fmt.Errorf("kafka handle %s cannot be read: %w: %w", h.Name, participant.ErrBug, err)
	}
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("kafka handle %s: %w: %w", h.Name, participant.ErrBug, err)
	}
	name := b.name()
	if h.Version == handleByHand {
		if version, own := b.named(); version == h.Version {
			name = own
		}
	}
	if name != h.Name {
		return nil, fmt.Errorf("kafka handle %s: %w: its body names %s", h.Name, participant.ErrBug, name)
	}
	return &b, nil
}

// check finds what no handle of ours looks like.
func (b *body) check() error {
	if _, ours := parseSlotID(b.TxnID); !ours {
		return fmt.Errorf("%q is no transactional id of ours", b.TxnID)
	}
	if b.PID < 0 || b.Epoch < 0 {
		return fmt.Errorf("producer %d epoch %d", b.PID, b.Epoch)
	}
	if b.Class != classOld && b.Class != classNew {
		return fmt.Errorf("EndTxn version class %d", b.Class)
	}
	for _, s := range b.Topics {
		if s.Topic == "" {
			return fmt.Errorf("a topic without a name")
		}
		for _, p := range s.Parts {
			if n := len(p); (n != 1 && n != 4) || slices.Min(p) < 0 || p[0] > 1<<31-1 {
				return fmt.Errorf("topic %s: partition %v", s.Topic, p)
			}
		}
	}
	return nil
}
