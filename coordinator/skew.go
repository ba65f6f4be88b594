package coordinator

import (
	"context"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/raftnode"
)

// skewed is the replicated log of a node whose clock may be off (Seams.Skew). Whatever of a clock
// enters the ledger passes here; leases and the watchdog count on the monotonic clock, which does
// not step.
type skewed struct {
	*raftnode.Node
	skew func() time.Duration // nil: the clock is right
}

// Propose shifts the times that the command carries.
func (s skewed) Propose(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	if s.skew != nil {
		off := s.skew().Milliseconds()
		c.At += off
		if a, ok := c.Body.(ledger.Announce); ok {
			a.Deadline += off
			c.Body = a
		}
	}
	return s.Node.Propose(ctx, c)
}
