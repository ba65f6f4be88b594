package coordinator

import (
	"context"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/raftnode"
)

// skewed is the replicated log of a node whose clock may be off (raftnode.Seams). The log stamps
// entries by that clock; a deadline that this node made out of its clock is off as far.
type skewed struct {
	*raftnode.Node
	skew func() time.Duration // nil: the clock is right
}

// Propose shifts the deadline that the command carries.
func (s skewed) Propose(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	if a, ok := c.Body.(ledger.Announce); ok && s.skew != nil {
		a.Deadline += s.skew().Milliseconds()
		c.Body = a
	}
	return s.Node.Propose(ctx, c)
}
