package kafka

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// withRights are the settings of brokers that look at rights: everybody may do everything, but for
// what is denied.
func withRights(more map[string]string) map[string]string {
	all := map[string]string{
		"authorizer.class.name":                                      "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found":                             "true",
		"log.retention.check.interval.ms":                            "500",
		"log.initial.task.delay.ms":                                  "500",
		"offsets.retention.minutes":                                  "10080",
		"transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
	}
	for k, v := range more {
		all[k] = v
	}
	return all
}

// stranger is who comes from another address than everybody else, so that rights can be denied to
// it alone.
const stranger = "127.0.0.2"

// asStranger dials from the stranger's address.
func asStranger(c *SinkConfig) {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(stranger)}}
	c.Options = append(c.Options, kgo.Dialer(d.DialContext))
}

// deny takes a right from the stranger; everybody keeps all others. What is about names what.
func (r *rig) deny(about func(*kadm.ACLBuilder) *kadm.ACLBuilder, rights ...kadm.ACLOperation) {
	r.Helper()
	for _, acls := range []*kadm.ACLBuilder{
		about(kadm.NewACLs()).Operations(kadm.OpAll).Allow("User:ANONYMOUS").AllowHosts("*"),
		about(kadm.NewACLs()).Operations(rights...).Deny("User:ANONYMOUS").DenyHosts(stranger),
	} {
		got, err := r.a.adm.CreateACLs(r.Context(), acls.ResourcePatternType(kadm.ACLPatternLiteral))
		if err != nil {
			r.Fatal(err)
		}
		for _, one := range got {
			if one.Err != nil {
				r.Fatal(one.Err)
			}
		}
	}
	r.eventually("the broker knows it", func() bool {
		known, err := r.a.adm.DescribeACLs(r.Context(), about(kadm.NewACLs()).Operations(rights...).Deny("User:ANONYMOUS").DenyHosts(stranger).ResourcePatternType(kadm.ACLPatternLiteral))
		return err == nil && len(known) == len(rights) && !slices.ContainsFunc(known, func(k kadm.DescribeACLsResult) bool { return len(k.Described) == 0 })
	})
}

