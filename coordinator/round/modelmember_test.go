package round

import (
	"fmt"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// deliverOrder hands a member the next order of its stream.
func (w *world) deliverOrder(p *simMember) {
	s := p.stream[0]
	p.stream = p.stream[1:]
	p.stamp = s.stamp
	switch o := s.order.(type) {
	case SendBarrier:
		w.barrier(p, o)
	case SendCommitted:
		p.outcome = max(p.outcome, o.N)
	case VoteAgain:
		for n := p.outcome + 1; n <= p.voted; n++ {
			w.sendVote(p, n)
		}
	case ProposeDecide, ProposeClose, AllProven:
	}
}

// barrier reaches a source.
func (w *world) barrier(p *simMember, o SendBarrier) {
	switch {
	case w.shape.solo:
		p.wantLast = p.finalAt == 0
	case o.N <= p.newest:
	case o.N > p.newest+1:
		w.fail("%s is ordered barrier %d, it has seen %d", p.name, o.N, p.newest)
	default:
		w.inject(p, o.N, o.Final)
	}
}

func (w *world) inject(p *simMember, n uint64, final bool) {
	if known, ok := w.barriers[n]; ok && known != final {
		w.fail("barrier %d is ordered final and not final", n)
	}
	if p.finalAt != 0 {
		w.fail("%s gets barrier %d after the final one", p.name, n)
	}
	w.barriers[n] = final
	for _, other := range w.members {
		if n > other.proven+uint64(w.shape.pending) {
			w.fail("barrier %d is ordered, but %s has proven %d", n, other.name, other.proven)
		}
	}
	p.newest, p.covered = n, p.moved
	if final {
		p.finalAt = n
	}
	w.note("%s has barrier %d final %v", p.name, n, final)
}

// mayBegin: the one member may begin its next epoch.
func (w *world) mayBegin(p *simMember) bool {
	return w.shape.solo && p.finalAt == 0 && p.newest < p.proven+uint64(w.shape.pending) && (p.moved > p.covered || p.wantLast)
}

// begin is the one member's own barrier.
func (w *world) begin(p *simMember) { w.inject(p, p.newest+1, p.wantLast) }

// maySee: the next barrier has come through from every source.
func (w *world) maySee(p *simMember) bool {
	if p.source {
		return false
	}
	for _, s := range w.members {
		if s.source && s.newest <= p.newest {
			return false
		}
	}
	return true
}

func (w *world) see(p *simMember) { w.inject(p, p.newest+1, w.barriers[p.newest+1]) }

func (w *world) move(p *simMember) {
	p.moved++
	w.send(p, call{member: p.name, kind: callWork})
}

// vote gives the member's next vote; its branch is kept for so long, 0: for ever.
func (w *world) vote(p *simMember, keep time.Duration) {
	n := p.voted + 1
	v := Vote{N: n, Kind: Yes, Final: w.barriers[n], Ledger: ledger.Vote{Member: p.name, Instance: p.name}}
	if p.source {
		v.Kind = ReadOnly
		v.Ledger.Positions = []ledger.Position{{Resource: "in", Offset: p.moved}}
	} else {
		v.Ledger.Branches = []ledger.Prepared{{Resource: "out", Handle: ledger.Handle{Name: fmt.Sprintf("%s.%d", p.name, n)}}}
	}
	promised := promise{vote: v}
	if keep > 0 {
		promised.end = w.now.Add(keep)
	}
	p.promises[n], p.voted = promised, n
	w.sendVote(p, n)
}

// prove commits what is decided, and says so once.
func (w *world) prove(p *simMember) {
	p.proven = p.outcome
	w.send(p, call{member: p.name, kind: callProven, n: p.proven})
}
