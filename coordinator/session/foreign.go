package session

import (
	"context"
	"fmt"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/branchname"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// foreign judges the handles of a vote: whoever finishes them has rights that the member may not have, so each must
// name a branch of this scope, generation, member and resource. A vote with another's is not counted. No restart
// mends what made it, so the generation is closed and the scope halts, with the sentence that is returned.
func (s *scope) foreign(ctx context.Context, g *generation, member, instance string, v *unisinkv1.Vote) string {
	if len(v.GetBranches()) == 0 {
		return ""
	}
	own := branchname.Owner{Pipeline: s.id.Pipeline, Shard: s.id.Shard, Member: member, Generation: uint64(g.number)}
	s.r.m.c.Log.View(func(l *ledger.Machine) { own.Namespace, own.Incarnation = l.Namespace() })
	for _, b := range v.GetBranches() {
		own.Resource = b.GetResource()
		bad := own.Foreign(b.GetHandle().GetName())
		if bad == "" || mutant.On("session/own-handles") {
			continue
		}
		why := fmt.Sprintf("member %s voted for epoch %d.%d with a handle that is not its own for resource %s: %s; look at who runs this member, and at its adapter",
			member, g.number, v.GetEpoch().GetN(), b.GetResource(), bad)
		s.r.m.c.Logger.ErrorContext(ctx, "vote refused: the handle of somebody else", obs.Scope(s.id.String()), obs.Member(member),
			obs.Instance(instance), obs.Resource(b.GetResource()), obs.Cause(bad))
		if !g.closing {
			s.closeHalting(ctx, g, why, why)
		}
		return why
	}
	return ""
}
