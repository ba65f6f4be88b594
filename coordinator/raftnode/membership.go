package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

// firstIncarnation of a namespace; restoring a backup makes higher ones.
const firstIncarnation = 1

// Bootstrap makes the group: this node and the others named, each empty, each running. It is
// called once, on one of them, while Run runs, and returns when the group has a leader (this
// node), a name and a record of every node. It waits until every node holds the beginning of the
// log. If it ends with an error other than ErrBootstrapped, calling it again with the same arguments
// goes on where it ended; on a group that is complete it changes nothing and returns nil.
// ErrBootstrapped means that this node belongs to a group already, of another name or other nodes.
func (n *Node) Bootstrap(ctx context.Context, namespace string, nodes []ledger.Node) error {
	if err := n.checkBootstrap(namespace, nodes); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	wanted := configuration(nodes)
	if have := servers(n.raft); len(have) == 0 {
		err := n.raft.BootstrapCluster(wanted).Error()
		if errors.Is(err, raft.ErrCantBootstrap) {
			return fmt.Errorf("bootstrap: %w", ErrBootstrapped)
		}
		if err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}
	} else if !sameServers(have, wanted.Servers) {
		return fmt.Errorf("bootstrap: %w, which has other nodes", ErrBootstrapped)
	}
	if err := n.awaitLead(ctx); err != nil {
		return fmt.Errorf("bootstrap: no leader yet, are the other nodes running? Repeat it when they are: %w", err)
	}
	if err := n.name(ctx, namespace, nodes); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// name writes the first commands of the log, as many of them as are missing.
func (n *Node) name(ctx context.Context, namespace string, nodes []ledger.Node) error {
	if err := n.Barrier(ctx); err != nil {
		return err
	}
	have, _ := n.fsm.namespace()
	var known []ledger.Node
	n.View(func(m *ledger.Machine) { known = m.Nodes() })
	switch {
	case have != "" && have != namespace:
		return fmt.Errorf("%w, whose namespace is %q", ErrBootstrapped, have)
	case have == namespace && recorded(known, nodes):
		return nil
	case have == "":
		if err := n.found(ctx, nodes); err != nil {
			return err
		}
		if err := n.first(ctx, ledger.Init{Namespace: namespace, Incarnation: firstIncarnation}); err != nil {
			return err
		}
	}
	for _, node := range nodes {
		if err := n.first(ctx, ledger.PutNode{Node: node}); err != nil {
			return err
		}
	}
	return nil
}

// recorded reports whether the ledger has every node, where it was said to be.
func recorded(known, nodes []ledger.Node) bool {
	for _, want := range nodes {
		if !slices.ContainsFunc(known, func(k ledger.Node) bool {
			return k.ID == want.ID && k.RaftAddress == want.RaftAddress && k.ClientAddress == want.ClientAddress
		}) {
			return false
		}
	}
	return true
}

// found gives every node the beginning of the log, which is what lets the group tell a voter from
// one that has lost its disk. First every node learns that it holds what is committed and may vote
// like any other; only then does the log grow beyond where those who may not could elect it.
func (n *Node) found(ctx context.Context, nodes []ledger.Node) error {
	term := n.raft.CurrentTerm()
	if err := n.Barrier(ctx); err != nil {
		return err
	}
	begun := n.raft.AppliedIndex()
	if err := n.probation.end(); err != nil {
		return err
	}
	if err := n.awaitAll(ctx, term, nodes, func(h held) bool { return h.knows >= begun }); err != nil {
		return err
	}
	for n.raft.LastIndex() < foundingEntries {
		for i := n.raft.LastIndex(); i < foundingEntries; i++ {
			n.raft.Apply(nil, 0) // the barrier tells their fate
		}
		if err := n.Barrier(ctx); err != nil {
			return err
		}
	}
	return n.awaitAll(ctx, term, nodes, func(h held) bool { return h.reaches >= foundingEntries })
}

