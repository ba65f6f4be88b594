package server

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Members changes who belongs to the group, and writes down what it holds.
type Members interface {
	AddNode(ctx context.Context, n ledger.Node) error
	RemoveNode(ctx context.Context, id string) error
	// HandOver makes this node hand leadership over and end its process; it returns before that.
	HandOver()
	Backup(ctx context.Context, w io.Writer) error
}

const (
	// backupChunk is the most bytes of a backup in one message.
	backupChunk = 256 << 10
	// startTime is how long a node that is to be added is waited for: it may just be starting.
	startTime = 5 * time.Second
	// answerTime is kept of a caller's time for telling it why a change has not ended.
	answerTime = 200 * time.Millisecond
)

// AddNode asks the node who it is, and adds it if it has no history of its own.
func (c *cluster) AddNode(ctx context.Context, req *unisinkv1.AddNodeRequest) (*unisinkv1.AddNodeResponse, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	n, err := c.add(ctx, req.GetNode(), req.GetClientAddress())
	if err != nil {
		return nil, err
	}
	return &unisinkv1.AddNodeResponse{Node: n}, nil
}

// RemoveNode takes a member out of the group.
func (c *cluster) RemoveNode(ctx context.Context, req *unisinkv1.RemoveNodeRequest) (*unisinkv1.RemoveNodeResponse, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	if req.GetNode() == "" {
		return nil, invalid("name the node that is to be removed")
	}
	if err := c.s.c.Members.RemoveNode(ctx, req.GetNode()); err != nil {
		return nil, c.s.membersError(err)
	}
	return &unisinkv1.RemoveNodeResponse{}, nil
}

// ReplaceNode adds one node and then removes another. What can be seen beforehand to prevent the
// second is said before the first.
func (c *cluster) ReplaceNode(ctx context.Context, req *unisinkv1.ReplaceNodeRequest) (*unisinkv1.ReplaceNodeResponse, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	old := req.GetOldNode()
	switch known := c.recorded(); {
	case old == req.GetNode() || old == "":
		return nil, invalid("name two nodes: the old one, and the new one under an id of its own")
	case old == c.s.c.Node.NodeStatus().ID:
		return nil, busy("node %s leads; let it hand over and end with `unisink cluster transfer`, then replace it", old)
	case !known[old] && !known[req.GetNode()]:
		return nil, grpcerr.New(codes.NotFound, grpcerr.NotFound, fmt.Sprintf("there is no node %q in the group", old), nil)
	}
	n, err := c.add(ctx, req.GetNode(), req.GetClientAddress())
	if err != nil {
		return nil, err
	}
	if c.recorded()[old] { // else an earlier call has removed it
		if err := c.s.c.Members.RemoveNode(ctx, old); err != nil {
			return nil, c.s.membersError(err)
		}
	}
	return &unisinkv1.ReplaceNodeResponse{Node: n}, nil
}

// Transfer answers, and then ends this node's process, which leads.
func (c *cluster) Transfer(ctx context.Context, req *unisinkv1.TransferRequest) (*unisinkv1.TransferResponse, error) {
	st := c.s.c.Node.NodeStatus()
	if len(st.Voters) < 2 {
		return nil, busy("node %s is the only one that votes, so there is nobody to hand over to", st.ID)
	}
	c.s.note(ctx, req.GetMeta(), ledger.Note{Kind: "transfer", What: "node " + st.ID + " hands over and ends"})
	c.s.c.Members.HandOver()
	return &unisinkv1.TransferResponse{Node: st.ID}, nil
}

// Backup sends a backup in pieces. A stream that ends with an error has sent none.
func (c *cluster) Backup(req *unisinkv1.BackupRequest, out unisinkv1.Cluster_BackupServer) error {
	c.s.note(out.Context(), req.GetMeta(), ledger.Note{Kind: "backup", What: "all that is committed"})
	if err := c.s.c.Members.Backup(out.Context(), &pieces{send: out.Send}); err != nil {
		return c.s.membersError(err)
	}
	return nil
}

// pieces sends what is written to it.
type pieces struct {
	send func(*unisinkv1.BackupResponse) error
}

func (p *pieces) Write(b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		n := min(len(b)-sent, backupChunk)
		if err := p.send(&unisinkv1.BackupResponse{Data: b[sent : sent+n]}); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// add asks the node at an address who it is, and makes it a member.
func (c *cluster) add(ctx context.Context, id, address string) (*unisinkv1.Node, error) {
	if id == "" || address == "" {
		return nil, invalid("name the new node's id and where it serves clients")
	}
	conn, err := c.s.forward.conn(address)
	if err != nil {
		return nil, invalid("node %s cannot be dialled at %s: %v", id, address, err)
	}
	asked, cancel := context.WithTimeout(ctx, startTime)
	st, err := unisinkv1.NewClusterClient(conn).Status(asked, &unisinkv1.StatusRequest{}, grpc.WaitForReady(true))
	cancel()
	if err != nil {
		return nil, busy("nothing was changed, since node %s must be running and does not answer at %s (%s)", id, address, status.Code(err))
	}
	var name string
	var incarnation uint64
	c.s.c.Node.View(func(m *ledger.Machine) { name, incarnation = m.Namespace() })
	ours := st.GetNamespace() == name && st.GetIncarnation() == incarnation
	switch {
	case st.GetNode() != id:
		return nil, invalid("nothing was changed: the node at %s is %q, not %q", address, st.GetNode(), id)
	case st.GetNamespace() != "" && !ours:
		return nil, busy("nothing was changed: node %s belongs to the group of namespace %q, incarnation %d, already; start it with an empty data directory",
			id, st.GetNamespace(), st.GetIncarnation())
	case st.GetNamespace() != "" && !c.recorded()[id]:
		return nil, busy("nothing was changed: node %s was removed from this group; start it under a new id with an empty data directory", id)
	case st.GetLastIndex() > 0 && !c.recorded()[id]: // it has not applied its log, which would name a group
		return nil, busy("nothing was changed: node %s has a log already, of this group or another; start it under a new id with an empty data directory", id)
	case st.GetRaftAddress() == "":
		return nil, busy("nothing was changed: node %s does not say where other nodes reach it", id)
	}
	n := ledger.Node{ID: id, RaftAddress: st.GetRaftAddress(), ClientAddress: address, FeatureLevel: max(st.GetSupportedFeatureLevel(), 1)}
	if err := c.s.c.Members.AddNode(ctx, n); err != nil {
		return nil, c.s.membersError(err)
	}
	return &unisinkv1.Node{
		Id: n.ID, RaftAddress: n.RaftAddress, ClientAddress: n.ClientAddress, FeatureLevel: n.FeatureLevel, Voter: true,
	}, nil
}

// recorded are the ids of the nodes in the ledger.
func (c *cluster) recorded() map[string]bool {
	ids := map[string]bool{}
	c.s.c.Node.View(func(m *ledger.Machine) {
		for _, n := range m.Nodes() {
			ids[n.ID] = true
		}
	})
	return ids
}

// membersError makes a status of what Members answers.
func (s *Server) membersError(err error) error {
	switch {
	case s.c.Class.NoSuchNode(err):
		return grpcerr.New(codes.NotFound, grpcerr.NotFound, err.Error(), nil)
	case s.c.Class.Membership(err):
		return busy("%v", err)
	default:
		return s.proposalError(err)
	}
}

// busy refuses by the state of things.
func busy(format string, args ...any) error {
	return grpcerr.New(codes.FailedPrecondition, grpcerr.Busy, fmt.Sprintf(format, args...), nil)
}

// inTime ends a little before the caller does.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-answerTime))
}
