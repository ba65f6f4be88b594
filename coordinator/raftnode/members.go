package raftnode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/mutant"
)

const (
	// maxVoters of a group: each one more makes every write wait for more disks.
	maxVoters = 7
	// aliveFor is how long ago a member may have answered and still count as being there.
	aliveFor = 2 * time.Second
	// handOverLimit bounds the attempt to hand leadership over at exit.
	handOverLimit = 2 * time.Second
)

// AddNode makes a running node without history a member: first one that does not vote, and, once it
// holds what is committed, a voter. On return with nil both are on a quorum's disks. A repeat goes on
// where the last one ended, or finds it done; ErrMembership says why the group cannot take the node.
// When ctx ends first, the node stays a member that does not vote. Called on the leader; one change
// at a time.
func (n *Node) AddNode(ctx context.Context, node ledger.Node) error {
	done, err := n.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	suffrage, err := n.place(node)
	if err != nil {
		return err
	}
	// Recorded first: the feature level may not be raised beyond a node that is about to follow.
	if err := n.record(ctx, ledger.PutNode{Node: node}); err != nil {
		return err
	}
	id, address := raft.ServerID(node.ID), raft.ServerAddress(node.RaftAddress)
	switch suffrage {
	case raft.Voter:
		return nil
	case absent:
		if err := n.changed(ctx, n.raft.AddNonvoter(id, address, n.configIndex(), 0)); err != nil {
			return fmt.Errorf("add node %s: %w", node.ID, err)
		}
	}
	if err := n.awaitCaughtUp(ctx, id); err != nil {
		return err
	}
	if err := n.changed(ctx, n.raft.AddVoter(id, address, n.configIndex(), 0)); err != nil {
		return fmt.Errorf("let node %s vote: %w", node.ID, err)
	}
	return nil
}

// RemoveNode takes a member out of the group, for ever: its id is not used again with the data that it
// has. ErrNoSuchNode if there is none; ErrMembership if the members that are left and answer would be
// no majority, or if it is this node, which leads.
func (n *Node) RemoveNode(ctx context.Context, id string) error {
	done, err := n.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	members := servers(n.raft)
	i := slices.IndexFunc(members, func(s raft.Server) bool { return string(s.ID) == id })
	var known bool
	n.View(func(m *ledger.Machine) {
		known = slices.ContainsFunc(m.Nodes(), func(k ledger.Node) bool { return k.ID == id })
	})
	switch {
	case i < 0 && !known:
		return fmt.Errorf("%w: %q", ErrNoSuchNode, id)
	case id == n.config.NodeID:
		return fmt.Errorf("%w: node %s leads; let it hand over and end with `unisink cluster transfer`, then remove it", ErrMembership, id)
	case i >= 0:
		if err := n.quorumWithout(members, id); err != nil {
			return err
		}
		if err := n.changed(ctx, n.raft.RemoveServer(raft.ServerID(id), n.configIndex(), 0)); err != nil {
			return fmt.Errorf("remove node %s: %w", id, err)
		}
	}
	return n.record(ctx, ledger.PutNode{Node: ledger.Node{ID: id}}) // forgotten
}

// HandOver hands leadership to the member that is most up to date. It is for a process on its way out
// and for nothing else, since the library can be left refusing every write; it takes two seconds at
// most. Nil if there was nothing to hand over.
func (n *Node) HandOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	if n.raft.State() != raft.Leader || voters(servers(n.raft)) < 2 {
		return nil
	}
	return n.TransferLeadership(ctx)
}

// beginChange admits one change of the members at a time, on a leader that has applied all of the
// earlier ones.
func (n *Node) beginChange(ctx context.Context) (done func(), err error) {
	if !n.changing.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("%w: another change of the members is under way; repeat this one when it has ended", ErrMembership)
	}
	if err := n.Barrier(ctx); err != nil {
		n.changing.Store(false)
		return nil, err
	}
	return func() { n.changing.Store(false) }, nil
}

// absent is the suffrage of who is no member.
const absent raft.ServerSuffrage = -1

