package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// The final epoch was decided when the leader fell, and its one member hears that from the next leader before
// its vote is answered. The vote is sent once more then, with what is proven since; that is the last that is said of it.
func TestP22_ALateVoteForTheFinalEpochTellsWhatIsProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "all")
		ctx, cancel := context.WithCancel(t.Context())
		l := w.attach(attachRequest("all", "a"), 100)
		l.renew(ctx, true)
		l.expect("welcome")
		l.expect("restore 1")
		if err := l.ready(1); err != nil {
			t.Fatal(err)
		}
		l.expect("start 1")
		w.desire(ledger.Stopping)
		l.expect("barrier 1.1")
		v := yes("all", 1, 1)
		v.Final, v.Kind, v.Branches = true, unisinkv1.VoteKind_VOTE_KIND_READ_ONLY, nil
		req := &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{Scope: wire.FromScope(scope0), Member: "all", Instance: "a", Vote: v}}
		if _, err := w.now().Decide(ctx, req); err != nil {
			t.Fatal(err)
		}
		cancel()
		w.fall()
		l.ended("NOT_LEADER")
		w.lead()

		ctx, cancel = context.WithCancel(t.Context())
		again := attachRequest("all", "a")
		again.Standing = &unisinkv1.Standing{
			Generation: 1, Phase: unisinkv1.Phase_PHASE_RUNNING, NewestBarrier: 1, NewestBarrierFinal: true, Votes: []*unisinkv1.Vote{v},
		}
		l = w.attach(again, 100)
		l.renew(ctx, false)
		l.expect("welcome")
		l.expect("committed 1.1")
		v.ProvenThrough = 1
		if resp, err := w.now().Decide(ctx, req); err != nil || resp.GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
			t.Fatalf("asked again: %v, %v", resp, err)
		}
		w.within(10*time.Second, "stopped", func() bool { return w.pipeline().Desired == ledger.Stopped })
		cancel()
		l.cut()
		w.fall()
	})
}
