package services_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
)

func TestKafkaSurvivesKillPauseAndStop(t *testing.T) {
	for _, version := range []string{services.KafkaCurrent, services.KafkaOlder} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			c := servicestest.OwnKafka(t, services.KafkaConfig{Version: version, LongRunning: version == services.KafkaOlder})
			t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
			b := c.Broker(1)
			if err := c.CreateTopic(t.Context(), "kept", [][]int32{{1}}, map[string]string{"retention.ms": "-1"}); err != nil {
				t.Fatal(err)
			}
			produce(t, c.Addrs(), "kept", "one")

			first := b.PID()
			if err := b.Kill(); err != nil || b.Alive() {
				t.Fatalf("killed with %v, alive: %t", err, b.Alive())
			}
			began = time.Now()
			if err := b.Restart(patient(t)); err != nil {
				t.Fatal(err)
			}
			t.Logf("ready %s after a kill", time.Since(began).Round(time.Millisecond))
			if b.PID() == first {
				t.Error("it is the same process")
			}
			produce(t, c.Addrs(), "kept", "two")

			if err := b.Pause(); err != nil {
				t.Fatal(err)
			}
			if got := state(t, b.PID()); got != "T" {
				t.Errorf("a paused broker is in state %s", got)
			}
			if err := b.Continue(); err != nil {
				t.Fatal(err)
			}
			produce(t, c.Addrs(), "kept", "three")
			if got := consume(t, c.Addrs(), "kept", 3); got != "one two three" {
				t.Errorf("it holds %q", got)
			}

			began = time.Now()
			pid := b.PID()
			if err := c.Stop(patient(t)); err != nil {
				t.Error(err)
			}
			t.Logf("stopped after %s", time.Since(began).Round(time.Millisecond))
			if b.Alive() || syscall.Kill(pid, 0) == nil {
				t.Error("it runs on")
			}
			gone(t, c.Dir())
		})
	}
}

func TestPartitionOfALostBrokerHasNoLeader(t *testing.T) {
	t.Parallel()
	c := servicestest.OwnKafka(t, services.KafkaConfig{Brokers: 2})
	ctx := patient(t)
	if err := c.CreateTopic(ctx, "far", [][]int32{{2}, {1}}, nil); err != nil {
		t.Fatal(err)
	}
	produce(t, c.Addrs(), "far", "one")
	for _, topic := range []string{"__transaction_state", "__consumer_offsets"} {
		for partition := range int32(4) {
			if err := c.WaitLeader(ctx, topic, partition, 1); err != nil {
				t.Error(err)
			}
		}
	}

	began := time.Now()
	if err := c.Broker(2).Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitLeader(ctx, "far", 0, -1); err != nil {
		t.Fatal(err)
	}
	t.Logf("without a leader %s after a kill", time.Since(began).Round(time.Millisecond))
	if err := c.WaitLeader(ctx, "far", 1, 1); err != nil {
		t.Error(err)
	}
	began = time.Now()
	if err := c.Broker(2).Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitLeader(ctx, "far", 0, 2); err != nil {
		t.Fatal(err)
	}
	t.Logf("led again %s after the restart began", time.Since(began).Round(time.Millisecond))
	if got := consume(t, c.Addrs(), "far", 1); got != "one" {
		t.Errorf("it holds %q", got)
	}

	if err := c.Broker(2).Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitLeader(ctx, "far", 0, -1); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
	gone(t, c.Dir())
}

func TestSharedBrokerIsStartedOnceAndStandsBesideOthers(t *testing.T) {
	t.Parallel()
	addrs := servicestest.Kafka(t)
	if again := servicestest.Kafka(t); strings.Join(again, ",") != strings.Join(addrs, ",") {
		t.Errorf("%v, and then %v", addrs, again)
	}
}

func TestKafkaThatDoesNotStartShowsItsLogAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Java; left out by -short")
	}
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kept")
	_, err := services.Kafka(patient(t), services.KafkaConfig{Dir: dir, Config: map[string]string{"num.partitions": "many"}})
	if err == nil || !strings.Contains(err.Error(), "the last lines of its log") || !strings.Contains(err.Error(), "num.partitions") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("a directory of the caller's own is kept: %v", err)
	}
}

func TestKafkaConfigReportsEveryMistakeAtOnce(t *testing.T) {
	_, err := services.Kafka(t.Context(), services.KafkaConfig{Version: "0.8", Brokers: 7, SessionTimeout: 1})
	for _, part := range []string{`"0.8"`, "not 7", "1ns"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %s", err, part)
		}
	}
}
