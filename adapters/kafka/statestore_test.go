package kafka

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/state/statetest"
	"github.com/unisink/unisink/processor/stream"
)

func openStore(t testing.TB, brokers []string, topic string) *StateStore {
	t.Helper()
	s, err := OpenStateStore(t.Context(), StateStoreConfig{Brokers: brokers, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformanceOfTheStateStore(t *testing.T) {
	b := broker(t, devkafka.Config{})
	large := 0 // what the kit takes for large
	if testing.Short() {
		large = 3 << 20 // six chunks, which are written one after the other
	}
	statetest.Run(t, statetest.Kit{Large: large, Open: func(t testing.TB) state.Store { return openStore(t, []string{b.Addr()}, "state") }})
}

// A process dies between the chunks of a part and its name, or in a deletion: nobody sees half a part,
// a repeat goes through, and an hour later the next process removes what is left.
func TestAHalfWrittenPartIsNeverSeenAndIsRemovedInTime(t *testing.T) {
	b := broker(t, devkafka.Config{})
	at := []string{b.Addr()}
	s, other := openStore(t, at, "state"), openStore(t, at, "state")
	body := bytes.Repeat([]byte("state "), 300_000)
	names, mended := 0, atomic.Bool{}
	b.Cluster().ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		p := req.(*kmsg.ProduceRequest)
		if mended.Load() || p.Topics[0].Partitions[0].Partition != namesPartition {
			return nil, nil, false
		}
		if names++; names == 1 {
			return nil, nil, false // it is begun
		}
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		tp := kmsg.NewProduceResponseTopic()
		tp.Topic, tp.TopicID = p.Topics[0].Topic, p.Topics[0].TopicID
		pp := kmsg.NewProduceResponseTopicPartition()
		pp.ErrorCode = kerr.TopicAuthorizationFailed.Code
		tp.Partitions = append(tp.Partitions, pp)
		resp.Topics = append(resp.Topics, tp)
		return resp, nil, true
	})
	if err := s.Put(t.Context(), "p1", body); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Fatalf("put without its name: %v", err)
	}
	if names < 2 {
		t.Fatal("it was not cut in the midst")
	}
	if _, err := other.Get(t.Context(), "p1"); !errors.Is(err, state.ErrNoPart) {
		t.Errorf("half a part: %v", err)
	}
	if ids, err := other.List(t.Context(), ""); err != nil || len(ids) != 0 {
		t.Errorf("listed %q, %v", ids, err)
	}
	mended.Store(true)
	other.mu.Lock()
	begun := other.names.parts["p1"].begun
	early, late := other.names.abandoned(time.Now().Add(-storeAbandoned)), other.names.abandoned(time.Now().Add(time.Minute))
	other.mu.Unlock()
	if begun == nil || begun.chunks() != 4 || len(early) != 0 || len(late) != 1 {
		t.Fatalf("begun %+v, abandoned %q and %q", begun, early, late)
	}
	if err := other.Delete(t.Context(), "p1"); err != nil {
		t.Fatal(err)
	}
	if after, err := s.known(t.Context(), "p1"); err != nil || after != (partEntry{}) {
		t.Errorf("after its removal: %+v, %v", after, err)
	}
	left := map[string]bool{}
	err := admin(t, b).ReadAll(t.Context(), "state", false, nil, nil, func(r *stream.Record) error {
		left[string(r.Key)] = r.Value != nil
		return nil
	})
	for key, there := range left {
		if there {
			t.Errorf("%s is left", key)
		}
	}
	if err != nil || len(left) < 5 {
		t.Errorf("%d keys, %v", len(left), err)
	}
}

func TestStateNeedsATopicThatKeepsIt(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"totals": 3}})
	a := admin(t, b)
	if err := a.CreateTopic(t.Context(), "narrow", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	for topic, says := range map[string]string{"totals": "must be compact", "narrow": "needs two or more", "": "name the topic"} {
		_, err := OpenStateStore(t.Context(), StateStoreConfig{Brokers: []string{b.Addr()}, Topic: topic})
		if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), says) {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
}

// What somebody else writes into the topic is found, not skipped.
func TestAForeignRecordAmongTheNamesIsTold(t *testing.T) {
	b := broker(t, devkafka.Config{})
	s := openStore(t, []string{b.Addr()}, "state")
	if err := s.write(t.Context(), &kgo.Record{Topic: "state", Key: []byte("k"), Value: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "a topic of its own") {
		t.Errorf("list: %v", err)
	}
}

func TestADamagedChunkIsTold(t *testing.T) {
	b := broker(t, devkafka.Config{})
	s := openStore(t, []string{b.Addr()}, "state")
	if err := s.Put(t.Context(), "p", []byte("as written")); err != nil {
		t.Fatal(err)
	}
	known, err := s.known(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	wrong := *known.written
	wrong.Sum++
	if err := s.write(t.Context(), writtenRecord("state", "p", &wrong)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "p"); err == nil || errors.Is(err, state.ErrNoPart) {
		t.Errorf("get: %v", err)
	}
}

// What was deleted last leaves tombstones at the end of the topic, and these are gone in time too: behind them there are
// no records, or batches without any.
func TestAnEndThatWasCompactedAwayIsReached(t *testing.T) {
	for name, batches := range map[string]func(last int64) []byte{
		"nothing is left": func(int64) []byte { return nil }, "an empty batch is left": emptyBatch,
	} {
		t.Run(name, func(t *testing.T) {
			b := broker(t, devkafka.Config{})
			s := openStore(t, []string{b.Addr()}, "state")
			if err := s.Put(t.Context(), "kept", []byte("state")); err != nil {
				t.Fatal(err)
			}
			_, end, err := s.bounds(t.Context())
			if err != nil || end < 2 {
				t.Fatalf("the topic ends at %d, %v", end, err)
			}
			asked := atomic.Int64{}
			b.Cluster().ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				b.Cluster().KeepControl()
				f := req.(*kmsg.FetchRequest)
				if len(f.Topics) != 1 || f.Topics[0].Partitions[0].Partition != namesPartition {
					return nil, nil, false
				}
				resp := f.ResponseKind().(*kmsg.FetchResponse)
				rt, rp := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
				rt.Topic, rt.TopicID = f.Topics[0].Topic, f.Topics[0].TopicID
				rp.Partition, rp.HighWatermark, rp.LastStableOffset = namesPartition, end, end
				if f.Topics[0].Partitions[0].FetchOffset < end {
					rp.RecordBatches = batches(end - 1)
				}
				rt.Partitions = append(rt.Partitions, rp)
				resp.Topics = append(resp.Topics, rt)
				asked.Add(1)
				time.Sleep(5 * time.Millisecond) // no answer of a broker comes at once
				return resp, nil, true
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			other, err := OpenStateStore(ctx, StateStoreConfig{Brokers: []string{b.Addr()}, Topic: "state"})
			if err != nil || asked.Load() == 0 {
				t.Fatalf("open: %v, after %d fetches", err, asked.Load())
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// emptyBatch is what compaction leaves of the last batch of a producer that goes on.
func emptyBatch(last int64) []byte {
	rb := kmsg.RecordBatch{FirstOffset: last, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}
	text := rb.AppendTo(nil)
	rb.Length = int32(len(text) - 12)
	rb.CRC = int32(crc32.Checksum(text[21:], castagnoli)) //nolint:gosec // the same 32 bits
	return rb.AppendTo(nil)
}
