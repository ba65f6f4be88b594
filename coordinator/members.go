package coordinator

import (
	"context"
	"log/slog"

	"github.com/unisink/unisink/coordinator/raftnode"
	"github.com/unisink/unisink/internal/obs"
)

// members gives the edge what changes the group.
type members struct {
	*raftnode.Node
	leave func()
}

// HandOver makes Run end as if its context had; leadership is handed over on the way.
func (m members) HandOver() { m.leave() }

// handOver gives leadership to another node, so that nobody waits for an election. It is part of the
// way out: the library can be left unable to write.
func (co *Coordinator) handOver(ctx context.Context) {
	if err := co.node.HandOver(context.WithoutCancel(ctx)); err != nil {
		co.c.Logger.InfoContext(ctx, "leadership was not handed over; the others elect the next leader", obs.Err(err), slog.String("node", co.c.NodeID))
	}
}
