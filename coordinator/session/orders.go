package session

import (
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Inline state in a vote: all votes of an epoch share one entry of the log.
const (
	entryBudget = 512 << 10
	maxInline   = 64 << 10
)

// order is an order; push gives it its term.
type order = *unisinkv1.Order

func orderWelcome(namespace string, incarnation uint64, l *unisinkv1.Lease) order {
	w := &unisinkv1.Welcome{Namespace: namespace, Incarnation: incarnation, Lease: l}
	return &unisinkv1.Order{Order: &unisinkv1.Order_Welcome{Welcome: w}}
}

func orderWaiting(why string) order {
	return &unisinkv1.Order{Order: &unisinkv1.Order_Waiting{Waiting: &unisinkv1.Waiting{For: why}}}
}

func orderBarrier(e ledger.Epoch, final, drain bool) order {
	b := &unisinkv1.Barrier{Epoch: wire.FromEpoch(e), Final: final, Drain: drain}
	return &unisinkv1.Order{Order: &unisinkv1.Order_Barrier{Barrier: b}}
}

func orderCommitted(e ledger.Epoch) order {
	return &unisinkv1.Order{Order: &unisinkv1.Order_Committed{Committed: &unisinkv1.Committed{Epoch: wire.FromEpoch(e)}}}
}

func orderClose(g ledger.Generation, final uint64, cause string) order {
	c := &unisinkv1.Close{Generation: uint64(g), Final: final, Cause: cause}
	return &unisinkv1.Order{Order: &unisinkv1.Order_Close{Close: c}}
}

func orderStop(cause string) order {
	return &unisinkv1.Order{Order: &unisinkv1.Order_Stop{Stop: &unisinkv1.Stop{Cause: cause}}}
}

func orderFenced(cause string) order {
	return &unisinkv1.Order{Order: &unisinkv1.Order_Fenced{Fenced: &unisinkv1.Fenced{Cause: cause}}}
}

func orderRetired(g ledger.Generation, parts []string) order {
	r := &unisinkv1.Retired{Generation: uint64(g), Parts: parts}
	return &unisinkv1.Order{Order: &unisinkv1.Order_Retired{Retired: r}}
}

func orderVoteAgain(st *unisinkv1.Stamp) order {
	return &unisinkv1.Order{Order: &unisinkv1.Order_VoteAgain{VoteAgain: &unisinkv1.VoteAgain{Stamp: st}}}
}

// orderStart says that every member is ready.
func orderStart(g ledger.Generation, p ledger.Pipeline, members int) order {
	s := &unisinkv1.Start{
		Generation: uint64(g), MaxPending: p.Settings.MaxPending,
		EpochIntervalMs: p.Settings.EpochInterval, PrepareTimeoutMs: p.Settings.PrepareTimeout,
		InlineLimit: inlineLimit(p, members), Solo: members == 1,
	}
	return &unisinkv1.Order{Order: &unisinkv1.Order_Start{Start: s}}
}

// inlineLimit is a member's share of an entry once the handles of all resources have their room.
func inlineLimit(p ledger.Pipeline, members int) uint32 {
	resources := 0
	for _, m := range p.Members {
		resources += len(m.Resources)
	}
	return uint32(min(max((entryBudget-resources*ledger.MaxHandle)/max(members, 1), 0), maxInline))
}

// orderRestore is a member's share of what the opening entry answered.
func orderRestore(o *ledger.Opened, member string) order {
	r := &unisinkv1.Restore{Generation: uint64(o.Generation), KeptParts: o.KeptParts}
	if p := o.RestorePoint; p != nil {
		r.RestorePoint = wire.FromEpoch(p.Epoch)
		for _, v := range p.Votes {
			if v.Member == member {
				r.Positions, r.Parts = wire.FromPositions(v.Positions), wire.FromParts(v.Parts)
			}
		}
	}
	for _, u := range o.Unfinished {
		if u.Branch.Member == member {
			r.Unfinished = append(r.Unfinished, &unisinkv1.Unfinished{
				Epoch: wire.FromEpoch(u.Epoch), Member: member, Resource: u.Branch.Resource, Handle: wire.FromHandle(u.Handle),
			})
		}
	}
	for _, d := range o.Debts {
		if d.Branch.Member == member {
			r.Debts = append(r.Debts, &unisinkv1.Debt{Generation: uint64(d.Generation), Member: member, Resource: d.Branch.Resource})
		}
	}
	return &unisinkv1.Order{Order: &unisinkv1.Order_Restore{Restore: r}}
}

// leaseNow is a lease that begins now.
func (s *scope) leaseNow() *unisinkv1.Lease {
	return &unisinkv1.Lease{DurationMs: s.leaseTime().Milliseconds(), Stamp: s.r.stamp()}
}

func (s *scope) leaseTime() time.Duration { return ms(s.seen.pipeline.Settings.Lease) }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
