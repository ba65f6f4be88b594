package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/processor/stream"
)

func TestPositionsTellWhichPartitionsWereAdded(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"in": 1}})
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	grow := func(n int) {
		t.Helper()
		r, err := kadm.NewClient(cl).UpdatePartitions(t.Context(), n, "in")
		if err == nil {
			err = r["in"].Err
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, at []stream.Position, want ...bool) {
		t.Helper()
		got := make([]bool, len(at))
		for i, p := range at {
			got[i] = Added(p)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: added %v, want %v", when, got, want)
		}
	}
	cfg := SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"in"}, PollWait: 20 * time.Millisecond, NewPartitions: 50 * time.Millisecond}
	s := source(t, cfg)
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	check("at first", []stream.Position{heardOf(t, s, "in/0")}, false)
	grow(2)
	at := append([]stream.Position{{Split: s.Splits()[0], LeaderEpoch: -1, Opaque: s.parts[0].mark}}, heardOf(t, s, "in/1"))
	check("added while it is read", at, false, true)
	grow(3) // while nobody reads
	s = source(t, cfg)
	if err := s.Open(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	last := []stream.Position{{Opaque: s.parts[0].mark}, {Opaque: s.parts[1].mark}, heardOf(t, s, "in/2")}
	check("after a restart", last, false, true, true)
}

// heardOf polls until a position of that split came.
func heardOf(t *testing.T, s *Source, id string) stream.Position {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		b, err := s.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b != nil && b.Split.ID == id {
			p := b.Next
			p.Opaque = slices.Clone(p.Opaque)
			return p
		}
	}
	t.Fatalf("no position of %s", id)
	return stream.Position{}
}

func TestPositionsTellThatABoundedSourceHadEndedBefore(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"in": 2}})
	s := source(t, SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"in"}, Bounded: true, PollWait: 20 * time.Millisecond})
	var from []stream.Position
	for run := range 3 {
		if err := s.Open(t.Context(), from); err != nil {
			t.Fatal(err)
		}
		_, at := drain(t, s, -1)
		from = nil
		for _, p := range at {
			if Behind(p) != (run > 0) {
				t.Errorf("run %d: position %v", run, p)
			}
			p.Opaque = slices.Clone(p.Opaque)
			from = append(from, p)
		}
		if len(from) != 2 {
			t.Fatalf("run %d: positions %v", run, from)
		}
	}
}

func TestPositionsTellThatThePipelineWasDrained(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"in": 1}})
	cfg := SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"in"}, PollWait: 20 * time.Millisecond}
	s := source(t, cfg)
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	at := heardOf(t, s, "in/0")
	for _, c := range []struct {
		name string
		from stream.Position
		want bool
	}{{"stopped", at, false}, {"drained", s.Drained(at), true}} {
		again := source(t, cfg)
		if err := again.Open(t.Context(), []stream.Position{c.from}); err != nil {
			t.Fatal(err)
		}
		if got := Behind(stream.Position{Opaque: again.parts[0].mark}); got != c.want {
			t.Errorf("%s: behind an end %v, want %v", c.name, got, c.want)
		}
	}
}
