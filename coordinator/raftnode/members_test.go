package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

func nodeNamed(id string) ledger.Node {
	return ledger.Node{ID: id, RaftAddress: id, ClientAddress: id + ":7070", FeatureLevel: ledger.CurrentFeatureLevel}
}

// stopped ends the nodes that a test has added to the three.
func (c *cluster) stopped(ids ...string) {
	for _, id := range ids {
		if err := c.stop(id); err != nil && !errors.Is(err, ErrRemoved) {
			c.t.Errorf("%s ended with %v", id, err)
		}
	}
}

// change repeats a change of the members on whoever leads, until it is made or refused.
func (c *cluster) changeMembers(what func(ctx context.Context, l *runningNode) error) error {
	for {
		ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
		err := what(ctx, c.leader())
		cancel()
		if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) {
			return err
		}
	}
}

func (c *cluster) votersNow() []string {
	v := c.leader().Status().Voters
	slices.Sort(v)
	return v
}

// TestThreeToFiveToThreeUnderLoad: every command that was answered is on all members in the end.
func TestThreeToFiveToThreeUnderLoad(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		defer c.stopped("n4", "n5")
		var mu sync.Mutex // guards answered
		var answered []ledger.TxnID
		ctx, stop := context.WithCancel(t.Context())
		var load sync.WaitGroup
		commands := make(chan ledger.Command)
		go func() {
			defer close(commands)
			for ctx.Err() == nil {
				commands <- c.commit()
				time.Sleep(time.Millisecond) // virtual
			}
		}()
		for range 8 {
			load.Go(func() {
				for cmd := range commands {
					for {
						one, cancel := context.WithTimeout(context.Background(), 5*time.Second)
						r, err := c.leaderNow(t).Propose(one, cmd)
						cancel()
						if err == nil && r.OK() {
							mu.Lock()
							answered = append(answered, txnOf(cmd))
							mu.Unlock()
							break
						}
						time.Sleep(10 * time.Millisecond) // virtual
					}
				}
			})
		}
		for _, id := range []string{"n4", "n5"} {
			c.launch(id)
			if err := c.changeMembers(func(ctx context.Context, l *runningNode) error { return l.AddNode(ctx, nodeNamed(id)) }); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.votersNow(); len(got) != 5 {
			t.Errorf("the voters are %v", got)
		}
		time.Sleep(time.Second) // virtual
		removed := 0
		for _, id := range []string{"n1", "n2", "n3", "n4"} {
			if removed == 2 {
				break
			}
			err := c.changeMembers(func(ctx context.Context, l *runningNode) error { return l.RemoveNode(ctx, id) })
			if err == nil {
				removed++
			} else if !errors.Is(err, ErrMembership) || !strings.Contains(err.Error(), "cluster transfer") {
				t.Errorf("remove %s: %v", id, err)
			}
		}
		if got := c.votersNow(); len(got) != 3 || !slices.Contains(got, "n5") {
			t.Errorf("the voters are %v", got)
		}
		time.Sleep(time.Second) // virtual
		stop()
		load.Wait()
		left := c.votersNow()
		for id := range c.running {
			if !slices.Contains(left, id) {
				c.stopped(id)
			}
		}
		c.settle()
		if len(answered) < 100 {
			t.Errorf("%d commands are no load", len(answered))
		}
		for id, r := range c.running {
			for _, txn := range answered {
				if outcomeOf(r, txn) != ledger.Committed {
					t.Fatalf("%s has forgotten %s", id, txn)
				}
			}
		}
		c.leader().View(func(m *ledger.Machine) {
			if got := len(m.Nodes()); got != 3 {
				t.Errorf("%d nodes are recorded", got)
			}
		})
	})
}

// launch starts a node without history beside the load, which looks at who runs.
func (c *cluster) launch(id string) *runningNode {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start(id)
}

// leaderNow is whoever leads at this moment, else any node.
func (c *cluster) leaderNow(t *testing.T) *runningNode {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var other *runningNode
	for _, r := range c.running {
		if now, _ := r.role.get(); now.Leader {
			return r
		}
		other = r
	}
	return other
}

// TestANodeVotesWhenItHasCaughtUp: before that it counts for no quorum.
func TestANodeVotesWhenItHasCaughtUp(t *testing.T) {
	stagedBubble(t, nil, func(t *testing.T, c *cluster, net *stagedNet) {
		defer c.stopped("n4")
		l := c.leader()
		for range 50 {
			c.mustPropose(l, c.commit())
		}
		c.start("n4")
		net.script(func(m message) fate {
			a, appends := m.command.(*raft.AppendEntriesRequest)
			return fate{lost: m.to == "n4" && appends && len(a.Entries) > 0}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := l.AddNode(ctx, nodeNamed("n4"))
		if !errors.Is(err, ErrMembership) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "caught up") {
			t.Errorf("a node that cannot catch up was added: %v", err)
		}
		if got := l.Status().Voters; slices.Contains(got, "n4") {
			t.Errorf("it votes: %v", got)
		}
		net.script(nil)
		if err := l.AddNode(t.Context(), nodeNamed("n4")); err != nil {
			t.Fatalf("the repeat: %v", err)
		}
		if got := l.Status().Voters; !slices.Contains(got, "n4") {
			t.Errorf("the voters are %v", got)
		}
		if err := l.AddNode(t.Context(), nodeNamed("n4")); err != nil {
			t.Errorf("a repeat of what is done: %v", err)
		}
		c.settle()
	})
}

// TestAChangeThatWouldLoseTheQuorumIsRefused: n1 to n3, of which one is down.
func TestAChangeThatWouldLoseTheQuorumIsRefused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		down := c.follower().config.NodeID
		other := ""
		for _, id := range nodeIDs {
			if id != down && id != l.config.NodeID {
				other = id
			}
		}
		if err := c.stop(down); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // virtual
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := l.RemoveNode(ctx, other)
		if !errors.Is(err, ErrMembership) || !strings.Contains(err.Error(), down+" does not answer") {
			t.Errorf("the one that is needed was removed: %v", err)
		}
		if err := l.RemoveNode(t.Context(), l.config.NodeID); !errors.Is(err, ErrMembership) {
			t.Errorf("the leader removed itself: %v", err)
		}
		if err := l.RemoveNode(t.Context(), "n9"); !errors.Is(err, ErrNoSuchNode) {
			t.Errorf("a stranger was removed: %v", err)
		}
		if err := l.RemoveNode(t.Context(), down); err != nil {
			t.Errorf("the one that is down: %v", err)
		}
		c.mustPropose(l, c.commit())
		c.settle()
	})
}

