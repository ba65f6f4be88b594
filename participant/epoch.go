package participant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// epoch is one epoch of a member, from its first branch to the proof of its last.
type epoch struct {
	n            uint64
	opened       time.Time // when its first branch was asked for
	final        bool
	contribution Contribution
	unready      error // of contribution.Ready; written before the ballot is fixed
	shares       map[string]*share
	// ballot is the vote once it is fixed, without what is measured anew at each sending. It is set
	// once and never changed (P8).
	ballot *unisinkv1.Vote
	again  bool // a leader asks for it to be measured again
}

// share is one resource's part of an epoch.
type share struct {
	alias string
	begun chan struct{} // closed when branch is set or failed is
	// branch and failed are written before begun is closed, vote before the ballot is fixed.
	branch Branch
	failed error
	vote   Vote
	// Guarded by the generation's mu.
	resolved bool
	kept     bool // proven as decided
}

func (e *epoch) all() []*share { return slices.Collect(maps.Values(e.shares)) }

// provenCommitted reports whether nothing of the epoch is left to prove, and all proofs are good.
func (e *epoch) provenCommitted() bool {
	if e.ballot == nil {
		return false
	}
	for _, s := range e.shares {
		if s.vote.Kind == Yes && !(s.resolved && s.kept) {
			return false
		}
	}
	return true
}

// Branch implements Run.
func (g *generation) Branch(ctx context.Context, alias string) (Branch, error) {
	r := g.m.cfg.Resources[alias]
	if r == nil {
		return nil, fmt.Errorf("%w: member %s has no resource %q", ErrBug, g.m.cfg.Member, alias)
	}
	g.mu.Lock()
	err := g.until(ctx, func() bool { return g.refuse() != nil || g.room(g.voted+1) && !g.held() })
	if err == nil {
		err = g.refuse()
	}
	if err != nil {
		g.mu.Unlock()
		return nil, err
	}
	if g.current == nil {
		g.current = &epoch{n: g.voted + 1, opened: time.Now(), shares: map[string]*share{}}
	}
	e := g.current
	s := e.shares[alias]
	if s == nil {
		s = &share{alias: alias, begun: make(chan struct{})}
		e.shares[alias] = s
		// On the generation's own time: the caller that asks first may give up before the others.
		g.writing.spawn(func(ctx context.Context) { g.begin(ctx, r, e, s) })
	}
	g.mu.Unlock()
	select {
	case <-s.begun:
		return s.branch, s.failed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// room reports whether epoch n may be pending beside those that are; called with mu held.
func (g *generation) room(n uint64) bool {
	return n-g.proven <= g.set.maxPending || mutant.On("participant/pending-bound")
}

// held reports whether the epoch being written has grown too old to be added to; called with mu
// held. Without it a member would write one epoch without end while no barrier comes: when no
// leader is there, or, for a member that takes barriers, when others can't finish.
func (g *generation) held() bool {
	e := g.current
	if e == nil {
		return false
	}
	age, lease := time.Since(e.opened), g.m.links.leaseTime()
	if age > g.set.interval && g.m.links.silent() {
		return true // until a leader is found again, which is noted
	}
	takes := g.set.solo || g.barrier.ordered > 0
	if !takes || g.barrier.newest >= e.n || age <= max(10*g.set.interval, lease) {
		return false
	}
	if !g.work.has {
		g.work.has = true // else no barrier would be ordered, and nothing else wakes the caller
		g.m.kick()
	}
	return true
}

// wake makes those who wait look again.
func (g *generation) wake() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note()
}

// begin starts a branch. What may pass is tried again; what does not ends the generation.
func (g *generation) begin(ctx context.Context, r Resource, e *epoch, s *share) {
	name := g.branchName(s.alias, e.n)
	err := g.m.retry(ctx, "begin a branch in", s.alias, func(ctx context.Context) error {
		b, err := r.Begin(ctx, name)
		if err == nil {
			s.branch = b
		}
		return err
	})
	if err == nil {
		close(s.begun)
		return
	}
	s.failed = fmt.Errorf("branch %s: %w", name, err)
	if ctx.Err() != nil {
		s.failed = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	close(s.begun)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, ErrFenced):
		g.suspect(ctx, s.failed)
	default:
		g.Fail(s.failed)
	}
}

