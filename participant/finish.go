package participant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// idleReport is how long proofs wait for a vote to carry them.
const idleReport = 500 * time.Millisecond

// attemptLimit bounds one call of Commit or Rollback, after which its outcome is unknown and it is
// called again.
const attemptLimit = 30 * time.Second

// lane finishes one resource's branches: commits the decided ones in order, each proven before the
// next (P6), and after the close rolls back what lies above its final epoch (P17). It returns when
// nothing is left after the close.
func (g *generation) lane(ctx context.Context, alias string) {
	r := g.m.cfg.Resources[alias]
	for {
		e, s, want := g.nextBranch(ctx, alias)
		if s == nil {
			return
		}
		proof, err := g.bring(ctx, r, s.vote.Handle, want, branchOfEpoch{&unisinkv1.Epoch{Generation: g.id, N: e.n}, g.m.cfg.Member, alias})
		if err != nil {
			return // the next generation, or the next process, goes on by handle
		}
		g.resolved(ctx, e, s, want, proof)
	}
}

// inOrder is the order in which epochs are finished: theirs.
func inOrder(epochs []*epoch) []*epoch {
	if mutant.On("participant/finish-in-order") {
		epochs = slices.Clone(epochs)
		slices.Reverse(epochs)
	}
	return epochs
}

// nextBranch waits for the next branch that a lane may finish, and says how; nil when there will be none.
func (g *generation) nextBranch(ctx context.Context, alias string) (*epoch, *share, Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var e *epoch
	var s *share
	want := verdictUnset
	err := g.until(ctx, func() bool {
		e, s, want = nil, nil, verdictUnset
		settled := g.end.closed && g.end.settled
		for _, candidate := range inOrder(g.epochs) {
			found := candidate.shares[alias]
			if found == nil || found.resolved {
				continue
			}
			if candidate.ballot == nil && !settled {
				return false // still being prepared
			}
			if found.vote.Handle.Name == "" {
				continue // nothing was prepared
			}
			if candidate.n <= g.outcome {
				e, s, want = candidate, found, Committed
				return true
			}
			if settled {
				e, s, want = candidate, found, RolledBack
				return true
			}
			return false // in order: nothing later before this one
		}
		return settled
	})
	if err != nil {
		return nil, nil, verdictUnset
	}
	return e, s, want
}

// bring makes a prepared branch end as wanted, again and again until the resource shows a proof.
// Errors never change the verdict: a time-out, a lost answer, even "fenced" mean that it is asked
// again, with growing waits, which t is told of. Errors of the kinds in final are returned.
func bring(ctx context.Context, logger *slog.Logger, t *troubles, r Resource, h Handle, want Verdict, final ...error) (Proof, error) {
	call, what := r.Commit, "commit"
	if want == RolledBack {
		call, what = r.Rollback, "roll back"
	}
	trying := what + " branch " + h.Name
	defer t.over(trying, h.Alias)
	pause := newResourceBackOff()
	var last error
	for attempt := 1; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, attemptLimit)
		proof, err := call(limited, h)
		cancel()
		switch {
		case err == nil && (proof.Verdict == Committed || proof.Verdict == RolledBack):
			return proof, nil
		case ctx.Err() != nil:
			return Proof{}, cutShort(ctx, last)
		case err == nil:
			err = errors.New("the answer proves nothing")
		case isAny(err, final...):
			return Proof{}, err
		}
		wait := pause.NextBackOff()
		if later := (*RetryAfter)(nil); errors.As(err, &later) {
			wait = max(wait, later.After)
		}
		t.note(trying, h.Alias, err)
		log := logger.WarnContext
		if forPeople(err) {
			log = logger.ErrorContext // a person must act; until then it is in doubt, never given up
		}
		log(ctx, "branch not finished, trying again", obs.Command(what), obs.Resource(h.Alias), obs.Branch(h.Name),
			obs.Attempt(attempt), obs.Next(wait), obs.Err(err))
		if last = err; !route.Sleep(ctx, wait) {
			return Proof{}, cutShort(ctx, last)
		}
	}
}

// cutShort is why something was tried no longer, with what was last answered, for people.
func cutShort(ctx context.Context, last error) error {
	if last == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w; it was tried until then, and the last answer was: %s", context.Cause(ctx), last.Error())
}

// resolved notes the proof of a branch. One that shows the opposite of the verdict is a heuristic
// outcome, which is told at once and never corrected here.
func (g *generation) resolved(ctx context.Context, e *epoch, s *share, want Verdict, proof Proof) {
	kept := proof.Verdict == want
	if !kept {
		g.m.log.ErrorContext(ctx, "heuristic outcome: the resource shows the opposite of the verdict",
			obs.Epoch(g.id, e.n), obs.Resource(s.alias), obs.Branch(s.vote.Handle.Name), obs.Proof(proof.Evidence))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.resolved, s.kept = true, kept
	if !kept {
		g.work.heuristics = append(g.work.heuristics, &unisinkv1.BranchProof{
			Epoch: &unisinkv1.Epoch{Generation: g.id, N: e.n}, Member: g.m.cfg.Member, Resource: s.alias, Proof: proofToWire(proof),
		})
	}
	g.advance()
	g.note()
}

// finished waits until nothing of a closed generation is left to finish. False: ctx ended first.
func (g *generation) finished(ctx context.Context) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until(ctx, g.allResolved) == nil
}

