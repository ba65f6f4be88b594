package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// restore brings the member to the restore point: fence every resource, commit exactly the handles
// listed, roll back everything else of its own older generations, and only then hand positions and
// state to the task (Z4). It returns early when the generation is closed or superseded.
func (g *generation) restore(ctx context.Context) error {
	opening, err := g.opening(ctx)
	if err != nil {
		return err
	}
	lists, err := g.listed(ctx)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	var mu sync.Mutex // guards errs and proofs
	var errs []error
	var proofs []*unisinkv1.BranchProof
	for alias, r := range g.m.cfg.Resources {
		group.Go(func() {
			proven, err := g.recover(ctx, alias, r, opening, lists[alias])
			mu.Lock()
			defer mu.Unlock()
			proofs = append(proofs, proven...)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	g.mu.Lock()
	if g.end.over {
		g.mu.Unlock()
		return ErrClosed
	}
	g.end.taskSeen = true
	g.work.proofs = proofs
	g.mu.Unlock()
	return g.m.task.Restore(ctx, g.restorePoint())
}

// restorePoint is what the task gets.
func (g *generation) restorePoint() Restore {
	return Restore{
		Namespace:         g.m.namespace(),
		Generation:        g.id,
		Fresh:             g.order.GetRestorePoint() == nil,
		RestoreGeneration: g.order.GetRestorePoint().GetGeneration(),
		RestoreN:          g.order.GetRestorePoint().GetN(),
		Positions:         positionsFromWire(g.order.GetPositions()),
		Parts:             partsFromWire(g.order.GetParts()),
		KeptParts:         g.order.GetKeptParts(),
	}
}

// opening asks for the pipeline's settings, which resources size themselves by.
func (g *generation) opening(ctx context.Context) (Opening, error) {
	o := Opening{
		Namespace: g.m.namespace(), Scope: g.m.scopeName(), Member: g.m.cfg.Member, Generation: g.id,
		MaxPending: 2, EpochInterval: time.Second,
	}
	if len(g.m.cfg.Resources) == 0 {
		return o, nil
	}
	var resp *unisinkv1.GetPipelineResponse
	err := g.m.answer(ctx, func(ctx context.Context, l *link) (err error) {
		resp, err = l.pipelines.GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: g.m.cfg.Pipeline, SettingsOnly: true})
		return err
	})
	if status.Code(err) == codes.Unimplemented {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("read the settings of pipeline %s: %w", g.m.cfg.Pipeline, err)
	}
	set := resp.GetPipeline().GetSettings()
	if n := int(set.GetMaxPending()); n > 0 {
		o.MaxPending = n
	}
	if ms := set.GetEpochIntervalMs(); ms > 0 {
		o.EpochInterval = time.Duration(ms) * time.Millisecond
	}
	return o, nil
}

// listed sorts the decided branches that the order lists by resource, in the order given.
func (g *generation) listed(ctx context.Context) (map[string][]*unisinkv1.Unfinished, error) {
	lists := map[string][]*unisinkv1.Unfinished{}
	for _, u := range g.order.GetUnfinished() {
		alias := u.GetResource()
		if g.m.cfg.Resources[alias] == nil {
			// Nobody else of this scope has it. Starting without would let later epochs overtake it.
			return nil, fmt.Errorf("%w: epoch %d.%d has a decided branch in resource %q, which this process does not have",
				ErrMisconfigured, u.GetEpoch().GetGeneration(), u.GetEpoch().GetN(), alias)
		}
		if u.GetHandle().GetName() == "" {
			g.m.log.WarnContext(ctx, "listed branch without a handle skipped", obs.Resource(alias))
			continue
		}
		lists[alias] = append(lists[alias], u)
	}
	return lists, nil
}

// recover opens one resource for the generation and ends what older ones left in it.
func (g *generation) recover(ctx context.Context, alias string, r Resource, o Opening, list []*unisinkv1.Unfinished) ([]*unisinkv1.BranchProof, error) {
	o.Resource, o.Held = alias, g.openedIn(alias)
	if err := g.m.retry(ctx, "open", alias, func(ctx context.Context) error { return r.Open(ctx, o) }); err != nil {
		return nil, err
	}
	var proofs []*unisinkv1.BranchProof
	for _, u := range list {
		proof, err := g.bring(ctx, r, handleFromWire(u.GetHandle()), Committed, branchOfEpoch{u.GetEpoch(), u.GetMember(), alias}, ErrFenced)
		if err != nil {
			return proofs, fmt.Errorf("commit epoch %d.%d in %q: %w", u.GetEpoch().GetGeneration(), u.GetEpoch().GetN(), alias, err)
		}
		if proof.Verdict != Committed {
			g.m.log.ErrorContext(ctx, "heuristic outcome: a decided branch is rolled back",
				obs.Epoch(u.GetEpoch().GetGeneration(), u.GetEpoch().GetN()), obs.Resource(alias),
				obs.Branch(u.GetHandle().GetName()), obs.Proof(proof.Evidence))
		}
		proofs = append(proofs, &unisinkv1.BranchProof{
			Epoch: u.GetEpoch(), Member: u.GetMember(), Resource: alias, Proof: proofToWire(proof),
		})
	}
	// Twice: what was being prepared while the first list was made shows in the second (L3).
	for pass := range 2 {
		if pass == 1 && mutant.On("participant/listed-twice") || mutant.On("participant/rest-rolled-back") {
			break
		}
		if err := g.sweep(ctx, alias, r, o, list); err != nil {
			return proofs, err
		}
	}
	return proofs, nil
}

// openedIn is the newest older generation in which this member surely had a resource open, of those that still owe a sweep of it:
// one that decided something, which takes a vote of every member, or of which a decided branch is listed here.
func (g *generation) openedIn(alias string) (held uint64) {
	if g.m.cfg.AllowChangedResources {
		return 0 // it may be another one than it was
	}
	opened := map[uint64]bool{g.order.GetRestorePoint().GetGeneration(): true}
	for _, u := range g.order.GetUnfinished() {
		if u.GetResource() == alias {
			opened[u.GetEpoch().GetGeneration()] = true
		}
	}
	for _, d := range g.order.GetDebts() {
		if d.GetMember() == g.m.cfg.Member && d.GetResource() == alias && opened[d.GetGeneration()] {
			held = max(held, d.GetGeneration())
		}
	}
	return held
}

// sweep rolls back what is prepared under this member's name in this resource by older generations
// and is not listed. It is judged by handle, not by epoch (P4, P7): of two prepared for one epoch
// the listed one lives.
func (g *generation) sweep(ctx context.Context, alias string, r Resource, o Opening, list []*unisinkv1.Unfinished) error {
	var found []Listed
	err := g.m.retry(ctx, "list", alias, func(ctx context.Context) (err error) {
		found, err = r.List(ctx, o.Namespace)
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range found {
		named := slices.ContainsFunc(list, func(u *unisinkv1.Unfinished) bool { return isListed(f, u) })
		if named || !g.dead(f.Name, alias) {
			continue
		}
		want := RolledBack
		if mutant.On("participant/restore-by-handle") && decidedByNumber(f, list) {
			want = Committed
		}
		at := branchOfEpoch{&unisinkv1.Epoch{Generation: f.Name.Generation, N: f.Name.N}, f.Name.Member, alias}
		proof, err := g.bring(ctx, r, f.Handle, want, at, ErrFenced)
		if err != nil {
			return fmt.Errorf("roll back %s in %q: %w", f.Name, alias, err)
		}
		if proof.Verdict != RolledBack {
			g.m.log.ErrorContext(ctx, "heuristic outcome: a branch that was not decided is committed",
				obs.Branch(f.Name.String()), obs.Resource(alias), obs.Proof(proof.Evidence))
			continue
		}
		g.m.log.InfoContext(ctx, "rolled back what an older generation left", obs.Branch(f.Name.String()), obs.Resource(alias))
	}
	return nil
}

// isListed reports whether what was found is the branch that the order lists.
func isListed(f Listed, u *unisinkv1.Unfinished) bool {
	if mutant.On("participant/sweep-by-handle") {
		return f.Name.Generation == u.GetEpoch().GetGeneration() && f.Name.N == u.GetEpoch().GetN()
	}
	return f.Handle.Same(handleFromWire(u.GetHandle()))
}

// decidedByNumber is what P4 forbids: it takes an epoch for decided because a later number is.
func decidedByNumber(f Listed, list []*unisinkv1.Unfinished) bool {
	return slices.ContainsFunc(list, func(u *unisinkv1.Unfinished) bool { return f.Name.N <= u.GetEpoch().GetN() })
}

// dead reports whether a listed name is this member's own, of a generation before this one. Names
// are compared part by part, never by prefix (L9); everything else is left alone.
func (g *generation) dead(n BranchName, alias string) bool {
	return n.Txn == "" && n.Namespace == g.m.namespace() && n.Pipeline == g.m.cfg.Pipeline && n.Shard == g.m.cfg.Shard &&
		(n.Member == g.m.cfg.Member || mutant.On("participant/own-names-only")) && n.Resource == alias && n.Generation < g.id
}

// ready notes that the member is restored and says so until it is answered.
func (g *generation) ready() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.end.over || g.phase != PhaseRestoring {
		return
	}
	g.phase = PhaseReady
	g.writing.spawn(g.sayReady)
}

// readyAgain repeats it to a leader that has not heard.
func (g *generation) readyAgain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.end.over && g.phase == PhaseReady {
		g.writing.spawn(g.sayReady)
	}
}

func (g *generation) sayReady(ctx context.Context) {
	req := &unisinkv1.ReadyRequest{
		Meta: g.m.newMeta(), Scope: g.m.scope(), Member: g.m.cfg.Member, Instance: g.m.cfg.Instance,
		Generation: g.id, Proofs: g.work.proofs,
	}
	for _, d := range g.order.GetDebts() {
		if d.GetMember() == g.m.cfg.Member && g.m.cfg.Resources[d.GetResource()] != nil && d.GetGeneration() < g.id {
			req.Swept = append(req.Swept, d)
		}
	}
	err := g.m.answer(ctx, func(ctx context.Context, l *link) error {
		_, err := l.session.Ready(ctx, req)
		return err
	})
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed):
	case errors.Is(err, ErrFenced):
		g.m.end(err)
	default:
		g.Fail(fmt.Errorf("ready for generation %d: %w", g.id, err))
	}
}
