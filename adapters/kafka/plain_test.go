package kafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/processor/stream"
)

func TestAPlainWriterWritesEachRecordOnceWhateverBecomesOfItsBuffers(t *testing.T) {
	br := broker(t, devkafka.Config{Topics: map[string]int{"plain": 2}})
	w, err := NewPlainWriter(SinkConfig{Brokers: []string{br.Addr()}, Topic: "plain", Partitioning: RoundRobin}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const n = 3*chunkRecords + 5
	var buf []byte
	for i := range n {
		buf = fmt.Appendf(buf[:0], "%06d", i) // the same bytes again and again
		if err := w.Write(t.Context(), []stream.Record{{Value: buf}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := NewAdmin(AdminConfig{Brokers: []string{br.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	seen := map[string]int{}
	if err := a.ReadAll(t.Context(), "plain", true, nil, nil, func(r *stream.Record) error {
		seen[string(r.Value)]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if seen[fmt.Sprintf("%06d", i)] != 1 {
			t.Fatalf("record %d is there %d times", i, seen[fmt.Sprintf("%06d", i)])
		}
	}
}

func TestAPlainWriterTellsAFailureAtTheNextCall(t *testing.T) {
	br := broker(t, devkafka.Config{Topics: map[string]int{"plain": 1}})
	w, err := NewPlainWriter(SinkConfig{Brokers: []string{br.Addr()}, Topic: "plain"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Write(t.Context(), []stream.Record{{Value: make([]byte, 2<<20)}}); err != nil && !errors.Is(err, kerr.MessageTooLarge) {
		t.Fatal(err) // mostly it is not known yet
	}
	if err := w.Flush(t.Context()); err == nil {
		t.Error("a record that is too large was written")
	}
	if err := w.Write(t.Context(), []stream.Record{{Value: []byte("x")}}); err == nil {
		t.Error("the failure was forgotten")
	}
}
