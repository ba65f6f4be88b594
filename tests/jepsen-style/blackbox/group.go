package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/ground"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

const (
	namespace = "jepsen"
	nodeCount = 3
	answerIn  = 2 * time.Second
	settleIn  = 30 * time.Second
	nodeDisk  = 512 << 20
	// keepFor is short, so that a long run goes through the retiring of history too.
	keepFor = "5m"
)

// node is one coordinator node, with a network and a disk of its own.
type node struct {
	*keeper
	host   *ground.Host
	disk   *ground.Disk
	client string // address for clients
	raft   string
	log    string
}

// group is the coordinator: three nodes, each a process.
type group struct {
	nodes []*node
	ask   *participant.Client
}

// newGroup makes the hosts and disks of three nodes. Nothing runs yet.
func newGroup(ctx context.Context, g *ground.Ground, crew *child.Crew, bin, dir string) (*group, error) {
	all := &group{}
	for i := range nodeCount {
		n, err := newNode(ctx, g, crew, bin, dir, fmt.Sprintf("n%d", i+1))
		if err != nil {
			return nil, err
		}
		all.nodes = append(all.nodes, n)
	}
	var err error
	all.ask, err = newClient(all.addresses()...)
	return all, err
}

func newNode(ctx context.Context, g *ground.Ground, crew *child.Crew, bin, dir, id string) (n *node, err error) {
	n = &node{log: filepath.Join(dir, id+".log")}
	if n.host, err = g.AddHost(ctx); err != nil {
		return nil, err
	}
	if n.disk, err = g.AddDisk(ctx, id, nodeDisk); err != nil {
		return nil, err
	}
	if at := n.host.Address(); at != "" {
		n.client, n.raft = net.JoinHostPort(at, "7400"), net.JoinHostPort(at, "7401")
	} else if n.client, err = freeport.Loopback(); err == nil {
		n.raft, err = freeport.Loopback()
	}
	if err != nil {
		return nil, err
	}
	path, args := n.host.Command(
		bin, "serve", "--node", id, "--data", filepath.Join(n.disk.Dir(), "data"), "--client", n.client, "--raft", n.raft,
		"--insecure", "--keep", keepFor, "--log-level", "debug", "--log-format", "json")
	n.keeper = newKeeper(id, crew, func(int) child.Spec { return child.Spec{Name: id, Path: path, Args: args, Log: n.log} })
	return n, nil
}

func newClient(addresses ...string) (*participant.Client, error) {
	return participant.NewClient(participant.ClientConfig{Coordinators: addresses, Actor: "harness", Logger: slog.New(slog.DiscardHandler)})
}

func (g *group) addresses() []string {
	var all []string
	for _, n := range g.nodes {
		all = append(all, n.client)
	}
	return all
}

// bootstrap makes a group of the nodes, once they answer.
func (g *group) bootstrap(ctx context.Context) error {
	for _, n := range g.nodes {
		err := rig.Await(ctx, settleIn, "node "+n.name+" to answer at "+n.client, func() error {
			conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", n.client)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err != nil {
			return err
		}
	}
	cl, err := newClient(g.nodes[0].client)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	var nodes []*unisinkv1.Node
	for _, n := range g.nodes {
		nodes = append(nodes, &unisinkv1.Node{Id: n.name, RaftAddress: n.raft, ClientAddress: n.client, Voter: true})
	}
	if err := rig.Bootstrap(ctx, cl, namespace, nodes); err != nil {
		return err
	}
	return g.healthy(ctx, settleIn)
}

// leader is who leads, as far as anybody knows now.
func (g *group) leader(ctx context.Context) (*node, error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	st, err := g.ask.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
	if err != nil {
		return nil, err
	}
	for _, n := range g.nodes {
		if n.name == st.GetLeader() && n.alive() {
			return n, nil
		}
	}
	return nil, fmt.Errorf("nobody leads (%q)", st.GetLeader())
}

// healthy waits until every node runs and one leads.
func (g *group) healthy(ctx context.Context, limit time.Duration) error {
	return rig.Await(ctx, limit, "three nodes and a leader", func() error {
		for _, n := range g.nodes {
			if !n.alive() {
				return errors.New(n.name + " does not run")
			}
		}
		_, err := g.leader(ctx)
		return err
	})
}
