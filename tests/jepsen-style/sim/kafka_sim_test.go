package sim_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor/stream"
)

// broker is the embedded Kafka of a run, on a network within the bubble.
type broker struct {
	w       *world
	net     kfake.VirtualNetwork
	kafka   *devkafka.Broker
	closing sync.WaitGroup // sinks of processes that were killed
}

func (w *world) broker() *broker {
	if w.kafka == nil {
		b := &broker{w: w}
		k, err := devkafka.Start(devkafka.Config{Options: []kfake.Opt{kfake.ListenFn(b.net.Listen), kfake.Ports(9092), kfake.AllowAutoTopicCreation()}})
		if err != nil {
			w.t.Fatal(err) // a mistake of the harness
		}
		b.kafka = k
		w.kafka = b
	}
	return w.kafka
}

func (b *broker) close() {
	b.closing.Wait()
	b.kafka.Close()
}

// kafkaTarget is a topic of the broker.
type kafkaTarget struct {
	b     *broker
	topic string
	seat  *seat
	alias string
}

func (w *world) kafkaTarget(topic string, s *seat, alias string) *kafkaTarget {
	b := w.broker()
	if err := b.kafka.Cluster().CreateTopic(topic, 1, nil); err != nil {
		w.t.Fatal(err) // a mistake of the harness
	}
	return &kafkaTarget{b: b, topic: topic, seat: s, alias: alias}
}

func (k *kafkaTarget) kind() string { return kafka.Kind }

// line is a process's way to the broker.
type line struct {
	b *broker

	mu    sync.Mutex // guards the rest
	dead  bool
	conns []net.Conn
}

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := l.b.net.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = c.Close() // nobody is there any more
		return nil, net.ErrClosed
	}
	l.conns = append(l.conns, c)
	return c, nil
}

func (l *line) cut() {
	l.mu.Lock()
	l.dead = true
	conns := l.conns
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // it may be closed
	}
}

func (k *kafkaTarget) sink(dial func(context.Context, string, string) (net.Conn, error)) (*kafka.Sink, error) {
	return kafka.NewSink(kafka.SinkConfig{Brokers: []string{k.b.kafka.Addr()}, Topic: k.topic, Options: []kgo.Opt{kgo.Dialer(dial)}})
}

func (k *kafkaTarget) process(hook participanttest.Hook) (participant.Resource, func(), error) {
	l := &line{b: k.b}
	s, err := k.sink(l.dial)
	if err != nil {
		return nil, nil, err
	}
	dead := new(atomic.Bool)
	return &hooked{Resource: s, hook: hook, dead: dead}, func() {
		dead.Store(true)
		l.cut()
		k.b.closing.Go(func() { _ = s.Close() }) // its connections are gone
	}, nil
}

func (k *kafkaTarget) write(ctx context.Context, b participant.Branch, record string) error {
	return inner(b).(*kafka.Branch).Write(ctx, []stream.Record{{Value: []byte(record)}})
}

// read is what a reader of committed records finds.
func (k *kafkaTarget) read(ctx context.Context) error {
	s, err := k.sink(k.b.net.DialContext)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := k.b.w.listed(ctx, k.topic, s); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.b.kafka.Addr()), kgo.Dialer(k.b.net.DialContext), kgo.ConsumeTopics(k.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	by := map[participant.BranchName][]string{}
	for {
		limit, cancel := context.WithTimeout(ctx, 3*time.Second) // nothing more comes: everything has stopped
		fetched := cl.PollFetches(limit)
		over := limit.Err() != nil
		cancel()
		fetched.EachRecord(func(r *kgo.Record) {
			at := stream.Record{}
			for _, h := range r.Headers {
				at.Headers = append(at.Headers, stream.Header{Key: h.Key, Value: h.Value})
			}
			name := participant.BranchName{Pipeline: k.seat.pipeline, Member: k.seat.name, Resource: k.alias}
			name.Generation, name.N, _ = kafka.EpochOf(&at)
			by[name] = append(by[name], string(r.Value))
		})
		if over {
			break
		}
	}
	for name, records := range by {
		k.b.w.committed(k.topic, name, fmt.Sprintf("%s %d.%d", k.topic, name.Generation, name.N), records)
	}
	return nil
}
