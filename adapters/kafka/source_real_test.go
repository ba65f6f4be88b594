package kafka

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor/stream"
)

func TestRealBroker_Source(t *testing.T) {
	open := func(t *testing.T, r *rig, cfg SourceConfig, from []stream.Position) *Source {
		t.Helper()
		cfg.Name, cfg.Brokers, cfg.Topics = "in", r.addrs, []string{r.topic}
		s := source(t, cfg)
		if err := s.Open(t.Context(), from); err != nil {
			t.Fatal(err)
		}
		return s
	}
	positions := func(at map[string]stream.Position) (out []stream.Position) {
		for _, p := range at {
			out = append(out, p)
		}
		return out
	}
	onRealBroker(t, "Z5/open drops what was fetched and starts at the positions", func(t *testing.T, r *rig) {
		if err := r.a.Produce(t.Context(), r.topic, numbered(300)); err != nil {
			t.Fatal(err)
		}
		s := open(t, r, SourceConfig{MaxPollRecords: 10, Bounded: true}, nil)
		seen := map[string]int{}
		values, at := drain(t, s, 100)
		for _, v := range values {
			seen[v]++
		}
		drain(t, s, 50) // read further, with more in the buffers
		if err := s.Open(t.Context(), positions(at)); err != nil {
			t.Fatal(err)
		}
		rest, _ := drain(t, s, -1)
		for _, v := range rest {
			seen[v]++
		}
		for v, n := range seen {
			if n != 1 {
				t.Errorf("%s was handed out %d times", v, n)
			}
		}
		if len(seen) != 300 {
			t.Errorf("%d of 300 records were handed out", len(seen))
		}
	})
	onRealBroker(t, "new partitions are read from their beginning, and get positions", func(t *testing.T, r *rig) {
		s := open(t, r, SourceConfig{Start: StartLatest, PollWait: 50 * time.Millisecond, NewPartitions: 100 * time.Millisecond}, nil)
		_, at := r.poll(s, 0, 3)
		if len(s.Splits()) != 3 {
			t.Fatalf("splits %v", s.Splits())
		}
		if _, err := r.a.adm.UpdatePartitions(t.Context(), 5, r.topic); err != nil {
			t.Fatal(err)
		}
		r.eventually("the new partition can be written", func() bool {
			b := r.sink(func(c *SinkConfig) { c.Partitioning = FromRecord })
			if err := b.Open(t.Context(), r.opening(1)); err != nil {
				return false
			}
			br, err := b.Begin(t.Context(), r.name(1, 1))
			if err != nil {
				return false
			}
			if err := br.(*Branch).Write(t.Context(), []stream.Record{{Value: []byte("new"), Partition: 4}}); err != nil {
				return false
			}
			v, err := br.Prepare(t.Context())
			if err != nil || v.Kind != participant.Yes {
				return false
			}
			r.commit(b, v.Handle, participant.Committed)
			return true
		})
		values, more := r.poll(s, 1, 2)
		if len(values) != 1 || values[0] != "new" || len(s.Splits()) != 5 || len(more) != 2 {
			t.Errorf("read %v, positions %v, splits %v", values, more, s.Splits())
		}
		// A restart that knows three partitions reads the others from their beginning, not from now.
		again := open(t, r, SourceConfig{Start: StartLatest, PollWait: 50 * time.Millisecond}, positions(at))
		if values, _ := r.poll(again, 1, 0); values[0] != "new" {
			t.Errorf("after the restart it read %v", values)
		}
	})
	onRealBroker(t, "a topic made again while it is read is an error", func(t *testing.T, r *rig) {
		s := open(t, r, SourceConfig{PollWait: 20 * time.Millisecond, NewPartitions: 50 * time.Millisecond}, nil)
		if err := r.a.DeleteTopic(t.Context(), r.topic); err != nil {
			t.Fatal(err)
		}
		r.eventually("the topic can be made again", func() bool { return r.a.CreateTopic(t.Context(), r.topic, 3, nil) == nil })
		var err error
		r.eventually("the source says so", func() bool {
			_, err = s.Poll(t.Context())
			return errors.Is(err, participant.ErrMisconfigured)
		})
		t.Log(err)
	})
	onRealBroker(t, "positions that the log no longer has are refused", func(t *testing.T, r *rig) {
		if err := r.a.Produce(t.Context(), r.topic, numbered(300)); err != nil {
			t.Fatal(err)
		}
		_, at := drain(t, open(t, r, SourceConfig{Bounded: true}, nil), -1)
		var cut kadm.Offsets
		cut.Add(kadm.Offset{Topic: r.topic, Partition: 0, At: 20, LeaderEpoch: -1})
		if _, err := r.a.adm.DeleteRecords(t.Context(), cut); err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*stream.Position){
			"deleted unread": func(p *stream.Position) { p.Offset = 10 },
			"past the end":   func(p *stream.Position) { p.Offset += 1000 },
		} {
			from := at[splitID(r.topic, 0)]
			if from.LeaderEpoch < 0 {
				t.Errorf("position %+v has no leader epoch", from)
			}
			change(&from)
			s := source(t, SourceConfig{Name: "in", Brokers: r.addrs, Topics: []string{r.topic}})
			if err := s.Open(t.Context(), []stream.Position{from}); !errors.Is(err, participant.ErrMisconfigured) {
				t.Errorf("%s: %v, want misconfigured", name, err)
			}
		}
	})
	onRealBroker(t, "offsets for lag tools are written, and never read back", func(t *testing.T, r *rig) {
		if err := r.a.Produce(t.Context(), r.topic, numbered(90)); err != nil {
			t.Fatal(err)
		}
		group := r.ns + "-lag"
		s := open(t, r, SourceConfig{Bounded: true, Group: group}, nil)
		drain(t, s, -1)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		lags, err := r.a.adm.Lag(t.Context(), group)
		if err != nil || lags[group].Lag.Total() != 0 || len(lags[group].Lag[r.topic]) != 3 {
			t.Errorf("lag %+v, %v; want none of three partitions", lags[group].Lag, err)
		}
		if values, _ := drain(t, open(t, r, SourceConfig{Bounded: true, Group: group}, nil), -1); len(values) != 90 {
			t.Errorf("a new source with the group reads %d records, want all 90", len(values))
		}
	})
	onRealBroker(t, "records carry their epoch", func(t *testing.T, r *rig) {
		s := r.opened(7)
		r.commit(s, r.prepared(s, r.name(7, 12), 5), participant.Committed)
		err := r.a.ReadAll(t.Context(), r.topic, true, nil, nil, func(rec *stream.Record) error {
			if g, n, ok := EpochOf(rec); !ok || g != 7 || n != 12 {
				return fmt.Errorf("record %s is of epoch %d.%d, %v", rec.Value, g, n, ok)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// poll reads until it has that many records, and batches of that many partitions.
func (r *rig) poll(s *Source, records, partitions int) (values []string, at map[string]stream.Position) {
	r.Helper()
	at = make(map[string]stream.Position)
	r.eventually("the source hands out what is asked", func() bool {
		b, err := s.Poll(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		if b != nil {
			for _, rec := range b.Records {
				values = append(values, string(rec.Value))
			}
			at[b.Split.ID] = b.Next
		}
		return len(values) >= records && len(at) >= partitions
	})
	return values, at
}

// TestRealBroker_OlderLine runs on Kafka 3.9.1: transaction version 1, where the epoch does not change
// from one transaction to the next by itself. Nothing runs beside it: the kit counts goroutines.
func TestRealBroker_OlderLine(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real broker; left out by -short")
	}
	addrs := servicestest.OwnKafka(t, services.KafkaConfig{Version: services.KafkaOlder}).Addrs()
	t.Run("T2/the largest time-out is still a time-out here", func(t *testing.T) {
		r := realRig(t, addrs, nil)
		d, err := r.opened(1).Describe(t.Context())
		if err != nil || !d.Bounded {
			t.Errorf("describe: %+v, %v; want bounded", d, err)
		}
		v, err := r.begin(r.opened(2), r.name(2, 1), 1).Prepare(t.Context())
		if err != nil || v.Kind != participant.Yes || v.Deadline.IsZero() {
			t.Errorf("vote %+v, %v; want yes with a deadline", v, err)
		}
	})
	t.Run("the conformance kit", func(t *testing.T) { participanttest.Run(t, kitOn(addrs)) })
	t.Run("I2/a slot is initialised anew for every transaction, once its last is resolved", func(t *testing.T) {
		r := realRig(t, addrs, nil)
		s := r.opened(1)
		type who struct {
			pid   int64
			epoch int16
		}
		used := map[string]map[who]bool{}
		for n := uint64(1); n <= 12; n++ {
			h := r.prepared(s, r.name(1, n), 10)
			b, err := decode(h)
			if err != nil || b.Class != classOld {
				t.Fatalf("handle of class %d, %v; want %d on this broker", b.Class, err, classOld)
			}
			if used[b.TxnID] == nil {
				used[b.TxnID] = map[who]bool{}
			}
			if used[b.TxnID][who{b.PID, b.Epoch}] {
				t.Errorf("%s was used for two transactions", h.Name)
			}
			used[b.TxnID][who{b.PID, b.Epoch}] = true
			if n%4 == 0 {
				r.rollback(s, h, participant.RolledBack)
				continue
			}
			r.commit(s, h, participant.Committed)
		}
		r.sees(90)
		r.nothingOpen()
	})
	t.Run("I2/a delayed EndTxn does not finish a later transaction of the same id", func(t *testing.T) {
		r := realRig(t, addrs, nil)
		s := r.opened(1)
		old := r.prepared(s, r.name(1, 1), 10)
		r.rollback(s, old, participant.RolledBack)
		var later []participant.Handle
		for n := uint64(2); n <= 4; n++ {
			later = append(later, r.prepared(s, r.name(1, n), 10))
		}
		r.sameFromAnywhere(old, participant.RolledBack) // fenced, and looked up
		r.sees(0)
		r.commit(s, later[0], participant.Committed)
		r.sameFromAnywhere(old, participant.RolledBack) // also when the later one is the committed one
		for _, h := range later[1:] {
			r.commit(s, h, participant.Committed)
		}
		r.sameFromAnywhere(old, participant.RolledBack)
		r.sees(30)
	})
	t.Run("I2/an id is not initialised while its last transaction is unresolved", func(t *testing.T) {
		r := realRig(t, addrs, nil)
		if got := r.fourBranches(false); got != 30 {
			t.Errorf("readers see %d of 30 committed records", got)
		}
	})
}
