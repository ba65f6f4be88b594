package server

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// The states of NodeStatus that the edge branches on.
const stateLeader = "leader"

type cluster struct {
	unisinkv1.UnimplementedClusterServer
	s *Server

	mu     sync.Mutex // guards hashed; held for memory only
	hashed hashedState
}

// hashedState is the hash of what a machine held at an index: a hash walks the whole state, and whoever watches a group
// asks again and again.
type hashedState struct {
	m     *ledger.Machine
	index uint64
	hash  string
}

// hashAt is the hash of m, which is at an index; 0: nobody knows which, and nothing is kept.
func (c *cluster) hashAt(m *ledger.Machine, index uint64) string {
	c.mu.Lock()
	kept := c.hashed
	c.mu.Unlock()
	if index != 0 && kept.m == m && kept.index == index {
		return kept.hash
	}
	sum := m.Hash()
	now := hashedState{m, index, hex.EncodeToString(sum[:])}
	c.mu.Lock()
	c.hashed = now
	c.mu.Unlock()
	return now.hash
}

// Bootstrap makes a group out of nodes that have none; the node that is asked must be one of them.
// A repeat with the same arguments goes on where the first ended, or finds it done; with others it is
// refused.
func (c *cluster) Bootstrap(ctx context.Context, req *unisinkv1.BootstrapRequest) (*unisinkv1.BootstrapResponse, error) {
	if err := ledger.CheckName("namespace", req.GetNamespace(), ledger.MaxNamespace); err != nil {
		return nil, invalid("%v", err)
	}
	self := c.s.c.Node.NodeStatus()
	nodes := make([]ledger.Node, 0, len(req.GetNodes()))
	found := false
	for _, n := range req.GetNodes() {
		if n.GetId() == "" || n.GetRaftAddress() == "" || n.GetClientAddress() == "" {
			return nil, invalid("node %q needs an id, a raft address and a client address", n.GetId())
		}
		found = found || n.GetId() == self.ID
		nodes = append(nodes, ledger.Node{ID: n.GetId(), RaftAddress: n.GetRaftAddress(), ClientAddress: n.GetClientAddress(), FeatureLevel: ledger.CurrentFeatureLevel})
	}
	if !found {
		return nil, invalid("the list of nodes lacks %s, which was asked", self.ID)
	}
	done, err := c.done(self, req.GetNamespace(), nodes)
	switch {
	case err != nil:
		return nil, err
	case done:
		return &unisinkv1.BootstrapResponse{}, nil
	}
	level := c.levels(ctx, nodes)
	if err := c.s.c.Node.Bootstrap(ctx, req.GetNamespace(), nodes); err != nil {
		return nil, c.s.proposalError(err)
	}
	if err := c.begin(ctx, req.GetMeta(), level); err != nil {
		return nil, err
	}
	return &unisinkv1.BootstrapResponse{}, nil
}

// done compares what is asked for with the group that the node belongs to already. It reports false
// while there is none, or while its founding has not ended as far as this node knows.
func (c *cluster) done(self NodeStatus, namespace string, nodes []ledger.Node) (bool, error) {
	refuse := func(why string) (bool, error) {
		return false, grpcerr.New(codes.AlreadyExists, grpcerr.Stale,
			fmt.Sprintf("node %s belongs to a group already; bootstrap is done once, on new nodes: %s", self.ID, why), nil)
	}
	if !self.Bootstrapped {
		return false, nil
	}
	var have string
	known := map[string]ledger.Node{}
	c.s.c.Node.View(func(m *ledger.Machine) {
		have, _ = m.Namespace()
		for _, n := range m.Nodes() {
			known[n.ID] = n
		}
	})
	if have != "" && have != namespace {
		return refuse(fmt.Sprintf("the group's namespace is %q", have))
	}
	asked := map[string]bool{}
	missing := 0
	for _, n := range nodes {
		asked[n.ID] = true
		switch k, found := known[n.ID]; {
		case !found:
			missing++
		case k.RaftAddress != n.RaftAddress || k.ClientAddress != n.ClientAddress:
			return refuse(fmt.Sprintf("node %s has other addresses in it", n.ID))
		}
	}
	for _, id := range self.Voters {
		if !asked[id] {
			return refuse(fmt.Sprintf("node %s belongs to it too", id))
		}
	}
	if len(asked) != len(self.Voters) {
		return refuse("it has other nodes")
	}
	return have != "" && missing == 0, nil
}

// Status answers from this node's own knowledge.
func (c *cluster) Status(_ context.Context, req *unisinkv1.StatusRequest) (*unisinkv1.StatusResponse, error) {
	n := c.s.c.Node
	out := &unisinkv1.StatusResponse{SupportedFeatureLevel: ledger.CurrentFeatureLevel}
	n.ViewAt(func(m *ledger.Machine, index uint64) {
		out.StateIndex = index
		out.Namespace, out.Incarnation = m.Namespace()
		out.FeatureLevel = m.FeatureLevel()
		out.StateDigest = fmt.Sprintf("%016x", m.Digest())
		if req.GetStateHash() {
			out.StateHash = c.hashAt(m, index)
		}
		for _, node := range m.Nodes() {
			out.Nodes = append(out.Nodes, &unisinkv1.Node{
				Id: node.ID, RaftAddress: node.RaftAddress, ClientAddress: node.ClientAddress,
				FeatureLevel: node.FeatureLevel, Version: node.Version,
			})
		}
	})
	// After the state: an entry applied in between would make the log look shorter than what was applied of it.
	st := n.NodeStatus()
	out.Node, out.Term, out.State, out.RaftAddress = st.ID, st.Term, st.State, st.RaftAddress
	out.LastIndex, out.AppliedIndex, out.SnapshotIndex = st.LastIndex, st.AppliedIndex, st.SnapshotIndex
	out.LeaderSilentMs = st.LeaderSilent.Milliseconds()
	out.Leader, out.LeaderClientAddress = n.Leader()
	for _, node := range out.Nodes {
		node.Voter = slices.Contains(st.Voters, node.Id)
	}
	return out, nil
}