func (g *generation) branchName(alias string, n uint64) BranchName {
	return BranchName{
		Namespace: g.m.namespace(), Pipeline: g.m.cfg.Pipeline, Shard: g.m.cfg.Shard, Member: g.m.cfg.Member,
		Resource: alias, Generation: g.id, N: n,
	}
}

// Vote implements Run. It waits as Branch does while too many epochs are pending.
func (g *generation) Vote(ctx context.Context, b Barrier, c Contribution) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.Generation != g.id {
		return fmt.Errorf("%w: barrier %d.%d is not of generation %d", ErrBug, b.Generation, b.N, g.id)
	}
	err := g.until(ctx, func() bool {
		return g.refuse() != nil || b.N != g.voted+1 || g.room(b.N)
	})
	if err == nil {
		err = g.refuse()
	}
	switch {
	case err != nil:
		return err
	case b.N <= g.voted:
		return nil
	case b.N != g.voted+1:
		return fmt.Errorf("%w: barrier %d.%d skips an epoch, the newest voted for is %d", ErrBug, g.id, b.N, g.voted)
	case g.barrier.final && b.N > g.barrier.newest:
		return fmt.Errorf("%w: barrier %d.%d comes after the final one, %d", ErrBug, g.id, b.N, g.barrier.newest)
	}
	e := g.current
	if e == nil {
		e = &epoch{n: b.N, shares: map[string]*share{}}
	}
	e.final, e.contribution = b.Final, c
	g.current, g.voted = nil, b.N
	g.epochs = append(g.epochs, e)
	if b.N > g.barrier.ordered {
		// A member that is no source learns of the barrier here, and this vote covers its work.
		g.barrier.newest, g.barrier.final = max(g.barrier.newest, b.N), g.barrier.final || b.Final
		g.work.has = false
	}
	g.note()
	g.writing.spawn(func(ctx context.Context) { g.prepare(ctx, e) })
	return nil
}

