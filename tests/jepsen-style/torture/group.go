package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

const (
	namespace = "torture"
	nodeCount = 3
	answerIn  = 2 * time.Second
	settleIn  = 30 * time.Second
	askAgain  = 20 * time.Millisecond
)

// node is one coordinator node.
type node struct {
	id, client, raft, log string

	mu   sync.Mutex // guards proc
	proc *child.Process
}

func (n *node) process() *child.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// group is the coordinator: three nodes, each a process.
type group struct {
	crew  *child.Crew
	bin   string
	dir   string
	nodes []*node
	ask   *participant.Client
}

// startGroup starts three nodes and makes a group of them.
func startGroup(ctx context.Context, crew *child.Crew, bin, dir string) (*group, error) {
	g := &group{crew: crew, bin: bin, dir: dir}
	for i := range nodeCount {
		id := fmt.Sprintf("n%d", i+1)
		n := &node{id: id, log: filepath.Join(dir, id+".log")}
		var err error
		if n.client, err = freeport.Loopback(); err != nil {
			return nil, err
		}
		if n.raft, err = freeport.Loopback(); err != nil {
			return nil, err
		}
		if err := g.start(n); err != nil {
			return nil, err
		}
		g.nodes = append(g.nodes, n)
	}
	for _, n := range g.nodes {
		if err := awaitPort(ctx, n); err != nil {
			return nil, err
		}
	}
	var err error
	if g.ask, err = newClient(g.addresses()...); err != nil {
		return nil, err
	}
	if err := g.bootstrap(ctx); err != nil {
		return nil, errors.Join(err, g.ask.Close())
	}
	return g, nil
}

func newClient(addresses ...string) (*participant.Client, error) {
	return participant.NewClient(participant.ClientConfig{Coordinators: addresses, Actor: "torture", Logger: slog.New(slog.DiscardHandler)})
}

func (g *group) addresses() []string {
	var all []string
	for _, n := range g.nodes {
		all = append(all, n.client)
	}
	return all
}

func (g *group) start(n *node) error {
	p, err := g.crew.Start(child.Spec{
		Name: n.id, Path: g.bin, Log: n.log,
		Args: []string{
			"serve", "--node", n.id, "--data", filepath.Join(g.dir, n.id), "--client", n.client, "--raft", n.raft,
			"--log-level", "debug", "--log-format", "json",
		},
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.proc = p
	n.mu.Unlock()
	return nil
}

func awaitPort(ctx context.Context, n *node) error {
	return await(ctx, "node "+n.id+" to answer at "+n.client, func() error {
		if !n.process().Alive() {
			return fmt.Errorf("it ended (%w)", n.process().Err())
		}
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", n.client)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (g *group) bootstrap(ctx context.Context) error {
	cl, err := newClient(g.nodes[0].client)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	var nodes []*unisinkv1.Node
	for _, n := range g.nodes {
		nodes = append(nodes, &unisinkv1.Node{Id: n.id, RaftAddress: n.raft, ClientAddress: n.client, Voter: true})
	}
	return rig.Bootstrap(ctx, cl, namespace, nodes)
}

// leader returns who leads and who follows, once all nodes run. It starts those that do not, as a
// supervisor would: a node that was stopped in the middle of a write takes its disk for hung when it
// wakes, and ends itself.
func (g *group) leader(ctx context.Context) (leader *node, followers []*node, err error) {
	if err := g.revive(); err != nil {
		return nil, nil, err
	}
	err = await(ctx, "a leader and two followers", func() error {
		one, cancel := context.WithTimeout(ctx, answerIn)
		defer cancel()
		st, err := g.ask.Cluster().Status(one, &unisinkv1.StatusRequest{})
		if err != nil {
			return err
		}
		leader, followers = nil, nil
		for _, n := range g.nodes {
			switch {
			case n.id == st.GetLeader() && n.process().Alive():
				leader = n
			case n.process().Alive():
				followers = append(followers, n)
			}
		}
		if leader == nil || len(followers) != nodeCount-1 {
			return fmt.Errorf("leader %q, %d followers", st.GetLeader(), len(followers))
		}
		return nil
	})
	return leader, followers, err
}

// revive starts what was killed.
func (g *group) revive() error {
	for _, n := range g.nodes {
		if !n.process().Alive() {
			if err := g.start(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// await asks until the answer is nil.
func await(ctx context.Context, what string, ask func() error) error {
	return rig.Await(ctx, settleIn, what, ask)
}
