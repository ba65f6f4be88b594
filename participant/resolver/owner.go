package resolver

import (
	"fmt"
	"strings"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// owned refuses a handle that names a branch of somebody else than the duty's own. A handle is what a participant or
// a client of one transaction handed in, and names can be guessed; a resolver has credentials for all of them, and
// must not end for one what is another's and perhaps undecided. Names that are no branch's are their adapter's affair.
func owned(h *unisinkv1.Handle, b *unisinkv1.BranchRef, ns string) error {
	branch := h.GetName()
	if i := strings.IndexAny(branch, "|#:/@"); i > 0 {
		branch = branch[:i] // what follows tells one use of the name from the next
	}
	n, err := participant.ParseBranchName(branch)
	if err != nil || mutant.On("resolver/owned") {
		return nil //nolint:nilerr // a name that is no branch's is not ours to judge
	}
	s := b.GetScope()
	own := n.Namespace.Name == ns && n.Txn == b.GetTxn()
	if b.GetTxn() == "" {
		own = own && n.Pipeline == s.GetPipeline() && n.Shard == s.GetShard() && n.Member == b.GetMember()
	}
	if own {
		return nil
	}
	return fmt.Errorf("%w: the handle of a branch of %s names %s, which is not its own; nothing was done", participant.ErrBug, txnOf(b), h.GetName())
}