// prepare prepares the branches of an epoch side by side, fixes the vote and sends it.
func (g *generation) prepare(ctx context.Context, e *epoch) {
	limited, cancel := context.WithTimeoutCause(ctx, g.set.prepareTimeout,
		fmt.Errorf("not prepared within %s", g.set.prepareTimeout))
	defer cancel()
	var group sync.WaitGroup
	for _, s := range e.shares {
		group.Go(func() { s.vote = g.prepareShare(limited, s) })
	}
	if ready := e.contribution.Ready; ready != nil && !mutant.On("participant/state-before-vote") {
		group.Go(func() { e.unready = ready(limited) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return // closed: nothing of this vote has left
	}
	for _, s := range e.shares {
		if s.vote.Kind == No && errors.Is(s.vote.Reason, ErrFenced) {
			g.suspect(ctx, fmt.Errorf("prepare %s: %w", g.branchName(s.alias, e.n), s.vote.Reason))
			return
		}
	}
	ballot := g.fill(e)
	g.mu.Lock()
	e.ballot = ballot
	g.advance() // it may be decided by votes of ours that another leader kept
	g.note()
	g.mu.Unlock()
	g.deliver(ctx, e)
}

// prepareShare asks one branch for its vote. An error is no vote: whether it is prepared is not
// known, so it is asked again until the time is over.
func (g *generation) prepareShare(ctx context.Context, s *share) Vote {
	<-s.begun // the generation's end ends beginning too
	if s.failed != nil {
		return Vote{Kind: No, Reason: s.failed}
	}
	var vote Vote
	err := g.m.retry(ctx, "prepare the branch in", s.alias, func(ctx context.Context) error {
		var err error
		vote, err = s.branch.Prepare(ctx)
		return err
	})
	if err == nil {
		if err = checkVote(vote); err == nil {
			return vote
		}
		if vote.Kind == Yes {
			// It is prepared all the same: keep its handle, so that it is rolled back after the close.
			return Vote{Kind: No, Handle: vote.Handle, Reason: err}
		}
	}
	return Vote{Kind: No, Reason: err}
}

// fill makes the vote of an epoch out of those of its branches. Branches stand in the order of
// their names, so that every sending says the same.
func (g *generation) fill(e *epoch) *unisinkv1.Vote {
	v := &unisinkv1.Vote{
		Epoch: &unisinkv1.Epoch{Generation: g.id, N: e.n}, Kind: unisinkv1.VoteKind_VOTE_KIND_READ_ONLY, Final: e.final,
		Positions: positionsToWire(e.contribution.Positions), Parts: partsToWire(e.contribution.Parts),
	}
	var bad []error
	if e.unready != nil {
		bad = append(bad, fmt.Errorf("the state of epoch %d.%d is not durable: %w", g.id, e.n, e.unready))
	}
	if limit, size := g.set.inlineLimit, inlineBytes(e.contribution.Parts); limit > 0 && size > limit {
		bad = append(bad, fmt.Errorf("%w: the inline state takes %d bytes, this member may send %d; keep it in a store",
			ErrMisconfigured, size, limit))
	}
	lost := false
	shares := e.all()
	slices.SortFunc(shares, func(a, b *share) int { return strings.Compare(a.alias, b.alias) })
	for _, s := range shares {
		switch s.vote.Kind {
		case Yes:
			v.Kind = unisinkv1.VoteKind_VOTE_KIND_YES
			v.Branches = append(v.Branches, &unisinkv1.Prepared{Resource: s.alias, Handle: handleToWire(s.vote.Handle)})
		case No:
			lost = lost || errors.Is(s.vote.Reason, ErrLost)
			bad = append(bad, fmt.Errorf("%s: %w", s.alias, s.vote.Reason))
		case ReadOnly, voteUnset:
		}
	}
	if err := errors.Join(bad...); err != nil {
		v.Kind = unisinkv1.VoteKind_VOTE_KIND_NO
		if lost {
			v.Kind = unisinkv1.VoteKind_VOTE_KIND_LOST
		}
		v.Reason, v.ReasonClass = err.Error(), classOf(err)
		v.Branches, v.Positions, v.Parts = nil, nil, nil
	}
	return v
}

// measured is the vote as it is sent now: with the newest stamp, and after it the time that each
// bounded branch has left. Called with mu held.
func (g *generation) measured(e *epoch) *unisinkv1.Vote {
	v := &unisinkv1.Vote{
		Epoch: e.ballot.GetEpoch(), Kind: e.ballot.GetKind(), Positions: e.ballot.GetPositions(), Parts: e.ballot.GetParts(),
		Reason: e.ballot.GetReason(), ReasonClass: e.ballot.GetReasonClass(), Final: e.ballot.GetFinal(),
		ProvenThrough: g.proven,
		Stamp:         g.m.links.newest(),
	}
	now := time.Now()
	if mutant.On("participant/vote-stands") && now.Sub(e.opened) > g.set.prepareTimeout {
		v.Kind, v.Reason = unisinkv1.VoteKind_VOTE_KIND_NO, "no decision within the time-out"
	}
	for _, p := range e.ballot.GetBranches() {
		sent := &unisinkv1.Prepared{Resource: p.GetResource(), Handle: p.GetHandle()}
		if d := e.shares[p.GetResource()].vote.Deadline; !d.IsZero() {
			left := max(d.Sub(now).Milliseconds(), 0)
			sent.TimeLeftMs = &left
		}
		v.Branches = append(v.Branches, sent)
	}
	return v
}

// deliver sends a vote until it is answered, and again whenever a leader asks, until its epoch is
// decided or the generation closed.
func (g *generation) deliver(ctx context.Context, e *epoch) {
	pause := route.NewBackOff()
	for {
		again, err := g.send(ctx, e)
		if err == nil && !again {
			pause.Reset()
			if !g.answered(ctx, e) {
				return
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, ErrFenced) {
			g.m.end(err)
			return
		}
		if err != nil && !errors.Is(err, ErrClosed) {
			// Refused as it is. The vote stands; only the close can end it, so ask for that.
			g.m.log.ErrorContext(ctx, "vote refused", obs.Epoch(g.id, e.n), obs.Err(err))
			g.Fail(fmt.Errorf("vote for epoch %d.%d: %w", g.id, e.n, err))
		}
		if !route.Sleep(ctx, pause.NextBackOff()) {
			return
		}
	}
}

// answered waits, after a vote was answered, for its end (false) or for a leader to ask again.
func (g *generation) answered(ctx context.Context, e *epoch) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.until(ctx, func() bool { return e.again || e.n <= g.outcome })
	if err != nil || e.n <= g.outcome {
		return false
	}
	e.again = false
	return true
}

// send sends a vote to the present leader and takes in the answer. Again: it wants another
// measurement, or has no decision yet.
func (g *generation) send(ctx context.Context, e *epoch) (again bool, _ error) {
	var proven uint64
	request := func() *unisinkv1.VoteRequest {
		g.mu.Lock()
		defer g.mu.Unlock()
		proven = g.proven
		return &unisinkv1.VoteRequest{
			Meta: g.m.newMeta(), Scope: g.m.scope(), Member: g.m.cfg.Member, Instance: g.m.cfg.Instance, Vote: g.measured(e),
		}
	}
	if g.set.solo {
		var resp *unisinkv1.DecideResponse
		err := g.m.answer(ctx, func(ctx context.Context, l *link) (err error) {
			resp, err = l.session.Decide(ctx, &unisinkv1.DecideRequest{Vote: request()})
			return err
		})
		if err != nil {
			return false, err
		}
		g.heardOf(e, proven, resp.GetStamp())
		return g.decision(ctx, e, resp), nil
	}
	var resp *unisinkv1.VoteResponse
	err := g.m.answer(ctx, func(ctx context.Context, l *link) (err error) {
		resp, err = l.session.Vote(ctx, request())
		return err
	})
	if err != nil {
		return false, err
	}
	g.heardOf(e, proven, resp.GetStamp())
	return resp.GetSendAgain(), nil
}

// heardOf notes what a leader has heard with an answered vote.
func (g *generation) heardOf(e *epoch, proven uint64, stamp *unisinkv1.Stamp) {
	g.m.links.heard(stamp)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told, g.answeredTo = max(g.told, proven), max(g.answeredTo, e.n)
	g.note()
}

// decision takes in the answer of Decide; true when there is none yet.
func (g *generation) decision(ctx context.Context, e *epoch, resp *unisinkv1.DecideResponse) bool {
	switch resp.GetOutcome() {
	case unisinkv1.Outcome_OUTCOME_COMMITTED:
		g.decidedThrough(e.n)
		return false
	case unisinkv1.Outcome_OUTCOME_ABORTED:
		g.m.obeyClose(ctx, g, resp.GetFinal(), resp.GetCause())
		return false
	case unisinkv1.Outcome_OUTCOME_PENDING, unisinkv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return true
}

// voteAgain makes every vote that is held be sent once more.
func (g *generation) voteAgain() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.epochs {
		e.again = true
	}
	g.note()
}

// Fail implements Run. The demand to close is a vote for the epoch after the newest voted for,
// whose own vote can't have left.
func (g *generation) Fail(err error) {
	if err == nil {
		err = fmt.Errorf("%w: Fail was called without an error", ErrBug)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.end.over || g.end.failed != nil {
		return
	}
	g.end.failed = err
	g.note()
	v := &unisinkv1.Vote{
		Epoch: &unisinkv1.Epoch{Generation: g.id, N: g.voted + 1}, Kind: unisinkv1.VoteKind_VOTE_KIND_LOST,
		Reason: err.Error(), ReasonClass: classOf(err),
	}
	g.writing.spawn(func(ctx context.Context) { g.demandClose(ctx, v) })
}

// demandClose sends a demand until the close is heard.
func (g *generation) demandClose(ctx context.Context, v *unisinkv1.Vote) {
	g.m.log.WarnContext(ctx, "generation failed, asking to close it", obs.Gen(g.id), obs.Cause(v.GetReason()))
	pause := route.NewBackOff()
	for {
		err := g.m.answer(ctx, func(ctx context.Context, l *link) error {
			_, err := l.session.Vote(ctx, &unisinkv1.VoteRequest{
				Meta: g.m.newMeta(), Scope: g.m.scope(), Member: g.m.cfg.Member, Instance: g.m.cfg.Instance, Vote: v,
			})
			return err
		})
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrFenced):
			g.m.end(err)
			return
		case err != nil && !errors.Is(err, ErrClosed):
			g.m.log.ErrorContext(ctx, "demand to close refused", obs.Gen(g.id), obs.Err(err))
		}
		if !route.Sleep(ctx, pause.NextBackOff()) {
			return
		}
	}
}
