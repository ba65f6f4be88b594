package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Config says how a group is started.
type Config struct {
	// Exe is this binary; it is started again for each node.
	Exe   string
	Nodes int // 1 or 3
	// Dir for logs and data of the nodes.
	Dir string
	// Crew owns the processes. Whoever made it ends it.
	Crew *child.Crew
}

// CheckNodes says whether a group may have so many nodes.
func CheckNodes(n int) error {
	if n != 1 && n != 3 {
		return fmt.Errorf("%d nodes: give 1 or 3", n)
	}
	return nil
}

// Group is a coordinator group, each node a process. It is not safe for concurrent use, but for its Client.
type Group struct {
	c     Config
	Nodes []*Node
	// Client asks whichever node answers.
	Client *participant.Client
}

// Node is one of the nodes. Proc changes when it is started again.
type Node struct {
	ID           string
	Client, Raft string // addresses
	Proc         *child.Process
}

// Start starts the nodes and makes them a group. Close the group also after an error.
func Start(ctx context.Context, c Config) (*Group, error) {
	g := &Group{c: c}
	for i := range c.Nodes {
		if err := g.add(fmt.Sprintf("n%d", i+1)); err != nil {
			return g, err
		}
	}
	for _, n := range g.Nodes {
		if err := g.Await(ctx, n); err != nil {
			return g, err
		}
	}
	var err error
	if g.Client, err = NewClient(g.Addresses()...); err != nil {
		return g, err
	}
	return g, g.bootstrap(ctx)
}

// Close ends the client's connections; the processes end with their crew.
func (g *Group) Close() {
	if g != nil && g.Client != nil {
		_ = g.Client.Close() // nothing is under way on it
	}
}

func (g *Group) add(id string) (err error) {
	n := &Node{ID: id}
	if n.Client, err = freeport.Loopback(); err != nil {
		return err
	}
	if n.Raft, err = freeport.Loopback(); err != nil {
		return err
	}
	g.Nodes = append(g.Nodes, n)
	return g.StartNode(n)
}

// StartNode starts a node's process, for the first time or again.
func (g *Group) StartNode(n *Node) (err error) {
	n.Proc, err = g.c.Crew.Start(child.Spec{
		Name: "node " + n.ID, Path: g.c.Exe, Log: filepath.Join(g.c.Dir, n.ID+".log"),
		Args: []string{"serve", "--node", n.ID, "--data", g.Data(n), "--client", n.Client, "--raft", n.Raft, "--log-level", "warn"},
	})
	return err
}

// Data is the node's data directory.
func (g *Group) Data(n *Node) string { return filepath.Join(g.c.Dir, n.ID) }

// Addresses are where the nodes serve clients.
func (g *Group) Addresses() []string {
	out := make([]string, len(g.Nodes))
	for i, n := range g.Nodes {
		out[i] = n.Client
	}
	return out
}

// NewClient makes a client that says that it measures.
func NewClient(addresses ...string) (*participant.Client, error) {
	return participant.NewClient(participant.ClientConfig{Coordinators: addresses, Actor: "bench", Logger: slog.New(slog.DiscardHandler)})
}

const startWait = 20 * time.Second

// Await returns when a node that was started listens.
func (g *Group) Await(ctx context.Context, n *Node) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", n.Client)
		if err == nil {
			return conn.Close()
		}
		if !n.Proc.Alive() {
			return fmt.Errorf("node %s ended before it answered: %w\n%s", n.ID, n.Proc.Err(), g.Tail(n))
		}
		if err := Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("node %s does not answer at %s: %w\n%s", n.ID, n.Client, err, g.Tail(n))
		}
	}
}

func (g *Group) bootstrap(ctx context.Context) error {
	cl, err := NewClient(g.Nodes[0].Client)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	req := &unisinkv1.BootstrapRequest{Meta: cl.NewMeta(), Namespace: fmt.Sprintf("bench%d", time.Now().UnixMilli())}
	for _, n := range g.Nodes {
		req.Nodes = append(req.Nodes, &unisinkv1.Node{Id: n.ID, RaftAddress: n.Raft, ClientAddress: n.Client, Voter: true})
	}
	if _, err := cl.Cluster().Bootstrap(ctx, req); err != nil {
		return fmt.Errorf("bootstrap the group: %w", err)
	}
	return nil
}

// Leader is the node that leads now.
func (g *Group) Leader(ctx context.Context) (*Node, error) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		st, err := g.Client.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
		if err == nil {
			for _, n := range g.Nodes {
				if n.ID == st.GetLeader() && n.Proc.Alive() {
					return n, nil
				}
			}
		}
		if serr := Sleep(ctx, 50*time.Millisecond); serr != nil {
			return nil, fmt.Errorf("the group has no leader: %w", errors.Join(serr, err))
		}
	}
}

// Ended names a node whose process has ended, with the end of its log; nil while all are alive.
func (g *Group) Ended() error {
	for _, n := range g.Nodes {
		if !n.Proc.Alive() {
			return fmt.Errorf("node %s ended: %w\n%s", n.ID, n.Proc.Err(), g.Tail(n))
		}
	}
	return nil
}

// Status asks one node.
func (g *Group) Status(ctx context.Context, n *Node) (*unisinkv1.StatusResponse, error) {
	cl, err := NewClient(n.Client)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	return cl.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
}

// AwaitCaughtUp returns when a node has applied what the group had decided when this was called.
func (g *Group) AwaitCaughtUp(ctx context.Context, n *Node) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	leader, err := g.Leader(ctx)
	if err != nil {
		return err
	}
	want, err := g.Status(ctx, leader)
	if err != nil {
		return fmt.Errorf("ask node %s how far it is: %w", leader.ID, err)
	}
	for {
		st, err := g.Status(ctx, n)
		if err == nil && st.GetAppliedIndex() >= want.GetAppliedIndex() {
			return nil
		}
		if serr := Sleep(ctx, 50*time.Millisecond); serr != nil {
			return fmt.Errorf("node %s does not catch up: %w\n%s", n.ID, errors.Join(serr, err), g.Tail(n))
		}
	}
}

// Tail is the end of a node's log.
func (g *Group) Tail(n *Node) string { return Tail(filepath.Join(g.c.Dir, n.ID+".log")) }

// Tail is the end of a log file.
func Tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// Sleep waits unless ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