// allResolved reports whether no prepared branch is left to finish; with mu held.
func (g *generation) allResolved() bool {
	for _, e := range g.epochs {
		for _, s := range e.shares {
			if s.vote.Handle.Name != "" && !s.resolved {
				return false
			}
		}
	}
	return true
}

// settle prepares the end of a closed generation: what was never prepared is dropped. A branch whose
// Prepare was cut short may be prepared all the same; then its handle is fetched, so that the lane
// rolls it back.
func (g *generation) settle(ctx context.Context) {
	g.mu.Lock()
	var cut []*share
	for _, e := range g.epochs {
		if e.n <= g.outcome {
			continue
		}
		for _, s := range e.shares {
			if s.vote.Kind != Yes && s.branch != nil {
				cut = append(cut, s)
			}
		}
	}
	g.mu.Unlock()
	for _, s := range cut {
		limited, cancel := context.WithTimeout(ctx, attemptLimit)
		if err := s.branch.Discard(limited); errors.Is(err, ErrPrepared) {
			vote, err := s.branch.Prepare(limited)
			if err != nil || vote.Kind != Yes {
				g.m.log.WarnContext(ctx, "a prepared branch did not tell its handle; the next generation's listing finds it",
					obs.Gen(g.id), obs.Resource(s.alias), obs.Err(err))
			} else {
				g.mu.Lock()
				s.vote = vote
				g.note()
				g.mu.Unlock()
			}
		}
		cancel()
	}
	g.dropUnprepared(ctx)
	g.mu.Lock()
	g.end.settled = true
	g.note()
	g.mu.Unlock()
}

// reportProofs tells a leader what is proven when no vote does so soon: at once when the leader may
// be waiting for it, else after a while.
func (g *generation) reportProofs(ctx context.Context) {
	for {
		g.mu.Lock()
		err := g.until(ctx, func() bool { return g.proven > g.told || len(g.work.heuristics) > 0 || g.drained() })
		seen, urgent, done := g.proven, g.urgent(), g.drained() && g.proven <= g.told && len(g.work.heuristics) == 0
		g.mu.Unlock()
		if err != nil || done {
			return
		}
		if !urgent && !g.quiet(ctx, seen) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		g.tellProofs(ctx)
	}
}

// urgent reports whether the proofs should not wait for a vote; with mu held. With no room left the
// leader orders no barrier before it hears of a proof, so no vote would come to carry it, unless
// one is on its way.
func (g *generation) urgent() bool {
	return len(g.work.heuristics) > 0 || g.end.over || g.barrier.final ||
		g.voted-g.told >= g.set.maxPending && g.answeredTo >= g.voted
}

// drained reports whether the generation is closed and nothing is left to finish; with mu held.
func (g *generation) drained() bool {
	return g.end.closed && g.end.settled && g.allResolved()
}

// quiet waits for a vote to carry the proofs through seen. True: none did, or it became urgent.
func (g *generation) quiet(ctx context.Context, seen uint64) bool {
	limited, cancel := context.WithTimeout(ctx, idleReport)
	defer cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.until(limited, func() bool { return g.told >= seen || g.urgent() })
	return err != nil || g.urgent()
}

// tellLast tells a leader what is proven when the process goes and no vote will carry it, so that nothing seems unfinished
// that is done. It is a courtesy, as the leave behind it: the next restore proves it again.
func (g *generation) tellLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	g.mu.Lock()
	owed := g.proven > g.told || len(g.work.heuristics) > 0
	g.mu.Unlock()
	if owed {
		g.tellProofs(ctx)
	}
}

// tellProofs sends what is proven until it is answered. An answer that refuses ends the attempt:
// what the coordinator does not hold as proven it lists in the next Restore.
func (g *generation) tellProofs(ctx context.Context) {
	g.mu.Lock()
	req := &unisinkv1.ResolvedRequest{
		Meta: g.m.newMeta(), Scope: g.m.scope(), Member: g.m.cfg.Member, Instance: g.m.cfg.Instance,
		Generation: g.id, ProvenThrough: g.proven, Proofs: g.work.heuristics,
	}
	g.mu.Unlock()
	err := g.m.answer(ctx, func(ctx context.Context, l *link) error {
		_, err := l.session.Resolved(ctx, req)
		return err
	})
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, ErrFenced) {
		g.m.end(err)
		return
	}
	if err != nil {
		g.m.log.WarnContext(ctx, "report of proofs refused", obs.Epoch(g.id, req.GetProvenThrough()), obs.Err(err))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = max(g.told, req.GetProvenThrough())
	g.work.heuristics = g.work.heuristics[len(req.GetProofs()):]
	g.note()
}
