package participant

import (
	"context"
	"errors"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// branchOfEpoch is what the coordinator calls a branch.
type branchOfEpoch struct {
	epoch            *unisinkv1.Epoch
	member, resource string
}

// bring makes a branch of an epoch end as wanted, as the function of that name does. While nobody can tell how it
// ended the coordinator is told so, which halts the scope, and the resource is asked on: a person may put back what is
// missing, or force the branch, upon which the next generation does not list it.
func (g *generation) bring(ctx context.Context, r Resource, h Handle, want Verdict, b branchOfEpoch, final ...error) (Proof, error) {
	trying := "end branch " + h.Name
	defer g.m.troubles.over(trying, b.resource)
	pause := newResourceBackOff()
	for {
		proof, err := bring(ctx, g.m.log, g.m.troubles, r, h, want, append(final, ErrUndeterminable)...)
		if !errors.Is(err, ErrUndeterminable) {
			return proof, err
		}
		g.m.troubles.note(trying, b.resource, err)
		wait := pause.NextBackOff()
		g.m.log.ErrorContext(ctx, "nobody can tell how a branch ended: a person must decide", obs.Epoch(b.epoch.GetGeneration(), b.epoch.GetN()),
			obs.Resource(b.resource), obs.Branch(h.Name), obs.Next(wait), obs.Err(err))
		g.tellUndeterminable(ctx, b, err)
		if !route.Sleep(ctx, wait) {
			return Proof{}, context.Cause(ctx)
		}
	}
}

// tellUndeterminable says that nobody can tell how a branch ended, until that is answered. The coordinator knows whether
// it has halted the scope for that already, or a person has decided.
func (g *generation) tellUndeterminable(ctx context.Context, b branchOfEpoch, why error) {
	if mutant.On("participant/undeterminable-told") {
		return
	}
	req := &unisinkv1.ResolvedRequest{
		Meta: g.m.newMeta(), Scope: g.m.scope(), Member: g.m.cfg.Member, Instance: g.m.cfg.Instance, Generation: g.id,
		Proofs: []*unisinkv1.BranchProof{{
			Epoch: b.epoch, Member: b.member, Resource: b.resource,
			Proof: &unisinkv1.Proof{Verdict: unisinkv1.Verdict_VERDICT_UNDETERMINABLE, Evidence: why.Error()},
		}},
	}
	err := g.m.answer(ctx, func(ctx context.Context, l *link) error {
		_, err := l.session.Resolved(ctx, req)
		return err
	})
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, ErrFenced):
		g.m.end(err)
	default: // of an older coordinator: it knows no such answer, and the branch stays in doubt
		g.m.log.WarnContext(ctx, "report of a branch that nobody can tell of refused", obs.Branch(b.resource), obs.Err(err))
	}
}

// tellUndeterminable says it of a transaction run by hand, once: whoever finds it again says it again.
func (c *Client) tellUndeterminable(ctx context.Context, txn, resource string, why error) {
	_, err := c.Transactions().Resolve(ctx, &unisinkv1.ResolveRequest{
		Meta: c.NewMeta(), Txn: txn, Resource: resource,
		Proof: &unisinkv1.Proof{Verdict: unisinkv1.Verdict_VERDICT_UNDETERMINABLE, Evidence: why.Error()},
	})
	if err != nil {
		c.log.WarnContext(ctx, "that nobody can tell how a branch ended is not reported", obs.Txn(txn), obs.Resource(resource), obs.Err(err))
	}
}
