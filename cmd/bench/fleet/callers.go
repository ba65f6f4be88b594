package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/participant"
)

// Callers run transactions by hand, one after the other each.
type Callers struct {
	Writers []*Writer

	work sync.WaitGroup
	end  context.CancelFunc

	mu        sync.Mutex // guards committed; held for memory only
	committed []string
}

// callWait is how long a caller waits for a decision before that counts as a failure.
const callWait = 20 * time.Second

// Call starts n callers, each with a transaction of two branches at most each Every. Stop them.
func Call(ctx context.Context, coordinators []string, n int, every time.Duration) (*Callers, error) {
	c := &Callers{}
	ctx, c.end = context.WithCancel(ctx)
	for i := range n {
		cl, err := participant.NewClient(participant.ClientConfig{Coordinators: coordinators, Actor: "bench", Patience: callWait})
		if err != nil {
			return c, err
		}
		namespace, err := cl.Namespace(ctx)
		if err != nil {
			return c, errors.Join(err, cl.Close())
		}
		w := &Writer{Name: fmt.Sprintf("caller %d", i+1)}
		c.Writers = append(c.Writers, w)
		c.work.Go(func() {
			c.call(ctx, cl, namespace, w, every)
			if err := cl.Close(); err != nil {
				w.fail(fmt.Errorf("close the connections: %w", err))
			}
		})
	}
	return c, nil
}

// Stop ends the callers, after what they have begun, and waits for them.
func (c *Callers) Stop() {
	c.end()
	c.work.Wait()
}

// Committed returns the ids of the transactions that callers were told to be committed since the last call.
func (c *Callers) Committed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := c.committed
	c.committed = nil
	return ids
}

func (c *Callers) call(ctx context.Context, cl *participant.Client, namespace participant.Namespace, w *Writer, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := c.one(context.WithoutCancel(ctx), cl, namespace, w, n); err != nil {
			w.fail(err)
		}
	}
}

// one is one transaction, from two prepared branches to their proofs.
func (c *Callers) one(ctx context.Context, cl *participant.Client, namespace participant.Namespace, w *Writer, n uint64) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	txn, err := participant.NewTxnID()
	if err != nil {
		return err
	}
	var branches []participant.HandBranch
	for _, r := range []string{"left", "right"} {
		name := participant.BranchName{Namespace: namespace, Txn: txn, Resource: r, N: n}
		branches = append(branches, participant.HandBranch{Resource: r, Handle: handleOf(w.Name, name)})
	}
	prepared := time.Now()
	out, err := cl.Commit(ctx, txn, branches)
	if err != nil {
		return err
	}
	if out != participant.OutcomeCommitted {
		return fmt.Errorf("transaction %s is %s, and nobody asked for that", txn, out)
	}
	w.decided(prepared)
	c.mu.Lock()
	c.committed = append(c.committed, txn)
	c.mu.Unlock()
	for _, b := range branches {
		if err := cl.Resolve(ctx, txn, b.Resource, participant.Proof{Verdict: participant.Committed, Evidence: "in memory"}); err != nil {
			return err
		}
	}
	return nil
}
