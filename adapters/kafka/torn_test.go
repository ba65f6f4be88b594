package kafka

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/participant"
)

func TestTornCommitIsNotResolvedAndItsSlotNotReused(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	handles := []participant.Handle{
		r.prepared(s, branchName(1, 1), 10), r.prepared(s, branchName(1, 2), 10), r.prepared(s, branchName(1, 3), 10),
	}
	torn, err := decode(handles[0])
	if err != nil {
		t.Fatal(err)
	}
	// The coordinator commits; one partition goes on showing the transaction open.
	var repaired atomic.Bool
	r.b.Cluster().ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.b.Cluster().KeepControl()
		if repaired.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		for _, asked := range req.(*kmsg.DescribeProducersRequest).Topics {
			topic := kmsg.NewDescribeProducersResponseTopic()
			topic.Topic = asked.Topic
			for _, n := range asked.Partitions {
				p := kmsg.NewDescribeProducersResponseTopicPartition()
				p.Partition = n
				a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				a.ProducerID, a.ProducerEpoch, a.CurrentTxnStartOffset = torn.PID, int32(torn.Epoch), 0
				p.ActiveProducers = append(p.ActiveProducers, a)
				topic.Partitions = append(topic.Partitions, p)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	for _, h := range handles[1:] {
		r.commit(s, h, participant.Committed)
	}
	var after *participant.RetryAfter
	if p, err := s.Commit(t.Context(), handles[0]); !errors.As(err, &after) || !strings.Contains(err.Error(), "torn") {
		t.Fatalf("commit of a torn transaction: %v, %v; want an error that says so", p, err)
	}
	if st, err := s.Inspect(t.Context(), handles[0]); err != nil || st != participant.Undecided {
		t.Errorf("inspect: %d, %v", st, err)
	}
	tenure := s.current()
	for n := uint64(4); n <= 5; n++ {
		r.prepared(s, branchName(1, n), 1) // two of three slots are free
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Begin(ctx, branchName(1, 6)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("begin while a slot is torn: %v, want to wait", err)
	}
	repaired.Store(true)
	r.commit(s, handles[0], participant.Committed)
	slot, err := tenure.take(t.Context())
	if err != nil || slot.id != torn.TxnID {
		t.Errorf("the slot after the repair: %v, %v", slot, err)
	}
}

func TestCommitWaitsForAPartitionWithoutLeader(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	h := r.prepared(s, branchName(1, 1), 10)
	ended, back := r.leaderless()
	var after *participant.RetryAfter
	if _, err := s.Commit(t.Context(), h); !errors.As(err, &after) || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("commit: %v, want to be asked later", err)
	}
	if ended.Load() {
		t.Error("EndTxn was sent although a partition had no leader for its marker")
	}
	back.Store(true)
	r.commit(s, h, participant.Committed)
	r.sees(10)
}

func TestT1_CommitIsSentWithoutALeaderBeforeTheTimeoutAbortsIt(t *testing.T) {
	r := newRig(t)
	s := r.opened(1, func(c *SinkConfig) { c.TransactionTimeout = 2 * time.Second })
	h := r.prepared(s, branchName(1, 1), 10)
	ended, back := r.leaderless()
	waited := 0
	for !ended.Load() {
		var after *participant.RetryAfter
		_, err := s.Commit(t.Context(), h)
		if ended.Load() {
			break
		}
		if !errors.As(err, &after) {
			t.Fatalf("commit: %v, want to be asked later", err)
		}
		waited++
		pause := pause{next: 20 * time.Millisecond, most: 20 * time.Millisecond}
		if err := pause.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if waited == 0 {
		t.Error("the commit did not wait for the leader at all")
	}
	back.Store(true)
	r.commit(s, h, participant.Committed)
	r.sees(10)
}

// leaderless makes every partition of the rig's topic look as if it had no leader until back is set, and
// says whether EndTxn was sent.
func (r *rig) leaderless() (ended, back *atomic.Bool) {
	t := r
	t.Helper()
	ended, back = new(atomic.Bool), new(atomic.Bool)
	host, port, err := net.SplitHostPort(r.b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	r.b.Cluster().ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		ended.Store(true)
		return nil, nil, false
	})
	r.b.Cluster().ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.b.Cluster().KeepControl()
		if back.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.Host, broker.Port = host, int32(number)
		resp.Brokers = append(resp.Brokers, broker)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr("totals")
		for n := range int32(3) {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader = n, -1
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	return ended, back
}
