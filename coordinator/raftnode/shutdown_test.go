package raftnode

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

// The library answers nobody for entries that wait between log and state when it is shut down. A
// node that waits for those answers would never end.
func TestANodeEndsThoughEntriesWaitToBeApplied(t *testing.T) {
	for range 12 { // the library looks at its end and at what waits in no fixed order
		t.Run("", endsWithEntriesWaiting)
	}
}

func endsWithEntriesWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var held atomic.Bool
		net := NewMemoryNet()
		n, err := Open(Config{
			NodeID: "n1", Logger: quiet(), OnFatal: func(error) {}, Seams: net.Seams("n1"),
			Effects: func([]ledger.Effect, uint64) {
				if held.Load() {
					<-gate // the state takes its time
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		if err := n.Bootstrap(t.Context(), "test", members()[:1]); err != nil {
			t.Fatal(err)
		}
		held.Store(true)
		var callers sync.WaitGroup
		for range 8 {
			time.Sleep(10 * time.Millisecond) // one entry each
			callers.Go(func() {
				_, err := n.Propose(context.WithoutCancel(t.Context()), ledger.Command{Body: ledger.PresumeAbort{Txn: ledger.TxnID(uuid.Must(uuid.NewV7()).String())}})
				if err != nil && !errors.Is(err, ErrUnknown) {
					t.Errorf("a caller is told %v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(gate)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the node ends with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the node does not end")
		}
		callers.Wait()
	})
}

// gatedLog is a log that takes entries once its gate is open; nil: at once.
type gatedLog struct {
	raft.LogStore
	gate atomic.Pointer[chan struct{}]
}

func (g *gatedLog) StoreLogs(logs []*raft.Log) error {
	if gate := g.gate.Load(); gate != nil {
		<-*gate
	}
	return g.LogStore.StoreLogs(logs)
}

// The same is so of a hand-over that was asked for and not begun when the library ends.
func TestAHandOverEndsWithTheNode(t *testing.T) {
	for range 12 {
		t.Run("", handsOverAtTheEnd)
	}
}

func handsOverAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seams := NewMemoryNet().Seams("n1")
		log := &gatedLog{LogStore: seams.Logs}
		seams.Logs = log
		n, err := Open(Config{NodeID: "n1", Logger: quiet(), OnFatal: func(error) {}, Seams: seams})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		if err := n.Bootstrap(t.Context(), "test", members()[:1]); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		log.gate.Store(&gate)
		var callers sync.WaitGroup
		callers.Go(func() {
			_, _ = n.Propose(context.WithoutCancel(t.Context()), benchCommand(1)) // holds the library's loop
		})
		synctest.Wait()
		asked, giveUp := context.WithCancel(t.Context())
		callers.Go(func() { _ = n.TransferLeadership(asked) }) // any answer will do
		synctest.Wait()
		giveUp()
		cancel()
		synctest.Wait()
		close(gate)
		if err := <-ended; err != nil {
			t.Errorf("the node ends with %v", err)
		}
		callers.Wait()
	})
}
