package session

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/round"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/mutant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// maxTurnedAway proposals of an epoch may fail before the generation is closed: a decision that the
// log does not take, since it is too large for instance, must not be tried for ever. It is about ten seconds.
const maxTurnedAway = 100

// decision is the answer to a Decide.
type decision struct {
	outcome ledger.Outcome
	final   uint64
	cause   string
	over    bool // the leadership ended first
}

// obey carries out the orders of one event of the round machine. It gives the machine no event.
func (s *scope) obey(ctx context.Context, g *generation, orders []round.Order) {
	for _, o := range orders {
		switch o := o.(type) {
		case round.SendBarrier:
			e := ledger.Epoch{Generation: g.number, N: o.N}
			for _, name := range o.To {
				s.order(name, orderBarrier(e, o.Final, o.Drain))
			}
			s.event(eventlog.Barrier, e, "", "")
		case round.ProposeDecide:
			s.proposeDecide(ctx, g, o.Decide)
		case round.SendCommitted:
			for _, name := range o.To {
				s.order(name, orderCommitted(ledger.Epoch{Generation: g.number, N: o.N}))
			}
		case round.ProposeClose:
			s.proposeClose(ctx, g, o.Cause, o.Halt)
		case round.VoteAgain:
			s.order(o.Member, orderVoteAgain(s.r.stamp()))
		case round.AllProven:
			g.ended = true
		}
	}
}

func (s *scope) proposeDecide(ctx context.Context, g *generation, b ledger.Decide) {
	n := b.Epoch.N
	s.propose(ctx, b, func(ctx context.Context, res ledger.Result, err error) {
		if s.gen != g {
			return // closed meanwhile, and answered so
		}
		switch {
		case err != nil:
			if g.turnedAway++; g.turnedAway >= maxTurnedAway && !s.r.m.c.Unknown(err) {
				s.close(ctx, g, "epoch "+b.Epoch.String()+" cannot be proposed: "+err.Error())
				return
			}
			s.obey(ctx, g, g.machine.ProposalFailed(n, s.r.m.c.Unknown(err), s.now()))
			return
		case res.OK():
			s.decided(ctx, g, n, b.Final)
			return
		}
		s.refresh(ctx) // the refusal says that something else is in the log
		if s.gen != g || n <= g.final {
			return
		}
		if res.Refusal == ledger.Invalid || res.Refusal == ledger.Unsupported {
			s.close(ctx, g, "epoch "+b.Epoch.String()+" cannot be decided: "+res.Text)
			return
		}
		s.obey(ctx, g, g.machine.ProposalFailed(n, false, s.now()))
	})
}

// decided takes in an applied decision; a repeat is harmless.
func (s *scope) decided(ctx context.Context, g *generation, n uint64, final bool) {
	if n <= g.final {
		return
	}
	g.final, g.opened, g.turnedAway = n, nil, 0
	s.seen.newest.Final = n
	s.decidedAt = time.Now()
	g.answer(n, decision{outcome: ledger.Committed})
	if g.machine != nil {
		s.obey(ctx, g, g.machine.Decided(n, final, s.now()))
	}
}

// catchUp takes in decisions whose answers were lost, in their order.
func (s *scope) catchUp(ctx context.Context, final uint64) {
	for g := s.gen; g.final < final; {
		n := g.final + 1
		s.decided(ctx, g, n, s.wasFinal(g.number, n))
	}
}

// answer wakes the callers of Decide for every epoch through n.
func (g *generation) answer(through uint64, d decision) {
	for n, callers := range g.waiting {
		if n > through {
			continue
		}
		for _, c := range callers {
			c <- d // has room for its one answer
		}
		delete(g.waiting, n)
	}
}

// entitled checks that an instance speaks for its member in a generation that is open, and tells
// one whose generation is closed once more how it ended.
func (s *scope) entitled(name, instance string, gen ledger.Generation) (*generation, error) {
	if g := s.gen; g != nil && g.number == gen {
		switch holder := g.instance(name); {
		case holder == "":
			return nil, invalid("generation %d of scope %s has no member %q", gen, s.id, name)
		case holder != instance && !mutant.On("session/this-instance"):
			return nil, fenced("member %s of generation %d is instance %s, not %s; end this process", name, gen, holder, instance)
		}
		return g, nil
	}
	if gen == 0 || gen > s.seen.newest.Generation {
		return nil, invalid("scope %s has no generation %d; the newest is %d", s.id, gen, s.seen.newest.Generation)
	}
	final, cause := s.lookUp(gen)
	m := s.members[name]
	if m != nil && m.instance == instance {
		if m.stream != nil && m.generation == gen {
			s.push(m.stream, orderClose(gen, final, cause))
		}
	} else if m != nil && m.living() {
		return nil, s.stranger(name, instance)
	}
	return nil, closedStatus(gen, final, cause)
}

