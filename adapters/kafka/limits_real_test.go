package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// TestRealBroker_Limits runs on a broker with Kafka's own limit on time-outs, that looks for old
// records and at rights.
func TestRealBroker_Limits(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real broker; left out by -short")
	}
	t.Parallel()
	c := servicestest.OwnKafka(t, services.KafkaConfig{Config: withRights(map[string]string{"transaction.max.timeout.ms": "900000"})})
	check := func(name string, config map[string]string, f func(t *testing.T, r *rig)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, realRig(t, c.Addrs(), config))
		})
	}
	check("T1/what the broker ended before its decision came is heuristic, not silent", nil, func(t *testing.T, r *rig) {
		s := r.opened(1, func(c *SinkConfig) { c.TransactionTimeout = 1500 * time.Millisecond })
		v, err := r.begin(s, r.name(1, 1), 10).Prepare(t.Context())
		if err != nil || v.Kind != participant.Yes || v.Deadline.IsZero() || time.Until(v.Deadline) > 1500*time.Millisecond {
			t.Fatalf("vote %+v, %v; want yes with a deadline before the time-out", v, err)
		}
		if err := s.Close(); err != nil { // the process is down, longer than the time-out
			t.Fatal(err)
		}
		r.eventually("the broker has ended the transaction", func() bool { return len(r.inDoubt()) == 0 })
		for range 2 {
			p, err := r.sink().Commit(t.Context(), v.Handle)
			if err != nil || p.Verdict != participant.RolledBack || !strings.Contains(p.Evidence, "CompleteAbort") {
				t.Errorf("commit after the time-out: %+v, %v; want the proof that it was rolled back", p, err)
			}
		}
		r.sees(0)
	})
	check("T2/a time-out above the brokers' names both settings", nil, func(t *testing.T, r *rig) {
		for _, tooLong := range []time.Duration{15*time.Minute + time.Millisecond, time.Hour, Unbounded} {
			s := r.sink(func(c *SinkConfig) { c.TransactionTimeout = tooLong })
			err := s.Open(t.Context(), r.opening(1))
			if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "transaction timeout is "+tooLong.String()) || !strings.Contains(err.Error(), "15m0s (transaction.max.timeout.ms)") {
				t.Errorf("open with %s: %v", tooLong, err)
			}
		}
		s := r.opened(1) // the most that they allow
		d, err := s.Describe(t.Context())
		if err != nil || !d.Bounded {
			t.Errorf("describe: %+v, %v; want bounded", d, err)
		}
	})
	check("T4/retention deletes what is undecided: its commit is heuristic, and stays so", map[string]string{"retention.ms": "2000", "segment.ms": "1000"}, func(t *testing.T, r *rig) {
		s := r.opened(1)
		v, err := r.begin(s, r.name(1, 1), 10).Prepare(t.Context())
		if err != nil || v.Kind != participant.Yes || time.Until(v.Deadline) > 2*time.Second {
			t.Fatalf("vote %+v, %v; want yes with a deadline before the retention ends", v, err)
		}
		kept := r.prepared(s, r.name(1, 2), 1)
		r.eventually("retention has deleted the records", func() bool {
			f, err := s.finishing(t.Context(), v.Handle)
			if err != nil {
				t.Fatal(err)
			}
			cut, err := f.deletedFrom(t.Context())
			return err == nil && cut != ""
		})
		// Resolvers die on the way; none of it is forgotten.
		for _, point := range []string{"kafka/before-loss-note", "kafka/after-loss-note", "kafka/after-endtxn"} {
			r.killedWhileCommitting(v.Handle, point)
		}
		for range 2 {
			p, err := r.sink().Commit(t.Context(), v.Handle)
			if err != nil || p.Verdict != participant.RolledBack || !strings.Contains(p.Evidence, "deleted before they were decided") {
				t.Errorf("commit after retention: %+v, %v; want the proof that it is lost", p, err)
			}
		}
		r.rollback(s, kept, participant.RolledBack)
		r.nothingOpen()
	})
	check("T4/records that were deleted after their commit are no loss", nil, func(t *testing.T, r *rig) {
		s := r.opened(1)
		h := r.prepared(s, r.name(1, 1), 10)
		r.commit(s, h, participant.Committed)
		if _, err := r.a.adm.DeleteRecords(t.Context(), r.ends()); err != nil {
			t.Fatal(err)
		}
		r.commit(s, h, participant.Committed)
	})
	check("T5/a topic deleted meanwhile is heuristic, and so is one that was made again", nil, func(t *testing.T, r *rig) {
		s := r.opened(1)
		one, two := r.prepared(s, r.name(1, 1), 10), r.prepared(s, r.name(1, 2), 10)
		if err := r.a.DeleteTopic(t.Context(), r.topic); err != nil {
			t.Fatal(err)
		}
		r.eventually("the topic is gone", func() bool {
			_, found, err := r.a.TopicExists(t.Context(), r.topic)
			return err == nil && !found
		})
		for range 2 {
			p, err := r.sink().Commit(t.Context(), one)
			if err != nil || p.Verdict != participant.RolledBack || !strings.Contains(p.Evidence, "topic "+r.topic+" was deleted, and 10 records") {
				t.Errorf("commit to a deleted topic: %+v, %v; want the proof that it is lost", p, err)
			}
		}
		r.eventually("the topic can be made again", func() bool { return r.a.CreateTopic(t.Context(), r.topic, 3, nil) == nil })
		for range 2 {
			p, err := r.sink().Commit(t.Context(), two)
			if err != nil || p.Verdict != participant.RolledBack || !strings.Contains(p.Evidence, "deleted and made again") {
				t.Errorf("commit to another topic of that name: %+v, %v; want the proof that it is lost", p, err)
			}
		}
		r.sees(0)
		r.nothingOpen()
	})
	for name, spoil := range map[string]func(t *testing.T, r *rig, good []stream.Record) (*Sink, []stream.Record, error){
		"E3/a record that is too large": func(t *testing.T, r *rig, good []stream.Record) (*Sink, []stream.Record, error) {
			return r.opened(1), append(good, stream.Record{Value: make([]byte, 2<<20)}), kerr.MessageTooLarge
		},
		"E3/a record that is too large for its topic": func(t *testing.T, r *rig, good []stream.Record) (*Sink, []stream.Record, error) {
			v := "100000"
			if _, err := r.a.adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &v}}, r.topic); err != nil {
				t.Fatal(err)
			}
			return r.opened(1, func(c *SinkConfig) { c.Compression = CompressionNone }), append(good, stream.Record{Value: make([]byte, 200_000)}), kerr.MessageTooLarge
		},
		"E3/a topic that is not there": func(t *testing.T, r *rig, good []stream.Record) (*Sink, []stream.Record, error) {
			s := r.sink(func(c *SinkConfig) { c.Topic = "" })
			if err := s.Open(t.Context(), r.opening(1)); err != nil {
				t.Fatal(err)
			}
			for i := range good {
				good[i].Topic = r.topic
			}
			return s, append(good, stream.Record{Value: []byte("v"), Topic: r.topic + "-gone"}), kerr.UnknownTopicOrPartition
		},
		"E3/a topic that may not be written": func(t *testing.T, r *rig, good []stream.Record) (*Sink, []stream.Record, error) {
			closed := r.topic + "-closed"
			if err := r.a.CreateTopic(t.Context(), closed, 1, nil); err != nil {
				t.Fatal(err)
			}
			r.deny(func(b *kadm.ACLBuilder) *kadm.ACLBuilder { return b.Topics(closed) }, kadm.OpWrite)
			s := r.sink(asStranger, func(c *SinkConfig) { c.Topic = "" })
			if err := s.Open(t.Context(), r.opening(1)); err != nil {
				t.Fatal(err)
			}
			for i := range good {
				good[i].Topic = r.topic
			}
			return s, append(good, stream.Record{Value: []byte("v"), Topic: closed}), kerr.TopicAuthorizationFailed
		},
	} {
		check(name+", after 1,000 good ones, is no, and nothing is seen", nil, func(t *testing.T, r *rig) {
			good := numbered(1000)
			for i := range good {
				good[i].Offset = int64(i)
			}
			s, records, want := spoil(t, r, good)
			bad := &records[len(records)-1]
			where := fmt.Sprintf("read from %s at 4711,", splitID("in", 3))
			if bad.Topic == "" {
				bad.Topic, bad.Partition, bad.Offset = "in", 3, 4711
			} else {
				where = fmt.Sprintf("read from %s at 4711,", splitID(bad.Topic, 3))
				bad.Partition, bad.Offset = 3, 4711
			}
			b, err := s.Begin(t.Context(), r.name(1, 1))
			if err != nil {
				t.Fatal(err)
			}
			for chunk := range slices.Chunk(records, 100) {
				if err := b.(*Branch).Write(t.Context(), chunk); err != nil {
					t.Log(err)
					break
				}
				if len(chunk) == 100 { // the good ones are acknowledged, so that none is refused with the bad one
					if err := b.(*Branch).slot.client.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			v, err := b.Prepare(t.Context())
			if err != nil || v.Kind != participant.No || !errors.Is(v.Reason, want) || !strings.Contains(v.Reason.Error(), where) {
				t.Errorf("prepare: %+v, %v; want no, with %v and where the record was read", v, err, want)
			}
			t.Logf("the reason: %v", v.Reason)
			r.sees(0)
			r.nothingOpen()
		})
	}
	check("E3/a topic deleted after its records were written is no", nil, func(t *testing.T, r *rig) {
		s := r.opened(1)
		b := r.begin(s, r.name(1, 1), 1000)
		if err := b.slot.client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.a.DeleteTopic(t.Context(), r.topic); err != nil {
			t.Fatal(err)
		}
		r.eventually("the topic is gone", func() bool {
			_, found, err := r.a.TopicExists(t.Context(), r.topic)
			return err == nil && !found
		})
		v, err := b.Prepare(t.Context())
		if err != nil || v.Kind != participant.No || !strings.Contains(v.Reason.Error(), r.topic) {
			t.Errorf("prepare: %+v, %v; want no, naming the topic", v, err)
		}
		r.nothingOpen()
	})
}
