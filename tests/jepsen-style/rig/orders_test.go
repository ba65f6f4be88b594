package rig

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestWritingEndsThoughTheBrokerIsGoneForGood(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	write := func(ctx context.Context) error {
		return seenThrough(ctx, cl, []*kgo.Record{{Topic: "in", Value: []byte("v")}}, 100*time.Millisecond)
	}
	ended, end := context.WithCancel(t.Context())
	if err := write(ended); err != nil {
		t.Fatal(err)
	}
	end()
	if err := seenThrough(ended, cl, []*kgo.Record{{Topic: "in", Value: []byte("v")}}, time.Minute); err != nil {
		t.Errorf("begun is seen through: %v", err)
	}
	c.Close()
	if err := write(ended); !errors.Is(err, errNotWritten) {
		t.Errorf("the broker is gone: %v", err)
	}
}