// vote hands a vote to the round. again: it was measured against another term's stamp.
func (s *scope) vote(ctx context.Context, req *unisinkv1.VoteRequest) (g *generation, again bool, err error) {
	v := req.GetVote()
	epoch := wire.Epoch(v.GetEpoch())
	if epoch.N == 0 || roundKind(v.GetKind()) == 0 {
		return nil, false, invalid("a vote needs an epoch and a kind")
	}
	g, err = s.entitled(req.GetMember(), req.GetInstance(), epoch.Generation)
	if err != nil {
		return nil, false, err
	}
	s.hear(req.GetMember(), req.GetInstance())
	if bad := s.foreign(ctx, g, req.GetMember(), req.GetInstance(), v); bad != "" {
		return nil, false, invalid("%s", bad)
	}
	if n := v.GetProvenThrough(); n > g.final {
		if err := s.claimed(ctx, req.GetMember(), req.GetInstance(), ledger.Epoch{Generation: g.number, N: n}); err != nil {
			return nil, false, err
		}
	}
	if g.machine == nil && demandsClose(v.GetKind()) {
		s.failBeforeStart(ctx, g, req.GetMember(), v)
		return g, false, nil
	}
	s.start(ctx, g) // whoever votes was started, so every member was ready
	s.event(eventlog.Vote, epoch, req.GetMember(), roundKind(v.GetKind()).String())
	orders := g.machine.Vote(req.GetMember(), req.GetInstance(), roundVote(req.GetMember(), req.GetInstance(), v), s.now())
	rest := make([]round.Order, 0, len(orders))
	for _, o := range orders {
		if va, ok := o.(round.VoteAgain); ok && va.Member == req.GetMember() {
			again = true
			continue
		}
		rest = append(rest, o)
	}
	s.obey(ctx, g, rest)
	return g, again, nil
}

func demandsClose(k unisinkv1.VoteKind) bool {
	return k == unisinkv1.VoteKind_VOTE_KIND_NO || k == unisinkv1.VoteKind_VOTE_KIND_LOST
}

// failBeforeStart closes a generation in which a member could not restore.
func (s *scope) failBeforeStart(ctx context.Context, g *generation, member string, v *unisinkv1.Vote) {
	if g.closing {
		return
	}
	halt := ""
	if needsOperator(v.GetReasonClass()) {
		halt = cmp.Or(v.GetReason(), "a member asked for an operator and gave no reason")
	}
	s.proposeClose(ctx, g, fmt.Sprintf("member %s could not restore: %s", member, v.GetReason()), halt)
}

