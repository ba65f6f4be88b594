package coordinator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/participant"
)

// Nodes that are asked in the midst of decisions tell the index and the hash of one moment: two that
// name the same index name the same hash, also a node that is reading its log again.
func TestTheHashIsThatOfTheIndexBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		ctx, stop := context.WithCancel(deadline(t, time.Minute))
		defer stop()
		var load sync.WaitGroup
		for _, id := range c.IDs() {
			client := c.ClientAt(id)
			load.Go(func() {
				for ctx.Err() == nil {
					txn, err := participant.NewTxnID()
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = client.Commit(ctx, txn, branches()) // one in doubt changes the state as well
					time.Sleep(3 * time.Millisecond)           // a node that is down answers in no time
				}
			})
		}
		hashes, pairs := map[uint64]string{}, 0
		look := func(rounds int) {
			for range rounds {
				for _, id := range c.IDs() {
					st, err := c.Status(id)
					if err != nil || st.GetStateIndex() == 0 {
						continue
					}
					if st.GetStateIndex() > st.GetLastIndex() {
						t.Errorf("%s holds entry %d of %d", id, st.GetStateIndex(), st.GetLastIndex())
					}
					known, seen := hashes[st.GetStateIndex()]
					if seen && known != st.GetStateHash() {
						t.Errorf("two states at entry %d: %s", st.GetStateIndex(), fmt.Sprint(known, " ", st.GetStateHash()))
					}
					if seen {
						pairs++
					}
					hashes[st.GetStateIndex()] = st.GetStateHash()
				}
				time.Sleep(7 * time.Millisecond)
			}
		}
		rounds, states := 60, 30
		if testing.Short() {
			rounds, states = 20, 10 // the state grows while it goes on, and each look hashes it
		}
		look(rounds)
		victim := c.Leader()
		c.Crash(victim)
		look(rounds * 2 / 3)
		c.Restart(victim)
		look(rounds)
		stop()
		load.Wait()
		if len(hashes) < states || pairs < 10 {
			t.Errorf("%d states were seen, %d of them twice", len(hashes), pairs)
		}
		c.AssertSameState()
	})
}
