package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/state/statetest"
	"github.com/unisink/unisink/processor/stream"
)

// The broker compacts while parts come and go: what was deleted is gone from the disk, and every part
// that was not is read whole by the next process.
func TestRealBroker_CompactionTakesDeletedPartsAndNothingElse(t *testing.T) {
	c := servicestest.OwnKafka(t, services.KafkaConfig{Config: map[string]string{"log.cleaner.backoff.ms": "200"}})
	statetest.Run(t, statetest.Kit{Open: func(t testing.TB) state.Store { return openStore(t, c.Addrs(), "kit") }})

	a, err := NewAdmin(AdminConfig{Brokers: c.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	err = a.CreateTopic(t.Context(), "state", 3, map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t, c.Addrs(), "state")
	var kept []string
	bodies, written := map[string][]byte{}, 0
	for i := range 24 {
		id := fmt.Sprintf("part-%02d", i)
		bodies[id] = bytes.Repeat(fmt.Appendf(nil, "%s ", id), 100_000)
		if err := s.Put(t.Context(), id, bodies[id]); err != nil {
			t.Fatal(err)
		}
		written += len(bodies[id])
		if i%4 == 0 {
			kept = append(kept, id)
			continue
		}
		if err := s.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	bytesLeft := func() (n int) {
		err := a.ReadAll(t.Context(), "state", false, nil, nil, func(r *stream.Record) error {
			n += len(r.Value)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); bytesLeft() > written*6/10; {
		if time.Now().After(deadline) {
			t.Fatalf("the broker has not compacted: %d bytes of %d are left", bytesLeft(), written)
		}
		time.Sleep(100 * time.Millisecond) // the broker tells nobody when it has compacted
	}
	for name, p := range map[string]*StateStore{"the writer": s, "the next process": openStore(t, c.Addrs(), "state")} {
		ids, err := p.List(t.Context(), "part-")
		if err != nil || !slices.Equal(ids, kept) {
			t.Errorf("%s lists %q, %v; want %q", name, ids, err, kept)
		}
		for id, body := range bodies {
			got, err := p.Get(t.Context(), id)
			if wanted := slices.Contains(kept, id); wanted && (err != nil || !bytes.Equal(got, body)) || !wanted && !errors.Is(err, state.ErrNoPart) {
				t.Errorf("%s, %s: %d bytes, %v", name, id, len(got), err)
			}
		}
	}
}
