package resolver

import (
	"fmt"

	"github.com/unisink/unisink/internal/branchname"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// owned refuses a handle that names a branch of somebody else than the duty's own. A resolver has credentials for
// all of them, and must not end for one what is another's and perhaps undecided. The coordinator refuses such handles
// before they are decided; what an older one has decided is judged here alone, and only by whose it is, so that what
// is in doubt can be finished.
func owned(h *unisinkv1.Handle, b *unisinkv1.BranchRef, ns string) error {
	own := branchname.Owner{Namespace: ns, Txn: b.GetTxn()}
	if own.Txn == "" {
		own.Pipeline, own.Shard, own.Member = b.GetScope().GetPipeline(), b.GetScope().GetShard(), b.GetMember()
	}
	bad := own.Foreign(h.GetName())
	if bad == "" || mutant.On("resolver/owned") {
		return nil
	}
	return fmt.Errorf("%w: %s, the branch is of %s; nothing was done", participant.ErrBug, bad, txnOf(b))
}
