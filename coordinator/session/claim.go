package session

import (
	"context"
	"fmt"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// claim is a decision that a member was told, and that the ledger does not have. Nothing is told
// before it is applied, and this leader has applied all that was committed before its term: so the
// ledger has gone back, and going on would write a second time what readers have already seen.
type claim struct {
	member, instance string
	epoch            ledger.Epoch
	standing         *unisinkv1.Standing // of an attachment that waits for the answer
	confirmed        bool                // looked up again behind a Barrier
	flying           bool
	again            time.Time
}

// newestTold is the last epoch of which a member says that it is decided; N is 0 when none is.
func newestTold(st *unisinkv1.Standing) ledger.Epoch {
	return ledger.Epoch{Generation: ledger.Generation(st.GetGeneration()), N: max(st.GetNewestOutcome(), st.GetProvenThrough())}
}

// contradicts reports that the ledger does not have what a member was told. What was already so
// when an operator resumed the scope is no news.
func (s *scope) contradicts(told ledger.Epoch) (found bool) {
	if told.Generation == 0 || mutant.On("session/lost-decisions-halt") {
		return false
	}
	s.r.m.c.Log.View(func(l *ledger.Machine) {
		g, _ := l.Newest(s.id)
		switch {
		case told.Generation <= l.Resumed(s.id):
		case told.Generation > g.Generation:
			found = true
		case told.N > 0:
			found = l.EpochOutcome(s.id, told) != ledger.Committed
		}
	})
	return found
}

// contradict begins to halt the scope. Until that is done no generation is opened.
func (s *scope) contradict(ctx context.Context, m *member, told ledger.Epoch, st *unisinkv1.Standing) {
	if s.claim != nil || s.gen == nil && s.seen.halted != "" {
		return
	}
	s.claim = &claim{member: m.name, instance: m.instance, epoch: told, standing: st}
	s.r.m.c.Logger.ErrorContext(ctx, "a member was told of what the ledger does not have",
		obs.Scope(s.id.String()), obs.Member(m.name), obs.Instance(m.instance), obs.Epoch(uint64(told.Generation), told.N))
}

// stepClaim looks again behind a Barrier, then halts the scope, however often that must be proposed.
func (s *scope) stepClaim(ctx context.Context, now time.Time) {
	c := s.claim
	if c == nil || c.flying || now.Before(c.again) {
		return
	}
	switch g := s.gen; {
	case !c.confirmed:
		s.confirm(ctx, c)
	case g == nil && s.seen.halted != "":
		s.claim = nil
	case g == nil:
		s.proposeHalt(ctx, c)
	case !g.closing:
		why := s.lostDecisions(c)
		s.closeHalting(ctx, g, why, why)
	}
}

func (s *scope) confirm(ctx context.Context, c *claim) {
	c.flying = true
	s.flying++
	s.r.work.Go(func() {
		err := s.r.m.c.Log.Barrier(ctx)
		select {
		case s.in <- func(ctx context.Context) { s.flying--; s.confirmed(ctx, c, err) }:
		case <-s.r.over:
		}
	})
}

func (s *scope) confirmed(ctx context.Context, c *claim, err error) {
	c.flying = false
	if err != nil {
		c.again = time.Now().Add(retryDelay)
		return
	}
	s.refresh(ctx)
	if c.confirmed = s.contradicts(c.epoch); c.confirmed {
		return
	}
	s.claim = nil
	if m := s.members[c.member]; m != nil && m.instance == c.instance && m.present() && c.standing != nil {
		s.place(ctx, m, c.standing)
	}
}

// proposeHalt halts a scope whose newest generation is closed, or that has none.
func (s *scope) proposeHalt(ctx context.Context, c *claim) {
	why := s.lostDecisions(c)
	c.flying = true
	b := ledger.CloseGeneration{Scope: s.id, Generation: s.seen.newest.Generation, Cause: why, Halt: why}
	s.propose(ctx, b, func(ctx context.Context, res ledger.Result, err error) {
		c.flying = false
		s.refresh(ctx)
		if err != nil || !res.OK() {
			c.again = time.Now().Add(retryDelay)
		}
	})
}

// lostDecisions is the reason of the halt: what was said, what is there, and what can be done.
func (s *scope) lostDecisions(c *claim) string {
	said := fmt.Sprintf("epoch %s was decided", c.epoch)
	if c.epoch.N == 0 {
		said = fmt.Sprintf("generation %d was opened", c.epoch.Generation)
	}
	has := fmt.Sprintf("the ledger never opened generation %d, its newest is %d", c.epoch.Generation, s.seen.newest.Generation)
	if s.seen.newest.Generation == 0 {
		has = "the ledger has no generation of this scope"
	} else if c.epoch.Generation <= s.seen.newest.Generation {
		final, _ := s.lookUp(c.epoch.Generation)
		has = fmt.Sprintf("the last that the ledger has of generation %d is %d", c.epoch.Generation, final)
	}
	return fmt.Sprintf("member %s (instance %s) was told that %s, but %s: the ledger has lost decisions, for instance with an emptied or restored data directory. "+
		"Either stop the coordinator nodes and bring back their newest data directories or backup; or compare the outputs with the ledger (unisink verify), "+
		"take out what is too much, and resume from a restore point: what was decided after it is written again", c.member, c.instance, said, has)
}

// claimed is the refusal of what reports proofs of epochs that were never decided, nil if it does
// not. Only the holder of a name is believed.
func (s *scope) claimed(ctx context.Context, name, instance string, told ...ledger.Epoch) error {
	m := s.members[name]
	if m == nil || m.instance != instance {
		return nil
	}
	for _, e := range told {
		if s.contradicts(e) {
			s.contradict(ctx, m, e, nil)
			return refuse(grpcerr.Contradicts, nil, "scope %s never decided epoch %s, of which member %s reports a proof", s.id, e, name)
		}
	}
	return nil
}

// committedIn lists the epochs that proofs show committed.
func committedIn(proofs []*unisinkv1.BranchProof) []ledger.Epoch {
	var out []ledger.Epoch
	for _, p := range proofs {
		if p.GetProof().GetVerdict() == unisinkv1.Verdict_VERDICT_COMMITTED {
			out = append(out, wire.Epoch(p.GetEpoch()))
		}
	}
	return out
}
