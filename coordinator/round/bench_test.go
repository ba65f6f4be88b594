package round

import (
	"fmt"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// BenchmarkEpoch runs whole epochs: the barrier, every member's vote with one branch and a deadline,
// the decision and every member's proof.
func BenchmarkEpoch(b *testing.B) {
	for _, members := range []int{1, 3, 16} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			c := Config{
				Scope: ledger.ScopeID{Pipeline: "orders"}, Generation: 7, Interval: 100 * time.Millisecond,
				PrepareTimeout: 30 * time.Second, CommitBudget: 10 * time.Second, MaxPending: 2, Term: 1,
			}
			for i := range members {
				c.Members = append(c.Members, Member{Name: fmt.Sprintf("member-%d", i), Instance: "1", Source: i == 0})
			}
			now := Time(0)
			m := New(c, now)
			branches := []ledger.Prepared{{Resource: "out", Handle: ledger.Handle{Name: "branch", Body: make([]byte, 100)}}}
			left := []TimeLeft{{Resource: "out", Left: time.Minute}}
			for _, who := range c.Members {
				m.Attached(who.Name, Standing{}, now)
			}
			b.ReportAllocs()
			for n := uint64(1); b.Loop(); n++ {
				m.Work("member-0", true, false, now)
				now = now.Add(c.Interval)
				if len(m.Tick(now)) != 1 {
					b.Fatalf("epoch %d: no barrier", n)
				}
				var orders []Order
				for _, who := range c.Members {
					orders = m.Vote(who.Name, "1", Vote{
						N: n, Kind: Yes, Ledger: ledger.Vote{Branches: branches},
						TimeLeft: left, Stamp: Stamp{Term: 1, Clock: now},
					}, now)
				}
				if len(orders) != 1 {
					b.Fatalf("epoch %d: no proposal", n)
				}
				m.Decided(n, false, now)
				for _, who := range c.Members {
					m.Proven(who.Name, n, now)
				}
			}
		})
	}
}
