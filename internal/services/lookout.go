package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// internalPartitions is how many partitions the topics of transactions and of groups have.
const internalPartitions = 4

// lookout asks one broker what it sees.
type lookout struct {
	client *kgo.Client
}

func newLookout(addr string) (*lookout, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DialTimeout(askTimeout))
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", addr, err)
	}
	return &lookout{cl}, nil
}

func (l *lookout) close() { l.client.Close() }

// ask sends one request to this broker and no other, once.
func (l *lookout) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return l.client.SeedBrokers()[0].Request(ctx, req)
}

// sees returns nil when the broker counts id and at least so many brokers as alive.
func (l *lookout) sees(ctx context.Context, id int32, brokers int) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := l.ask(ctx, req)
	if err != nil {
		return err
	}
	meta := resp.(*kmsg.MetadataResponse)
	self := false
	for _, b := range meta.Brokers {
		self = self || b.NodeID == id
	}
	if !self || len(meta.Brokers) < brokers {
		return fmt.Errorf("it sees %d brokers alive (itself: %t), want %d", len(meta.Brokers), self, brokers)
	}
	return nil
}

// leader returns who leads a partition as far as the broker knows, -1 for nobody.
func (l *lookout) leader(ctx context.Context, topic string, partition int32) (int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := l.ask(ctx, req)
	if err != nil {
		return 0, err
	}
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return 0, fmt.Errorf("topic %s: %w", topic, err)
		}
		for _, p := range t.Partitions {
			if p.Partition == partition {
				return p.Leader, nil
			}
		}
	}
	return 0, fmt.Errorf("topic %s has no partition %d", topic, partition)
}

// CreateTopic makes a topic whose partition i lies on the brokers replicas[i], the leader
// first, and returns when every broker that runs knows the leaders.
func (c *KafkaCluster) CreateTopic(ctx context.Context, name string, replicas [][]int32, config map[string]string) error {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for i, on := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), on
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	for k, v := range config {
		entry := kmsg.NewCreateTopicsRequestTopicConfig()
		entry.Name, entry.Value = k, kmsg.StringPtr(v)
		t.Configs = append(t.Configs, entry)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(startTimeout / time.Millisecond)
	req.Topics = append(req.Topics, t)
	if err := c.create(ctx, req); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	for i, on := range replicas {
		if err := c.WaitLeader(ctx, name, int32(i), on[0]); err != nil {
			return err
		}
	}
	return nil
}

func (c *KafkaCluster) create(ctx context.Context, req *kmsg.CreateTopicsRequest) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...))
	if err != nil {
		return err
	}
	defer cl.Close()
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			if t.ErrorMessage != nil {
				return fmt.Errorf("%w: %s", err, *t.ErrorMessage)
			}
			return err
		}
	}
	return nil
}

// pinInternalTopics makes the topics of transactions and of groups on broker 1, as Kafka itself
// would make them on any.
func (c *KafkaCluster) pinInternalTopics(ctx context.Context) error {
	on := make([][]int32, internalPartitions)
	for i := range on {
		on[i] = []int32{1}
	}
	return errors.Join(
		c.CreateTopic(ctx, "__consumer_offsets", on, map[string]string{
			"cleanup.policy": "compact", "segment.bytes": "104857600", "compression.type": "producer",
		}),
		c.CreateTopic(ctx, "__transaction_state", on, map[string]string{
			"cleanup.policy": "compact", "segment.bytes": "104857600", "compression.type": "uncompressed",
			"min.insync.replicas": "1", "unclean.leader.election.enable": "false",
		}),
	)
}

// WaitLeader returns when every broker that runs says that a partition is led by that broker,
// or by nobody for -1.
func (c *KafkaCluster) WaitLeader(ctx context.Context, topic string, partition, leader int32) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, b := range c.brokers {
		if !b.answers() {
			continue
		}
		if err := b.waitLeader(ctx, topic, partition, leader); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) waitLeader(ctx context.Context, topic string, partition, leader int32) error {
	look, err := newLookout(b.addr)
	if err != nil {
		return err
	}
	defer look.close()
	for {
		is, err := look.leader(ctx, topic, partition)
		if err == nil && is == leader {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it says broker %d", is)
		}
		if ended := sleep(ctx, askEvery); ended != nil {
			return fmt.Errorf("wait until broker %d sees broker %d lead %s/%d: %w; last: %w", b.id, leader, topic, partition, ended, err)
		}
	}
}
