package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// trigger is a moment of the protocol that a kill can wait for.
type trigger int

const (
	anytime trigger = iota
	onVote          // a vote with branches came in
	onDecision
)

func (t trigger) String() string {
	switch t {
	case onVote:
		return "after a vote"
	case onDecision:
		return "after a decision"
	case anytime:
	}
	return "at any time"
}

// sighting is one vote with branches, or the decision of such an epoch, as a node told it.
type sighting struct {
	what  trigger
	epoch epoch
}

// watcher follows the events of all nodes, whichever lead and live.
type watcher struct {
	nodes []*node
	seen  chan sighting
}

func newWatcher(nodes []*node) *watcher {
	return &watcher{nodes: nodes, seen: make(chan sighting, 1)}
}

// run follows until ctx ends.
func (w *watcher) run(ctx context.Context) {
	const again = 200 * time.Millisecond
	var all errgroup.Group
	for _, n := range w.nodes {
		all.Go(func() error {
			for ctx.Err() == nil {
				_ = w.follow(ctx, n) // the node died, or ctx ended: either way it is tried again
				_ = rig.Sleep(ctx, again)
			}
			return nil
		})
	}
	_ = all.Wait() // none returns an error
}

// follow passes on what one node tells until it stops.
func (w *watcher) follow(ctx context.Context, n *node) error {
	cl, err := newClient(n.client)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // only this stream used it
	stream, err := cl.Events().Watch(ctx, &unisinkv1.WatchRequest{Pipeline: pipelineName})
	if err != nil {
		return err
	}
	began := time.Now()
	votes := map[epoch]bool{}
	for {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		if time.UnixMicro(e.GetAtUs()).Before(began) {
			continue // history
		}
		at := epoch{e.GetEpoch().GetGeneration(), e.GetEpoch().GetN()}
		switch {
		case e.GetKind() == unisinkv1.EventKind_EVENT_KIND_VOTE && e.GetText() == votedYes:
			votes[at] = true
			w.tell(sighting{onVote, at})
		case e.GetKind() == unisinkv1.EventKind_EVENT_KIND_DECIDED && votes[at]:
			delete(votes, at)
			w.tell(sighting{onDecision, at})
		}
	}
}

// tell keeps the newest sighting for whoever waits.
func (w *watcher) tell(s sighting) {
	for {
		select {
		case w.seen <- s:
			return
		default:
		}
		select {
		case <-w.seen: // older
		default:
		}
	}
}

// wait returns when what is wanted was seen, or not in time.
func (w *watcher) wait(ctx context.Context, want trigger, limit time.Duration) (bool, error) {
	if want == anytime {
		return true, ctx.Err()
	}
	select {
	case <-w.seen: // from before
	default:
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		select {
		case s := <-w.seen:
			if s.what == want {
				return true, nil
			}
		case <-t.C:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
