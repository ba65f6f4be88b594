package participant_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startCoordinator runs a coordinator group of one node on loopback, with a log on disk, and
// returns its client address and what ends it.
func startCoordinator() (addr string, stop func(), _ error) {
	dir, err := os.MkdirTemp("", "unisink-participant-*")
	if err != nil {
		return "", nil, err
	}
	client, raft, err := freePorts()
	if err != nil {
		return "", nil, err
	}
	node, err := coordinator.New(coordinator.Config{
		NodeID: "n1", DataDir: dir, RaftBind: raft, ClientBind: client, HeartbeatTimeout: 100 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			fmt.Fprintln(os.Stderr, "coordinator:", err)
		}
		_ = os.RemoveAll(dir)
	}
	c, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{client}})
	if err != nil {
		stop()
		return "", nil, err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Cluster().Bootstrap(context.Background(), &unisinkv1.BootstrapRequest{
		Meta: c.NewMeta(), Namespace: "example", Nodes: []*unisinkv1.Node{{Id: "n1", RaftAddress: raft, ClientAddress: client, Voter: true}},
	})
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("bootstrap: %w", err)
	}
	return client, stop, nil
}

// freePorts finds two addresses that nobody listens at.
func freePorts() (string, string, error) {
	a, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	b, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	one, two := a.Addr().String(), b.Addr().String()
	return one, two, firstOf(a.Close(), b.Close())
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// newClient is a client of a coordinator of its own.
func newClient(t *testing.T) *participant.Client {
	t.Helper()
	addr, stop, err := startCoordinator()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{addr}, Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
