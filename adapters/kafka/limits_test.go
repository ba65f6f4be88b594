package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

func TestDeadlineIsTheLeastOfTimeoutAndRetention(t *testing.T) {
	r := newRig(t)
	if err := r.a.CreateTopic(t.Context(), "brief", 1, map[string]string{"retention.ms": "60000"}); err != nil {
		t.Fatal(err)
	}
	vote := func(topic string, at time.Time) participant.Vote {
		t.Helper()
		s := r.sink(func(c *SinkConfig) { c.Topic = topic })
		o := opening(1)
		o.Member = fmt.Sprint("m", at.UnixNano())
		if err := s.Open(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		name := branchName(1, 1)
		name.Member = o.Member
		b, err := s.Begin(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.(*Branch).Write(t.Context(), []stream.Record{{Value: []byte("v"), Time: at.UnixMilli()}}); err != nil {
			t.Fatal(err)
		}
		v, err := b.Prepare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if left := time.Until(vote("totals", time.Now()).Deadline); left < 14*time.Minute || left > 15*time.Minute {
		t.Errorf("deadline in %s, want the time-out of 15m", left)
	}
	if left := time.Until(vote("brief", time.Now().Add(-20*time.Second)).Deadline); left < 30*time.Second || left > 41*time.Second {
		t.Errorf("deadline in %s, want what the retention of a minute leaves", left)
	}
	if v := vote("brief", time.Now().Add(-time.Hour)); v.Kind != participant.No || !errors.Is(v.Reason, participant.ErrMisconfigured) {
		t.Errorf("records past their retention: %v, want no, misconfigured", v)
	}
}

func TestUnboundedTransactionsHaveNoDeadline(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"totals": 1}, BrokerConfigs: map[string]string{"transaction.max.timeout.ms": "2147483647", "log.retention.ms": "-1"}})
	r := rigOn(t, b)
	if err := r.a.CreateTopic(t.Context(), "kept", 1, map[string]string{"retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	s := r.opened(1, func(c *SinkConfig) { c.Topic = "kept" })
	d, err := s.Describe(t.Context())
	if err != nil || d.Bounded {
		t.Errorf("describe: %+v, %v; want not bounded", d, err)
	}
	v, err := r.begin(s, branchName(1, 1), 1).Prepare(t.Context())
	if err != nil || v.Kind != participant.Yes || !v.Deadline.IsZero() {
		t.Errorf("vote %+v, %v; want yes without a deadline", v, err)
	}
}

func TestE3_TopicDeletedMeanwhileIsNo(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	if err := r.a.DeleteTopic(t.Context(), "totals"); err != nil {
		t.Fatal(err)
	}
	b := r.begin(s, branchName(1, 1), 3)
	v, err := b.Prepare(t.Context())
	if err != nil || v.Kind != participant.No || !errors.Is(v.Reason, kerr.UnknownTopicOrPartition) {
		t.Errorf("prepare: %v, %v; want no, unknown topic", v, err)
	}
}

func TestByHandBranchTakesASlotOfTheOpening(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	name := participant.BranchName{Namespace: opening(1).Namespace, Txn: "0199a1b2", Resource: "totals"}
	h := r.prepared(s, name, 5)
	if !strings.HasPrefix(h.Name, "test.0199a1b2.totals|test.orders.0.all.totals.1.") || h.Version != handleByHand {
		t.Errorf("the handle is %s, version %d", h.Name, h.Version)
	}
	r.commit(r.sink(), h, participant.Committed)
	r.sees(5)
	// One of before is finished too, by any process; and the slots that they held are taken again.
	for i := range 2 * len(s.current().slots) {
		name.Txn = fmt.Sprintf("0199a1b%d", 3+i)
		old := r.prepared(s, name, 1)
		old.Version = handleVersion
		_, old.Name, _ = strings.Cut(old.Name, "|")
		r.commit([]*Sink{s, r.sink()}[i%2], old, participant.Committed)
	}
	r.sees(5 + 2*len(s.current().slots))
}

func TestBufferWaitsForRoomAndCanBeCancelled(t *testing.T) {
	r := newRig(t)
	s := r.opened(1, func(c *SinkConfig) { c.MaxBufferedBytes = 1000 })
	b := r.begin(s, branchName(1, 1), 1)
	hold := make(chan struct{})
	r.b.Cluster().ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		r.b.Cluster().SleepControl(func() { <-hold })
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var err error
	for range 10 {
		if err = b.Write(ctx, numbered(10)); err != nil {
			break
		}
	}
	close(hold)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("write into a full buffer: %v, want to wait until cancelled", err)
	}
	if v, err := b.Prepare(t.Context()); err != nil || v.Kind != participant.No {
		t.Errorf("prepare after an interrupted write: %v, %v; want no", v, err)
	}
	h := r.prepared(s, branchName(1, 2), 100) // in many small steps
	r.commit(s, h, participant.Committed)
	r.sees(100)
}

// The witness is written beside the records. When none of them is accepted, it alone is in the transaction, which
// the client has not begun by itself; left open it would go on with the next branch, by a clock that started long before.
func TestE3_WitnessOfABranchWithoutRecordsIsRolledBack(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	b := r.begin(s, branchName(1, 1), 0)
	if err := b.Write(t.Context(), []stream.Record{{Value: make([]byte, 3<<20)}}); err != nil { // not even sent
		t.Fatal(err)
	}
	v, err := b.Prepare(t.Context())
	if err != nil || v.Kind != participant.No {
		t.Fatalf("prepare: %+v, %v; want no", v, err)
	}
	listed, err := s.List(t.Context(), opening(1).Namespace)
	if err != nil || len(listed) != 0 {
		t.Errorf("left open: %+v, %v; want nothing", listed, err)
	}
	h := r.prepared(s, branchName(1, 2), 1) // and the slot is good again
	r.commit(s, h, participant.Committed)
	r.sees(1)
}
