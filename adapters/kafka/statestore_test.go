package kafka

import (
	"bytes"
	"errors"
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
	statetest.Run(t, statetest.Kit{Open: func(t testing.TB) state.Store { return openStore(t, []string{b.Addr()}, "state") }})
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