// awaitAll waits until every other node is known, in this term, to hold enough.
func (n *Node) awaitAll(ctx context.Context, term uint64, nodes []ledger.Node, enough func(held) bool) error {
	for {
		var missing []string
		for _, node := range nodes {
			h := n.transport.holds(raft.ServerID(node.ID))
			if node.ID != n.config.NodeID && (h.term != term || !enough(h)) {
				missing = append(missing, node.ID)
			}
		}
		switch {
		case n.ending() || n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term:
			return fmt.Errorf("%w: it did when the group was being made; go on where the leader is", ErrNotLeader)
		case len(missing) == 0:
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("no answer yet from %s; every node must be up while the group is made, repeat it when they are: %w",
				strings.Join(missing, ", "), err)
		}
	}
}

func (n *Node) first(ctx context.Context, body ledger.Body) error {
	r, err := n.Propose(ctx, ledger.Command{Actor: "bootstrap", Body: body})
	if err == nil && !r.OK() {
		err = fmt.Errorf("%T was refused: %s", body, r.Text)
	}
	return err
}

func (n *Node) checkBootstrap(namespace string, nodes []ledger.Node) error {
	errs := []error{ledger.CheckName("namespace", namespace, ledger.MaxNamespace)}
	if n.config.Namespace != "" && n.config.Namespace != namespace {
		errs = append(errs, fmt.Errorf("this node is set up for namespace %q, not %q", n.config.Namespace, namespace))
	}
	ids, addresses := map[string]bool{}, map[string]bool{}
	for _, node := range nodes {
		errs = append(errs, ledger.CheckName("node", node.ID, MaxNodeID))
		if ids[node.ID] || addresses[node.RaftAddress] || node.RaftAddress == "" {
			errs = append(errs, fmt.Errorf("node %q: its id and raft address %q must be there and be its own", node.ID, node.RaftAddress))
		}
		ids[node.ID], addresses[node.RaftAddress] = true, true
	}
	if !ids[n.config.NodeID] {
		errs = append(errs, fmt.Errorf("this node, %q, is not among the nodes", n.config.NodeID))
	}
	return errors.Join(errs...)
}

// awaitLead waits until this node leads and is caught up. When another one leads it says so.
func (n *Node) awaitLead(ctx context.Context) error {
	for {
		now, changed := n.role.get()
		if now.Leader {
			return nil
		}
		if _, id := n.raft.LeaderWithID(); id != "" && string(id) != n.config.NodeID {
			return fmt.Errorf("%w: %s does; go on there", ErrNotLeader, id)
		}
		select {
		case <-changed:
		case <-n.stop.failed:
			return n.stop.cause()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// TransferLeadership hands leadership to the node that is most up to date. It is for a process
// on its way out and for nothing else: the library can be left refusing every write.
// ErrNotLeader if there is nothing to hand over.
func (n *Node) TransferLeadership(ctx context.Context) error {
	if n.raft.State() != raft.Leader {
		return ErrNotLeader
	}
	done := make(chan error, 1)
	future := endWith(n.raft.LeadershipTransfer(), n.over)
	go func() { done <- future.Error() }()
	select {
	case err := <-done:
		return err
	case <-n.stop.failed:
		return n.stop.cause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func configuration(nodes []ledger.Node) raft.Configuration {
	var c raft.Configuration
	for _, node := range nodes {
		c.Servers = append(c.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(node.ID), Address: raft.ServerAddress(node.RaftAddress),
		})
	}
	return c
}

func sameServers(a, b []raft.Server) bool {
	order := func(x, y raft.Server) int { return strings.Compare(string(x.ID), string(y.ID)) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}

// servers is the newest configuration this node knows; memory only.
func servers(r *raft.Raft) []raft.Server { return r.GetConfiguration().Configuration().Servers }

// addresses of the members by id.
func addresses(r *raft.Raft) map[string]string {
	out := map[string]string{}
	for _, s := range servers(r) {
		out[string(s.ID)] = string(s.Address)
	}
	return out
}

func stateName(s raft.RaftState) string { return strings.ToLower(s.String()) }
