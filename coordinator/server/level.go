package server

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// RaiseFeatureLevel asks every node how far its version can follow, writes down what has changed since it
// was asked last, as after an upgrade, and raises the level if all can.
func (c *cluster) RaiseFeatureLevel(ctx context.Context, req *unisinkv1.RaiseFeatureLevelRequest) (*unisinkv1.RaiseFeatureLevelResponse, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	var nodes []ledger.Node
	c.s.c.Node.View(func(m *ledger.Machine) { nodes = m.Nodes() })
	all := uint32(ledger.CurrentFeatureLevel)
	for _, n := range nodes {
		can, err := c.follows(ctx, n, true)
		if err != nil {
			return nil, err
		}
		// Waiting takes seconds. A node that was removed meanwhile must not be written down again: its
		// certificate would be a member's again, and it would hold back the level.
		switch now, found := c.node(n.ID); {
		case !found:
			continue
		case now != n:
			return nil, busy("the level was not raised: what is known of node %s changed while it was asked; repeat the command", n.ID)
		}
		all = min(all, can)
		if can == n.FeatureLevel {
			continue
		}
		n.FeatureLevel = can
		if _, err := c.s.propose(ctx, req.GetMeta(), ledger.PutNode{Node: n}); err != nil {
			return nil, err
		}
	}
	level := req.GetLevel()
	if level == 0 {
		level = all
	}
	if _, err := c.s.propose(ctx, req.GetMeta(), ledger.RaiseFeatureLevel{Level: level}); err != nil {
		return nil, err
	}
	return &unisinkv1.RaiseFeatureLevelResponse{Level: level}, nil
}

// node is what the ledger knows of a node now.
func (c *cluster) node(id string) (n ledger.Node, found bool) {
	c.s.c.Node.View(func(m *ledger.Machine) {
		if i := slices.IndexFunc(m.Nodes(), func(k ledger.Node) bool { return k.ID == id }); i >= 0 {
			n, found = m.Nodes()[i], true
		}
	})
	return n, found
}

// follows asks a node up to which feature level its version can follow. With wait one that is just being started is
// waited for.
func (c *cluster) follows(ctx context.Context, n ledger.Node, wait bool) (uint32, error) {
	if n.ID == c.s.c.Node.NodeStatus().ID {
		return ledger.CurrentFeatureLevel, nil
	}
	conn, err := c.s.forward.conn(n.ClientAddress)
	if err != nil {
		return 0, invalid("node %s cannot be dialled at %s: %v", n.ID, n.ClientAddress, err)
	}
	if wait { // it may have been down when it was asked last, and is not to be left alone for that
		conn.ResetConnectBackoff()
	}
	asked, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	st, err := unisinkv1.NewClusterClient(conn).Status(asked, &unisinkv1.StatusRequest{}, grpc.WaitForReady(wait))
	switch {
	case err != nil:
		return 0, busy("the level was not raised, since node %s does not answer at %s (%s); what it can follow must be known", n.ID, n.ClientAddress, status.Code(err))
	case st.GetNode() != n.ID:
		return 0, busy("the level was not raised: the node at %s is %q, not %q", n.ClientAddress, st.GetNode(), n.ID)
	}
	return max(st.GetSupportedFeatureLevel(), 1), nil
}

// levels fills in what the nodes of a new group can follow; one that does not say counts as the oldest.
func (c *cluster) levels(ctx context.Context, nodes []ledger.Node) uint32 {
	all := uint32(ledger.CurrentFeatureLevel)
	for i := range nodes {
		can, err := c.follows(ctx, nodes[i], false)
		if err != nil {
			can = 1
		}
		nodes[i].FeatureLevel = can
		all = min(all, can)
	}
	return all
}

// begin lets a new group start at the newest level that its nodes can follow. A group that could not is
// whole, and can be raised later.
func (c *cluster) begin(ctx context.Context, meta *unisinkv1.Meta, level uint32) error {
	if level < 2 {
		return nil
	}
	if _, err := c.s.propose(ctx, meta, ledger.RaiseFeatureLevel{Level: level}); err != nil {
		return fmt.Errorf("the group was made, and its feature level was not raised to %d; `unisink cluster raise` does: %w", level, err)
	}
	return nil
}
