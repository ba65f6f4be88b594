package server

import (
	"context"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/branchname"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// ownHandles refuses a transaction by hand with a handle that names a branch of something else: another
// transaction, a pipeline's epoch, another namespace. Whoever finishes it later has rights that the caller may not
// have. Announced handles count as well: at the deadline they are rolled back.
func (t *transactions) ownHandles(ctx context.Context, meta *unisinkv1.Meta, txn string, branches []*unisinkv1.HandBranch) error {
	own := branchname.Owner{Txn: txn}
	t.s.c.Node.View(func(m *ledger.Machine) { own.Namespace, own.Incarnation = m.Namespace() })
	if own.Namespace == "" && len(branches) > 0 && !mutant.On("server/judges-when-it-knows") {
		return NotLeader(t.s.c.Node) // it was just started, and has not applied yet who it is
	}
	for _, b := range branches {
		own.Resource = b.GetResource()
		bad := own.Foreign(b.GetHandle().GetName())
		if bad == "" || mutant.On("server/own-handles") {
			continue
		}
		t.s.c.Logger.WarnContext(ctx, "transaction refused: the handle of somebody else",
			obs.Txn(txn), obs.Resource(b.GetResource()), obs.Actor(meta.GetActor()), obs.Cause(bad))
		return invalid("transaction %s is refused for its branch in resource %s: %s; hand in what was prepared for this transaction", txn, b.GetResource(), bad)
	}
	return nil
}
