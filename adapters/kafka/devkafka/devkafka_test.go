package devkafka_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg devkafka.Config) *devkafka.Broker {
	t.Helper()
	b, err := devkafka.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGracefulStopKeepsTopicsClusterIDAndPreparedBranches(t *testing.T) {
	cfg := devkafka.Config{DataDir: t.TempDir(), Topics: map[string]int{"totals": 2}}
	b := start(t, cfg)
	id := b.ClusterID()
	s, err := kafka.NewSink(kafka.SinkConfig{Brokers: []string{b.Addr()}, Topic: "totals"})
	if err != nil {
		t.Fatal(err)
	}
	ns := participant.Namespace{Name: "test", Incarnation: 1}
	if err := s.Open(t.Context(), participant.Opening{Namespace: ns, Scope: "orders/0", Member: "all", Resource: "totals", Generation: 1}); err != nil {
		t.Fatal(err)
	}
	br, err := s.Begin(t.Context(), participant.BranchName{Namespace: ns, Pipeline: "orders", Member: "all", Resource: "totals", Generation: 1, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := br.(*kafka.Branch).Write(t.Context(), []stream.Record{{Value: []byte("kept")}}); err != nil {
		t.Fatal(err)
	}
	v, err := br.Prepare(t.Context())
	if err != nil || v.Kind != participant.Yes {
		t.Fatalf("prepare: %v, %v", v, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b.Close()

	cfg.Topics["more"] = 1
	b = start(t, cfg)
	defer b.Close()
	if b.ClusterID() != id {
		t.Errorf("cluster id %s after the restart, %s before: no handle would be known again", b.ClusterID(), id)
	}
	s, err = kafka.NewSink(kafka.SinkConfig{Brokers: []string{b.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := s.Commit(t.Context(), v.Handle)
	if err != nil || p.Verdict != participant.Committed {
		t.Errorf("commit after the restart: %v, %v", p, err)
	}
	a, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: []string{b.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	n := 0
	if err := a.ReadAll(t.Context(), "totals", true, nil, nil, func(*stream.Record) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("readers see %d records, %v; want 1", n, err)
	}
	if parts, found, err := a.TopicExists(t.Context(), "more"); parts != 1 || !found || err != nil {
		t.Errorf("the topic that was asked for later: %d partitions, %v, %v", parts, found, err)
	}
}

func TestPortInUseIsSaid(t *testing.T) {
	b := start(t, devkafka.Config{Addr: "127.0.0.1:0"})
	defer b.Close()
	if again, err := devkafka.Start(devkafka.Config{Addr: b.Addr()}); err == nil {
		again.Close()
		t.Error("two brokers listen on one port")
	} else if !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), b.Addr()) {
		t.Errorf("start on a port in use: %v", err)
	}
}

func TestAddressWithoutPortIsRefused(t *testing.T) {
	if b, err := devkafka.Start(devkafka.Config{Addr: "localhost"}); err == nil {
		b.Close()
		t.Error("an address without a port was taken")
	}
}
