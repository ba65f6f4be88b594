package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/participant/resolver"
)

// More transactions by hand are in doubt than one answer names, and the first of them cannot be finished at all. The others
// are, none is taken for one whose resource was set back, and an operator sees all of them.
func TestMoreByHandThanOneAnswerNamesIsFinished(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		const hopeless, others = 1200, 40
		decide := func(h participant.Handle) {
			r.Decide(ledger.Commit{Txn: ledger.TxnID(hands(t)), Branches: []ledger.HandBranch{{Resource: "out", Handle: ledger.Handle{
				Kind: h.Kind, Version: h.Version, Identity: h.Identity, Alias: h.Alias, Name: h.Name,
			}}}})
		}
		for i := range hopeless {
			decide(participant.Handle{Kind: participanttest.Kind, Version: 2, Identity: "out", Alias: "out", Name: fmt.Sprint("of-the-future-", i)})
		}
		for range others {
			txn := hands(t)
			h := r.stores["out"].Plant(r.byHand(txn), txn)
			if _, err := r.cl.Commit(t.Context(), txn, []participant.HandBranch{{Resource: "out", Handle: h}}); err != nil {
				t.Fatal(err)
			}
		}
		away := &atomic.Bool{}
		away.Store(true)
		r.resolve(func(c *resolver.Config) {
			c.SweepInterval = time.Second
			c.Resources[0].Finisher.(*participanttest.Memory).SetHook(func(_ context.Context, call participanttest.Call, _ participanttest.When, _ string) error {
				if call == participanttest.CallCommit && away.Load() {
					return errors.New("not now")
				}
				return nil
			})
		})
		time.Sleep(30 * time.Second)
		if found := r.told().GetInDoubt(); len(found) > 0 {
			t.Errorf("%d things that are to be finished were found in doubt: %v", len(found), found[0])
		}
		away.Store(false)
		r.until(40*time.Second, "all that can be finished is", func() bool { return len(r.stores["out"].Records()) == others })
		x, err := resolver.New(resolver.Config{Client: r.cl, Resources: []resolver.Resource{{Name: "out", Finisher: r.stores["out"].Process()}}})
		if err != nil {
			t.Fatal(err)
		}
		done, err := x.Finish(t.Context(), "")
		if err != nil || len(done) != hopeless {
			t.Fatalf("an operator sees %d, %v; want %d", len(done), err, hopeless)
		}
	})
}
