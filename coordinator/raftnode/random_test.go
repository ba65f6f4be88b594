package raftnode

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// randomRun is one run of TestReplicasAreEqualAfterARandomRun, with callers for so long. Snapshots are taken all the time.
func randomRun(t *testing.T, seed uint64, lasts time.Duration) {
	change := func(conf *Config) {
		conf.SnapshotThreshold, conf.SnapshotInterval = 20, 100*time.Millisecond
		conf.Seams.TrailingLogs = 1000
	}
	inBubble(t, change, func(t *testing.T, c *cluster) {
		var mu sync.Mutex // guards c.running against the callers
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		calling, enough := context.WithTimeout(ctx, lasts)
		defer enough()
		var acknowledged sync.Map
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() {
				for j := 0; calling.Err() == nil; j++ {
					cmd := benchCommand(uint64(i*1_000_000 + j + 1))
					if repeatUntilAnswered(ctx, c, &mu, cmd) {
						acknowledged.Store(txnOf(cmd), true)
					}
					time.Sleep(10 * time.Millisecond) // virtual; without it no time would ever pass
				}
			})
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		for calling.Err() == nil {
			id := nodeIDs[rng.IntN(len(nodeIDs))]
			wait := time.Duration(rng.IntN(2000)) * time.Millisecond
			if rng.IntN(2) == 0 {
				c.net.Isolate(id)
				time.Sleep(wait) // virtual
				c.net.Heal(id)
			} else {
				mu.Lock()
				r := c.running[id]
				delete(c.running, id)
				mu.Unlock()
				r.cancel()
				if err := <-r.ended; err != nil {
					t.Errorf("%s ended with %v", id, err)
				}
				time.Sleep(wait) // virtual
				mu.Lock()
				c.start(id) // takes no time
				mu.Unlock()
			}
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond) // virtual
		}
		callers.Wait()
		l := c.leader()
		c.mustPropose(l, benchCommand(99_000_000))
		c.settle()
		count := 0
		acknowledged.Range(func(id, _ any) bool {
			count++
			if got := outcomeOf(l, id.(ledger.TxnID)); got != ledger.Committed {
				t.Errorf("%s was acknowledged, and is %v", id, got)
			}
			return true
		})
		if count < 5*int(lasts/time.Second) {
			t.Errorf("only %d commits in %s", count, lasts)
		}
	})
}

// repeatUntilAnswered asks one node after the other, with the same request.
func repeatUntilAnswered(ctx context.Context, c *cluster, mu *sync.Mutex, cmd ledger.Command) bool {
	for i := 0; ctx.Err() == nil; i++ {
		mu.Lock()
		r := c.running[nodeIDs[i%len(nodeIDs)]]
		mu.Unlock()
		if r != nil {
			one, cancel := context.WithTimeout(ctx, time.Second)
			got, err := r.Propose(one, cmd)
			cancel()
			if err == nil {
				return got.OK()
			}
		}
		time.Sleep(20 * time.Millisecond) // virtual
	}
	return false
}