// place checks that the group can take the node, and says what it is in it already.
func (n *Node) place(node ledger.Node) (raft.ServerSuffrage, error) {
	if err := ledger.CheckName("node", node.ID, MaxNodeID); err != nil {
		return absent, fmt.Errorf("%w: %w", ErrMembership, err)
	}
	if node.RaftAddress == "" {
		return absent, fmt.Errorf("%w: node %s has no raft address", ErrMembership, node.ID)
	}
	members := servers(n.raft)
	for _, s := range members {
		switch same, there := string(s.ID) == node.ID, string(s.Address) == node.RaftAddress; {
		case same && there:
			return s.Suffrage, nil
		case same:
			return absent, fmt.Errorf("%w: node %s is a member already, at %s; a node does not move: remove it and add one with a new id",
				ErrMembership, node.ID, s.Address)
		case there:
			return absent, fmt.Errorf("%w: member %s is at %s already", ErrMembership, s.ID, s.Address)
		}
	}
	if have := voters(members); have >= maxVoters {
		return absent, fmt.Errorf("%w: the group has %d voters, and more make it slower and no safer; remove one first", ErrMembership, have)
	}
	return absent, nil
}

// quorumWithout refuses to leave members of whom too few answer.
func (n *Node) quorumWithout(members []raft.Server, id string) error {
	var left, silent []string
	for _, s := range members {
		if s.Suffrage != raft.Voter || string(s.ID) == id {
			continue
		}
		left = append(left, string(s.ID))
		if string(s.ID) != n.config.NodeID && !n.transport.alive(s.ID) {
			silent = append(silent, string(s.ID))
		}
	}
	if len(left)-len(silent) > len(left)/2 || mutant.On("raft/quorum-kept") {
		return nil
	}
	return fmt.Errorf("%w: without %s the voters would be %s, of which %s %s not answer, and the group would stand still; bring one back first",
		ErrMembership, id, strings.Join(left, ", "), strings.Join(silent, ", "), doOrDoes(len(silent)))
}

func doOrDoes(n int) string {
	if n == 1 {
		return "does"
	}
	return "do"
}

func voters(members []raft.Server) int {
	n := 0
	for _, s := range members {
		if s.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}

// configIndex is what a change is based on: raft refuses it when the members have changed since.
func (n *Node) configIndex() uint64 { return n.raft.GetConfiguration().Index() }

// changed waits for a change of the members to be committed.
func (n *Node) changed(ctx context.Context, future raft.IndexFuture) error {
	done := make(chan error, 1)
	go func() { done <- future.Error() }()
	select {
	case err := <-done:
		if err != nil && strings.Contains(err.Error(), "configuration changed since") { // the library has no name for it
			return fmt.Errorf("%w: the members have changed meanwhile; look at them and repeat the command", ErrMembership)
		}
		return proposed(err)
	case <-n.stop.failed:
		return fmt.Errorf("%w: the node stopped", ErrUnknown)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// awaitCaughtUp waits until a member that does not vote holds, on disk, what was committed when the
// wait began. A voter that does not is waited for by every write, or by none when others fail.
func (n *Node) awaitCaughtUp(ctx context.Context, id raft.ServerID) error {
	if mutant.On("raft/caught-up-first") {
		return nil
	}
	n.transport.watch(id, true)
	defer n.transport.watch(id, false)
	term, target := n.raft.CurrentTerm(), n.raft.CommitIndex()
	for {
		h := n.transport.holds(id)
		switch {
		case n.ending() || n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term:
			return fmt.Errorf("%w: it did when node %s was being added; go on where the leader is", ErrNotLeader, id)
		case h.term == term && h.knows >= target:
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%w: node %s has not caught up yet and does not vote; repeat the command to go on: %w", ErrMembership, id, err)
		}
	}
}

// record puts a fact about the members into the ledger.
func (n *Node) record(ctx context.Context, body ledger.PutNode) error {
	r, err := n.Propose(ctx, ledger.Command{Actor: "membership", Body: body})
	switch {
	case err != nil:
		return err
	case !r.OK():
		return fmt.Errorf("%w: %s", ErrMembership, r.Text)
	}
	return nil
}

// removed notices that the group goes on without this node.
func (n *Node) removed() error {
	if n.raft.State() != raft.Shutdown || n.ending() {
		return nil
	}
	return fmt.Errorf("%w: the group goes on without node %s; remove its data directory, and use a new id for a new node", ErrRemoved, n.config.NodeID)
}
