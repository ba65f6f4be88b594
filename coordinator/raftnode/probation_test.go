package raftnode

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

// nobodyLeads lets virtual time pass and checks that no running node ever leads.
func (c *cluster) nobodyLeads(d time.Duration) {
	c.t.Helper()
	for range d / (10 * time.Millisecond) {
		for id, r := range c.running {
			if now, _ := r.role.get(); now.Leader {
				c.t.Fatalf("%s leads", id)
			}
		}
		time.Sleep(10 * time.Millisecond) // virtual
	}
}

func (c *cluster) mustStop(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		if err := c.stop(id); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestAnEmptiedVoterElectsNobodyWhoLacksWhatWasDecided: one node is down while the other two decide;
// they die, and one of them comes back empty, with the one that was down.
func TestAnEmptiedVoterElectsNobodyWhoLacksWhatWasDecided(t *testing.T) {
	emptied := func(t *testing.T, change func(*Config), after func(*cluster, ledger.TxnID)) {
		inBubble(t, change, func(t *testing.T, c *cluster) {
			c.settle()
			l := c.leader()
			stale := c.follower().config.NodeID
			c.mustStop(stale)
			decided := c.commit()
			c.mustPropose(l, decided)
			c.settle()
			old := l.config.NodeID
			var wiped string
			for id := range c.running {
				if id != old {
					wiped = id
				}
			}
			c.mustStop(old, wiped)
			c.net.Wipe(wiped)
			c.start(stale)
			c.start(wiped)
			if change != nil {
				after(c, txnOf(decided))
				return
			}
			terms := c.running[stale].Term()
			c.nobodyLeads(time.Minute)
			if got := c.running[stale].Term(); got != terms {
				t.Errorf("the term went from %d to %d: pre-vote is not heeded", terms, got)
			}
			c.start(old)
			after(c, txnOf(decided))
			if !c.running[wiped].probation.allows(1 << 40) {
				t.Error("the emptied node caught up and still does not vote")
			}
			c.mustStop(c.leader(wiped).config.NodeID)
			c.mustPropose(c.leader(), c.commit())
		})
	}
	t.Run("kept", func(t *testing.T) {
		emptied(t, nil, func(c *cluster, id ledger.TxnID) {
			c.mustPropose(c.leader(), c.commit())
			c.settle()
			for node, r := range c.running {
				if got := outcomeOf(r, id); got != ledger.Committed {
					t.Errorf("what was acknowledged is %v on %s", got, node)
				}
			}
		})
	})
	t.Run("lost without the restraint", func(t *testing.T) {
		emptied(t, func(conf *Config) { conf.Seams.TrustEmptied = true }, func(c *cluster, id ledger.TxnID) {
			if got := outcomeOf(c.leader(), id); got == ledger.Committed {
				t.Errorf("the case shows nothing: the decision is %v", got)
			}
		})
	})
}

// keep cuts a node's log behind index, as if no more had reached it.
func (c *cluster) keep(id string, index uint64) {
	c.t.Helper()
	log := c.net.disks[id].log
	last, err := log.LastIndex()
	if err == nil && last > index {
		err = log.DeleteRange(index+1, last)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestAnEmptiedVoterThatHasCaughtUpHalfwayNeitherVotesNorLeads: it has a log again, and not all of
// what it had once acknowledged.
func TestAnEmptiedVoterThatHasCaughtUpHalfwayNeitherVotesNorLeads(t *testing.T) {
	for name, mark := range map[string]uint64{"in probation": 1, "trusted": 0} {
		for longer, at := range map[string][2]uint64{"the other has more": {45, 40}, "it has more": {40, 45}} {
			t.Run(name+"/"+longer, func(t *testing.T) {
				inBubble(t, nil, func(t *testing.T, c *cluster) {
					for range 20 {
						c.mustPropose(c.leader(), c.commit())
					}
					c.settle()
					c.mustStop(nodeIDs...)
					c.keep("n2", at[0])
					c.keep("n3", at[1])
					if err := c.net.disks["n3"].log.SetUint64(probationKey, mark); err != nil {
						t.Fatal(err)
					}
					c.start("n2")
					c.start("n3")
					if mark == 0 {
						c.leader() // and what lay behind is lost
						return
					}
					c.nobodyLeads(time.Minute)
					c.start("n1")
					c.mustPropose(c.leader(), c.commit())
					c.settle()
				})
			})
		}
	}
}

// TestAFoundingThatLostItsLeaderGoesOn: a group that has answered nobody may have any log shorter than
// the founding on one node, and nothing on the others.
func TestAFoundingThatLostItsLeaderGoesOn(t *testing.T) {
	for _, entries := range []uint64{1, 2, 20, foundingEntries - 1} {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{t: t, net: NewMemoryNet(), running: map[string]*runningNode{}}
			defer c.stopAll()
			c.start("n1")
			if err := c.running["n1"].raft.BootstrapCluster(configuration(members())).Error(); err != nil {
				t.Fatal(err)
			}
			c.mustStop("n1")
			for i := uint64(2); i <= entries; i++ {
				if err := c.net.disks["n1"].log.StoreLog(&raft.Log{Index: i, Term: i, Type: raft.LogNoop}); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.net.disks["n1"].log.SetUint64(termKey, entries); err != nil {
				t.Fatal(err)
			}
			for _, id := range nodeIDs {
				c.start(id)
			}
			l := c.leader()
			if err := l.Bootstrap(t.Context(), "test", members()); err != nil {
				t.Fatalf("with %d entries: %v", entries, err)
			}
			c.mustPropose(l, c.commit())
			c.settle()
		})
	}
}

// TestAGroupIsNamedWhenEveryNodeHoldsTheFounding, and not before: one that holds less could later be
// taken for the beginning of a new group.
func TestAGroupIsNamedWhenEveryNodeHoldsTheFounding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: NewMemoryNet(), running: map[string]*runningNode{}}
		defer c.stopAll()
		c.start("n1")
		c.start("n2")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := c.running["n1"].Bootstrap(ctx, "test", members())
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("with a node down: %v", err)
		}
		if name, _ := c.running["n1"].fsm.namespace(); name != "" {
			t.Fatal("the group was named while a node was down")
		}
		c.start("n3")
		if err := c.leader().Bootstrap(t.Context(), "test", members()); err != nil {
			t.Fatal(err)
		}
		for id, r := range c.running {
			if r.raft.LastIndex() < foundingEntries || !r.probation.allows(1<<40) {
				t.Errorf("%s: last index %d, in probation %v", id, r.raft.LastIndex(), r.probation.on.Load())
			}
		}
	})
}

