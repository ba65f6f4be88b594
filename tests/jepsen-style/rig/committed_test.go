package rig_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// transaction writes records to partition 0 of a topic and ends them.
func transaction(t *testing.T, brokers []string, topic string, end kgo.TransactionEndTry, values ...string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(t.Context(), end); err != nil {
		t.Fatal(err)
	}
}

func TestAllThatIsCommittedIsReadAndSilenceIsNoEnd(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "out", "empty"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	read := func(ctx context.Context, topic string, limit time.Duration) (all []string, err error) {
		err = rig.ReadCommitted(ctx, c.ListenAddrs(), topic, limit, func(r *kgo.Record) { all = append(all, string(r.Value)) })
		return all, err
	}
	if all, err := read(t.Context(), "empty", 10*time.Second); err != nil || len(all) > 0 {
		t.Errorf("an empty topic: %q, %v", all, err)
	}
	var want []string
	for n := range 3 {
		v := fmt.Sprint("kept ", n)
		want = append(want, v)
		transaction(t, c.ListenAddrs(), "out", kgo.TryCommit, v)
		transaction(t, c.ListenAddrs(), "out", kgo.TryAbort, "dropped")
	}
	if all, err := read(t.Context(), "out", 10*time.Second); err != nil || !slices.Equal(all, want) {
		t.Errorf("read %q, %v; want %q", all, err, want)
	}
	if all, err := read(t.Context(), "out", time.Nanosecond); err == nil {
		t.Errorf("without time it reads %q, and says nothing", all)
	}
}