func TestRealBroker_TornCommit(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real brokers; left out by -short")
	}
	t.Parallel()
	c := servicestest.OwnKafka(t, services.KafkaConfig{Brokers: 2, Config: withRights(nil)})
	r := realRig(t, c.Addrs()[:1], nil)
	// Partition 0 on the broker that stays, 1 on the one that goes.
	r.topic = "torn"
	if err := c.CreateTopic(t.Context(), r.topic, [][]int32{{1}, {2}}, nil); err != nil {
		t.Fatal(err)
	}
	s := r.opened(1, func(c *SinkConfig) { c.Partitioning = FromRecord })
	both := func(n uint64) participant.Handle {
		t.Helper()
		b, err := s.Begin(t.Context(), r.name(1, n))
		if err != nil {
			t.Fatal(err)
		}
		records := append(numbered(10), numbered(10)...)
		for i := range records {
			records[i].Partition = int32(i % 2)
		}
		if err := b.(*Branch).Write(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		v, err := b.Prepare(t.Context())
		if err != nil || v.Kind != participant.Yes {
			t.Fatalf("prepare: %+v, %v", v, err)
		}
		return v.Handle
	}
	r.deny(func(b *kadm.ACLBuilder) *kadm.ACLBuilder { return b.Clusters() }, kadm.OpAlter, kadm.OpClusterAction)

	// The coordinator dies and comes back; from then on partitions hear of a coordinator with another epoch.
	first := both(1)
	if err := errors.Join(c.Broker(1).Kill(), c.Broker(1).Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Run("what is prepared survives a broker that is killed", func(t *testing.T) {
		r := r.in(t)
		if p := r.finish(s.Commit, first); p.Verdict != participant.Committed {
			t.Errorf("proof %+v; want committed", p)
		}
		if got := r.perPartition(); got[0] != 10 || got[1] != 10 {
			t.Errorf("readers see %v by partition, want 10 of each", got)
		}
	})
	h, second := both(2), both(3)
	torn, err := decode(h)
	if err != nil {
		t.Fatal(err)
	}

	// While the broker is dead no commit is sent, whether the cluster has noticed or not. It is sent
	// by one that looked just before.
	if err := c.Broker(2).Kill(); err != nil {
		t.Fatal(err)
	}
	s.noRepair = true
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if p, err := s.Commit(ctx, h); err == nil {
		t.Fatalf("a commit was proven while one of its partitions could not be asked: %+v", p)
	}
	late, err := s.finishing(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := late.described(t.Context()); err != nil || d.state != stateOngoing {
		t.Errorf("a commit was sent while one of its partitions could not be asked: %+v, %v", d, err)
	}
	late2, err := s.finishing(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*finish{late, late2} {
		if err := f.endTxn(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("the coordinator has ended the transactions without the broker", func() bool {
		one, err1 := late.described(t.Context())
		two, err2 := late2.described(t.Context())
		return errors.Join(err1, err2) == nil && one.state == stateCommitted && two.state == stateCommitted
	})
	if err := c.Broker(2).Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitLeader(t.Context(), r.topic, 1, 2); err != nil {
		t.Fatal(err)
	}

	t.Run("O9/without the repair readers see nothing of the partition and the slot is not reused", func(t *testing.T) {
		r := r.in(t)
		var after *participant.RetryAfter
		r.eventually("the commit is found torn", func() bool {
			_, err := s.Commit(t.Context(), h)
			return errors.As(err, &after) && strings.Contains(err.Error(), "torn/1 still shows it open")
		})
		if st, err := s.Inspect(t.Context(), h); err != nil || st != participant.Undecided {
			t.Errorf("inspect: %d, %v; want undecided", st, err)
		}
		if got := r.perPartition(); got[0] != 30 || got[1] != 10 {
			t.Errorf("readers see %v by partition, want 30 and the 10 of the first", got)
		}
		both(4) // one of the three slots is free
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Begin(ctx, r.name(1, 5)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("begin while a slot is torn: %v, want to wait", err)
		}
	})
	t.Run("O9/without the right to write markers a person is asked", func(t *testing.T) {
		r := r.in(t)
		poor := r.sink(asStranger)
		r.eventually("the repair is refused", func() bool {
			_, err = poor.Commit(t.Context(), h)
			return err != nil && strings.Contains(err.Error(), "ALTER on the cluster")
		})
		if !errors.Is(err, participant.ErrMisconfigured) {
			t.Errorf("commit without the right: %v; want the class for which a person must act", err)
		}
		for _, want := range []string{"torn/1", torn.TxnID, "kafka-transactions.sh abort would lose"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the sentence does not name %q: %v", want, err)
			}
		}
	})
	t.Run("O9/with the repair everything is read once", func(t *testing.T) {
		r := r.in(t)
		open, err := late.openOn(t.Context())
		if err != nil || len(open) != 1 || open[0].coordinator <= 0 {
			t.Fatalf("open on %+v, %v; want one partition, that has heard of a later coordinator than the first", open, err)
		}
		open[0].coordinator = 0
		if err := late.writeMarkers(t.Context(), participant.Committed, open, markerVersion); !errors.Is(err, kerr.TransactionCoordinatorFenced) {
			t.Errorf("marker of the first coordinator: %v; want it refused, or there is no need to ask for the epoch", err)
		}
		s.noRepair = false
		p := r.finish(s.Commit, h)
		if p.Verdict != participant.Committed || !strings.Contains(p.Evidence, "were written") {
			t.Errorf("proof %+v; want committed, after a repair", p)
		}
		// A resolver dies in the middle of the second repair, before the marker and behind it.
		r.killedWhileCommitting(second, "kafka/before-repair")
		if got := r.perPartition(); got[1] != 20 {
			t.Errorf("readers see %v by partition, want 20 of the torn one", got)
		}
		r.killedWhileCommitting(second, "kafka/after-repair")
		if p := r.finish(s.Commit, second); p.Verdict != participant.Committed {
			t.Errorf("proof %+v; want committed", p)
		}
		if got := r.perPartition(); got[0] != 30 || got[1] != 30 {
			t.Errorf("readers see %v by partition, want 30 of each", got)
		}
		next := both(6)
		if b, err := decode(next); err != nil || b.TxnID != torn.TxnID || b.Epoch != torn.Epoch+1 {
			t.Errorf("the slot after the repair carries %s, %v", next.Name, err)
		}
		// What the repaired slot carries now is decided by its own decision.
		r.sameFromAnywhere(h, participant.Committed)
		if got := r.perPartition(); got[0] != 30 || got[1] != 30 {
			t.Errorf("readers see %v by partition before the next decision", got)
		}
		r.rollback(s, next, participant.RolledBack)
		if got := r.perPartition(); got[0] != 30 || got[1] != 30 {
			t.Errorf("readers see %v by partition after the next was rolled back", got)
		}
	})
}

// in is the same rig, for a subtest.
func (r *rig) in(t *testing.T) *rig {
	sub := *r
	sub.TB = t
	return &sub
}

// perPartition counts what readers of committed records see, without waiting behind what blocks
// them.
func (r *rig) perPartition() map[int32]int {
	r.Helper()
	got := make(map[int32]int)
	err := r.a.ReadAll(r.Context(), r.topic, true, nil, nil, func(rec *stream.Record) error {
		got[rec.Partition]++
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return got
}