func TestANodeIsAddedUnderOneIdAtOneAddress(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		old := nodeNamed("n4")
		old.FeatureLevel = 0
		for name, node := range map[string]ledger.Node{
			"moved":      {ID: "n2", RaftAddress: "elsewhere", ClientAddress: "e:1", FeatureLevel: 1},
			"same place": {ID: "n4", RaftAddress: "n2", ClientAddress: "e:1", FeatureLevel: 1},
			"bad name":   {ID: "n/4", RaftAddress: "n4", ClientAddress: "e:1", FeatureLevel: 1},
			"no address": {ID: "n4", ClientAddress: "e:1", FeatureLevel: 1},
			"too old":    old,
		} {
			if err := l.AddNode(t.Context(), node); !errors.Is(err, ErrMembership) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := c.follower().AddNode(t.Context(), nodeNamed("n4")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower added a node: %v", err)
		}
		if got := c.votersNow(); !slices.Equal(got, nodeIDs) {
			t.Errorf("the voters are %v", got)
		}
	})
}

// TestARemovedNodeEndsAndDisturbsNobody: it is told, or not, and then calls for votes in vain.
func TestARemovedNodeEndsAndDisturbsNobody(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		gone := c.follower()
		id := gone.config.NodeID
		term := l.Term()
		if err := l.RemoveNode(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // virtual
		if now := c.leader(); now != l || l.Term() != term {
			t.Errorf("term %d became %d", term, l.Term())
		}
		c.mustPropose(l, c.commit())
		select {
		case err := <-gone.ended:
			if !errors.Is(err, ErrRemoved) {
				t.Errorf("it ended with %v", err)
			}
			delete(c.running, id)
		default: // it was cut off from the log before it could learn
			c.stopped(id)
		}
		c.settle()
	})
}

func TestLeadershipIsHandedOverAtExit(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		if err := c.follower().HandOver(t.Context()); err != nil {
			t.Errorf("a follower has nothing to hand over: %v", err)
		}
		began := time.Now()
		if err := l.HandOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.stop(l.config.NodeID); err != nil {
			t.Fatal(err)
		}
		c.mustPropose(c.leader(), c.commit())
		if took := time.Since(began); took > 400*time.Millisecond {
			t.Errorf("the next decision took %s, longer than a handed over leadership does", took)
		}
		for _, r := range c.running { // nobody is left to hand over to
			for id := range c.running {
				if id != r.config.NodeID {
					c.net.Isolate(id)
				}
			}
		}
		began = time.Now()
		_ = c.leader().HandOver(t.Context()) // it may or may not have noticed yet
		if took := time.Since(began); took > handOverLimit+time.Second {
			t.Errorf("an exit waited %s", took)
		}
	})
}

// TestThreeToFiveToThreeOnDisk is on the real network, whose pipelines hide the answers.
func TestThreeToFiveToThreeOnDisk(t *testing.T) {
	t.Parallel() // it waits in real time
	dir := t.TempDir()
	nodes := threeOnDisk(t, dir, nil)
	serial := uint64(0)
	work := func(on []*runningNode) {
		for range 10 {
			serial++
			propose(t, on, benchCommand(serial))
		}
	}
	work(nodes)
	lead := func(what func(r *runningNode) error) {
		t.Helper()
		ctx := patience(t)
		for i := 0; ; i++ {
			err := what(nodes[i%len(nodes)])
			if err == nil {
				return
			}
			if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) || pause(ctx) != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range []string{"n4", "n5"} {
		r := open(t, diskConfig(dir, id))
		node := ledger.Node{ID: id, RaftAddress: r.RaftAddress(), ClientAddress: id, FeatureLevel: ledger.CurrentFeatureLevel}
		lead(func(l *runningNode) error {
			ctx, cancel := context.WithTimeout(patience(t), 20*time.Second)
			defer cancel()
			return l.AddNode(ctx, node)
		})
		nodes = append(nodes, r)
		work(nodes)
	}
	agree(t, nodes)
	for _, id := range []string{"n4", "n5"} {
		lead(func(l *runningNode) error {
			if l.config.NodeID == id {
				return fmt.Errorf("%w: another one is asked", ErrNotLeader)
			}
			err := l.RemoveNode(patience(t), id)
			if errors.Is(err, ErrNoSuchNode) {
				return nil // the answer was lost, the change was not
			}
			return err
		})
		work(nodes[:3])
	}
	agree(t, nodes[:3])
	for _, r := range nodes[3:] {
		r.cancel()
		r.cancel = nil
		if err := <-r.ended; err != nil && !errors.Is(err, ErrRemoved) {
			t.Errorf("%s ended with %v", r.config.NodeID, err)
		}
	}
}