// Vote takes a member's promise; the answer says nothing of the decision.
func (m *Manager) Vote(ctx context.Context, req *unisinkv1.VoteRequest) (*unisinkv1.VoteResponse, error) {
	resp := &unisinkv1.VoteResponse{}
	err := m.ask(ctx, wire.Scope(req.GetScope()), func(ctx context.Context, s *scope) (err error) {
		_, resp.SendAgain, err = s.vote(ctx, req)
		resp.Stamp = s.r.stamp()
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Decide takes the vote of a scope's one member and answers with the decision. When ctx ends the
// outcome is unknown to the caller, who asks again.
func (m *Manager) Decide(ctx context.Context, req *unisinkv1.DecideRequest) (*unisinkv1.DecideResponse, error) {
	var resp *unisinkv1.DecideResponse
	answer := make(chan decision, 1)
	r, err := m.current()
	if err != nil {
		return nil, err
	}
	err = m.ask(ctx, wire.Scope(req.GetVote().GetScope()), func(ctx context.Context, s *scope) (err error) {
		resp, err = s.decide(ctx, req.GetVote(), answer)
		return err
	})
	if err != nil || resp != nil {
		return resp, err
	}
	select {
	case d := <-answer:
		if d.over {
			return nil, m.c.NotLeader()
		}
		return &unisinkv1.DecideResponse{Outcome: wire.FromOutcome(d.outcome), Final: d.final, Cause: d.cause, Stamp: r.stamp()}, nil
	case <-ctx.Done():
		return nil, ctxStatus(ctx.Err())
	case <-r.over:
		return nil, m.c.NotLeader()
	}
}

// decide answers at once what is decided already; otherwise the answer comes later, and nil now.
func (s *scope) decide(ctx context.Context, req *unisinkv1.VoteRequest, answer chan<- decision) (*unisinkv1.DecideResponse, error) {
	epoch := wire.Epoch(req.GetVote().GetEpoch())
	g, err := s.entitled(req.GetMember(), req.GetInstance(), epoch.Generation)
	if g == nil {
		return s.decideClosed(req, err)
	}
	if len(g.members) != 1 {
		return nil, invalid("scope %s has %d members; they vote and wait for Committed", s.id, len(g.members))
	}
	if epoch.N > 0 && epoch.N <= g.final {
		// The member takes for heard what the vote says of proofs; a generation that waits for them would wait for ever.
		if k := roundKind(req.GetVote().GetKind()); (k == round.Yes || k == round.ReadOnly) && !mutant.On("session/late-vote-proves") {
			if _, _, err := s.vote(ctx, req); err != nil {
				return nil, err
			}
		}
		return &unisinkv1.DecideResponse{Outcome: unisinkv1.Outcome_OUTCOME_COMMITTED, Stamp: s.r.stamp()}, nil
	}
	_, again, err := s.vote(ctx, req)
	if err != nil {
		return nil, err
	}
	if again {
		return &unisinkv1.DecideResponse{Outcome: unisinkv1.Outcome_OUTCOME_PENDING, Stamp: s.r.stamp(), SendAgain: true}, nil
	}
	g.waiting[epoch.N] = append(g.waiting[epoch.N], answer)
	return nil, nil
}

// decideClosed answers for a generation that is closed, for which every outcome is known. A process
// whose place was taken hears why the call was refused instead.
func (s *scope) decideClosed(req *unisinkv1.VoteRequest, refused error) (*unisinkv1.DecideResponse, error) {
	if reason, _ := grpcerr.Reason(refused); reason != grpcerr.Closed {
		return nil, refused
	}
	epoch := wire.Epoch(req.GetVote().GetEpoch())
	final, cause := s.lookUp(epoch.Generation)
	resp := &unisinkv1.DecideResponse{Outcome: unisinkv1.Outcome_OUTCOME_ABORTED, Final: final, Cause: cause, Stamp: s.r.stamp()}
	if epoch.N <= final {
		resp.Outcome = unisinkv1.Outcome_OUTCOME_COMMITTED
	}
	return resp, nil
}

// roundKind reads the kind of a vote; 0 is none.
func roundKind(k unisinkv1.VoteKind) round.VoteKind {
	switch k {
	case unisinkv1.VoteKind_VOTE_KIND_YES:
		return round.Yes
	case unisinkv1.VoteKind_VOTE_KIND_READ_ONLY:
		return round.ReadOnly
	case unisinkv1.VoteKind_VOTE_KIND_NO:
		return round.No
	case unisinkv1.VoteKind_VOTE_KIND_LOST:
		return round.Lost
	case unisinkv1.VoteKind_VOTE_KIND_UNSPECIFIED:
	}
	return 0
}

func roundVote(member, instance string, v *unisinkv1.Vote) round.Vote {
	out := round.Vote{
		N: v.GetEpoch().GetN(), Kind: roundKind(v.GetKind()), Final: v.GetFinal(), Reason: v.GetReason(),
		Ledger: wire.Vote(member, instance, v),
		Stamp:  round.Stamp{Term: v.GetStamp().GetTerm(), Clock: round.Time(v.GetStamp().GetClockNs())},
		Halt:   needsOperator(v.GetReasonClass()),
	}
	for _, b := range v.GetBranches() {
		if b.TimeLeftMs != nil {
			out.TimeLeft = append(out.TimeLeft, round.TimeLeft{Resource: b.GetResource(), Left: ms(b.GetTimeLeftMs())})
		}
	}
	return out
}

// needsOperator reports a reason that a restart would meet again.
func needsOperator(c unisinkv1.ErrorClass) bool {
	return c == unisinkv1.ErrorClass_ERROR_CLASS_MISCONFIGURED || c == unisinkv1.ErrorClass_ERROR_CLASS_BUG ||
		c == unisinkv1.ErrorClass_ERROR_CLASS_UNDETERMINABLE
}

// standing is what a running member said of this generation when it attached.
func standing(g *generation, m *member, st *unisinkv1.Standing) round.Standing {
	out := round.Standing{
		NewestBarrier: st.GetNewestBarrier(), NewestFinal: st.GetNewestBarrierFinal(),
		NewestOutcome: st.GetNewestOutcome(), ProvenThrough: st.GetProvenThrough(),
	}
	for _, v := range st.GetVotes() {
		if wire.Epoch(v.GetEpoch()).Generation == g.number {
			out.Votes = append(out.Votes, roundVote(m.name, m.instance, v))
		}
	}
	return out
}
