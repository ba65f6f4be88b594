package round_test

import (
	"fmt"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/round"
)

// One epoch of a source and a sink: barrier, votes, decision, proof, and the barrier after it.
func Example() {
	now := round.Time(0)
	m := round.New(round.Config{
		Scope: ledger.ScopeID{Pipeline: "orders"}, Generation: 7,
		Members: []round.Member{
			{Name: "source", Instance: "p1", Source: true},
			{Name: "sink", Instance: "p2"},
		},
		Interval: time.Second, PrepareTimeout: 30 * time.Second, CommitBudget: 10 * time.Second,
		MaxPending: 2, Term: 3,
	}, now)
	show := func(orders []round.Order) {
		for _, o := range orders {
			switch o := o.(type) {
			case round.SendBarrier:
				fmt.Println(time.Duration(now), "barrier", o.N, "to", o.To)
			case round.ProposeDecide:
				fmt.Println(time.Duration(now), "propose", o.Decide.Epoch, "with", len(o.Decide.Votes), "votes")
			case round.SendCommitted:
				fmt.Println(time.Duration(now), "committed", o.N, "to", o.To)
			}
		}
	}
	show(m.Attached("source", round.Standing{}, now))
	show(m.Attached("sink", round.Standing{}, now))
	show(m.Work("source", true, false, now))

	now, _ = m.NextWake()
	show(m.Tick(now))
	show(m.Vote("source", "p1", round.Vote{N: 1, Kind: round.ReadOnly, Ledger: ledger.Vote{
		Positions: []ledger.Position{{Resource: "topic", Split: "0", Offset: 42}},
	}}, now))
	now = now.Add(50 * time.Millisecond)
	show(m.Vote("sink", "p2", round.Vote{
		N: 1, Kind: round.Yes, Stamp: round.Stamp{Term: 3, Clock: now},
		TimeLeft: []round.TimeLeft{{Resource: "out", Left: time.Minute}},
		Ledger:   ledger.Vote{Branches: []ledger.Prepared{{Resource: "out", Handle: ledger.Handle{Name: "out-1"}}}},
	}, now))
	show(m.Decided(1, false, now))

	show(m.Work("source", true, false, now))
	now, _ = m.NextWake()
	show(m.Tick(now))
	// Output:
	// 1s barrier 1 to [source]
	// 1.05s propose 7.1 with 2 votes
	// 1.05s committed 1 to [source sink]
	// 2s barrier 2 to [source]
}