func TestProbationEndsWithWhatTheLeaderCommittedInItsTerm(t *testing.T) {
	entries := func(first uint64, terms ...uint64) []*raft.Log {
		var out []*raft.Log
		for i, term := range terms {
			out = append(out, &raft.Log{Index: first + uint64(i), Term: term})
		}
		return out
	}
	for name, c := range map[string]struct {
		req  raft.AppendEntriesRequest
		ends bool
	}{
		"heartbeat":              {raft.AppendEntriesRequest{Term: 5}, false},
		"nothing committed yet":  {raft.AppendEntriesRequest{Term: 5, Entries: entries(1, 5, 5)}, false},
		"short of the commit":    {raft.AppendEntriesRequest{Term: 5, Entries: entries(1, 5, 5), LeaderCommitIndex: 3}, false},
		"committed in old terms": {raft.AppendEntriesRequest{Term: 5, Entries: entries(1, 4, 4, 5), LeaderCommitIndex: 2}, false},
		"committed in this term": {raft.AppendEntriesRequest{Term: 5, Entries: entries(1, 4, 5), LeaderCommitIndex: 2}, true},
		"committed just before":  {raft.AppendEntriesRequest{Term: 5, PrevLogEntry: 7, PrevLogTerm: 5, LeaderCommitIndex: 7}, true},
		"committed, in the log":  {raft.AppendEntriesRequest{Term: 5, PrevLogEntry: 11, PrevLogTerm: 5, LeaderCommitIndex: 10}, true},
		"committed, trimmed":     {raft.AppendEntriesRequest{Term: 5, PrevLogEntry: 11, PrevLogTerm: 5, LeaderCommitIndex: 9}, false},
	} {
		t.Run(name, func(t *testing.T) {
			disk := raft.NewInmemStore()
			s := &store{logs: disk, stable: disk, stop: newFailStop(func(error) {}), limit: time.Minute}
			p, err := begin(s, &memorySnapshots{}, quiet())
			if err != nil || p.allows(foundingEntries) || !p.allows(foundingEntries-1) {
				t.Fatalf("an empty node is not in probation (%v)", err)
			}
			if err := disk.StoreLogs(entries(10, 5, 5)); err != nil {
				t.Fatal(err)
			}
			if err := p.heard(&c.req); err != nil || p.on.Load() == c.ends {
				t.Errorf("in probation: %v, %v", p.on.Load(), err)
			}
			again, err := begin(s, &memorySnapshots{}, quiet())
			if err != nil || again.on.Load() != p.on.Load() {
				t.Errorf("a restart makes it %v, %v", again.on.Load(), err)
			}
		})
	}
}
