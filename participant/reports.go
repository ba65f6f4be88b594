package participant

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

const (
	// manyReports is how many may wait or be on their way at once; then whoever has one more waits. It bounds what a
	// client whose coordinator is away keeps in memory, and what a crash leaves to the next Sweep.
	manyReports = 512
	// gatherReports is how long the first of a batch waits for others, unless half of those many have come: one call
	// and one entry of the log for many cost the nodes a small part of what one for each costs.
	gatherReports = 100 * time.Millisecond
)

// report is the proof of one branch of a transaction run by hand.
type report struct {
	txn, resource string
	proof         Proof
	by            time.Time // what is not reported by then is left to the next Sweep
}

// reports are the proofs that are told behind the back of callers, many in one call, one call at a time. It is safe
// for concurrent use.
type reports struct {
	tell  func(ctx context.Context, batch []report)
	limit time.Duration // of each
	slots chan struct{} // one for each that waits or is on its way
	full  chan struct{} // capacity 1: a batch need not wait for others
	hurry chan struct{} // closed when nothing gathers any more

	mu      sync.Mutex // guards what follows; held for memory only
	waiting []report
	sending bool // a goroutine is at it
	work    sync.WaitGroup
	end     sync.Once
}

func newReports(limit time.Duration, tell func(ctx context.Context, batch []report)) *reports {
	return &reports{tell: tell, limit: limit, slots: make(chan struct{}, manyReports), full: make(chan struct{}, 1), hurry: make(chan struct{})}
}

// add has a proof told. That outlives ctx, for the limit at most, and waits for room only while ctx lasts: what finds
// none is told by the caller, whose context has ended, and so mostly in vain.
func (r *reports) add(ctx context.Context, txn, resource string, proof Proof) {
	one := report{txn, resource, proof, time.Now().Add(r.limit)}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		r.tell(ctx, []report{one})
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, one)
	if len(r.waiting) == manyReports/2 {
		select {
		case r.full <- struct{}{}:
		default:
		}
	}
	if !r.sending {
		r.sending = true
		r.work.Go(func() { r.send(context.WithoutCancel(ctx)) })
	}
}

// send tells batches until none waits.
func (r *reports) send(ctx context.Context) {
	pause := time.NewTimer(gatherReports)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-r.full:
		case <-r.hurry:
		}
		r.mu.Lock()
		batch := r.waiting
		r.waiting = nil
		r.sending = len(batch) > 0
		r.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		limited, cancel := context.WithDeadline(ctx, batch[len(batch)-1].by)
		r.tell(limited, batch)
		cancel()
		for range batch {
			<-r.slots
		}
		pause.Reset(gatherReports)
	}
}

// wait returns when none waits or is on its way, which takes the limit at most. Nothing gathers from then on.
func (r *reports) wait() {
	r.end.Do(func() { close(r.hurry) })
	r.work.Wait()
}

// tell reports proofs of committed branches. Those that can't be told now are told by the next Sweep.
func (c *Client) tell(ctx context.Context, batch []report) {
	if len(batch) > 1 {
		switch err := c.resolveAll(ctx, batch); {
		case err == nil:
			return
		case errors.Is(err, ErrOutcomeUnknown): // nobody answers: asked one by one they would not either
			for _, r := range batch {
				c.untold(ctx, r.txn, r.resource, err)
			}
			return
		}
		// A node of an older version, or one proof that spoils the others.
	}
	for _, r := range batch {
		c.report(ctx, r.txn, r.resource, r.proof)
	}
}

// resolveAll reports many proofs in one call. An error says nothing about any of them.
func (c *Client) resolveAll(ctx context.Context, batch []report) error {
	req := &unisinkv1.ResolveAllRequest{Meta: c.NewMeta()}
	for _, r := range batch {
		req.Proofs = append(req.Proofs, &unisinkv1.HandProof{Txn: r.txn, Resource: r.resource, Proof: proofToWire(r.proof)})
	}
	resp, err := c.Transactions().ResolveAll(ctx, req)
	if err != nil {
		return unknownIfCut(ctx, err)
	}
	for _, x := range resp.GetRefused() {
		if i := int(x.GetIndex()); x.GetReason() != grpcerr.NotFound && i < len(batch) {
			c.untold(ctx, batch[i].txn, batch[i].resource, errors.New(x.GetText()))
		}
	}
	return nil
}

// report tells the ledger a proof. A branch that was neither announced nor committed is not in it
// and needs none. One that can't be told now is told by the next Sweep.
func (c *Client) report(ctx context.Context, txn, resource string, proof Proof) {
	if err := c.Resolve(ctx, txn, resource, proof); err != nil && !errors.Is(err, ErrNotFound) {
		c.untold(ctx, txn, resource, err)
	}
}

func (c *Client) untold(ctx context.Context, txn, resource string, err error) {
	c.log.WarnContext(ctx, "proof not reported; the transaction stays in doubt until it is run again or swept",
		obs.Txn(txn), obs.Resource(resource), obs.Err(err))
}
