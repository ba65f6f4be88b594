package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

func TestManyCallersShareEntriesAndEachGetsItsOwnResult(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		before := l.Status()
		const callers, each = 100, 20
		errs := make(chan error, callers)
		for i := range callers {
			go func() {
				errs <- func() error {
					for j := range each {
						cmd := benchCommand(uint64(i*each + j + 1))
						r, err := l.Propose(t.Context(), cmd)
						if err != nil || r.Outcome != ledger.Committed {
							return fmt.Errorf("commit: %v %w", r, err)
						}
						abort := ledger.Command{Body: ledger.PresumeAbort{Txn: benchTxn(uint64(1_000_000 + i*each + j)), Why: "test"}}
						if r, err = l.Propose(t.Context(), abort); err != nil || r.Outcome != ledger.Aborted {
							return fmt.Errorf("abort: %v %w", r, err)
						}
						if got := outcomeOf(l, txnOf(cmd)); got != ledger.Committed {
							return fmt.Errorf("answered before it was applied: %v", got)
						}
					}
					return nil
				}()
			}()
		}
		for range callers {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		after := l.Status()
		commands, entries := after.Commands-before.Commands, after.Entries-before.Entries
		if commands != 2*callers*each || entries*4 > commands {
			t.Errorf("%d commands in %d entries", commands, entries)
		}
		c.settle()
	})
}

func benchTxn(serial uint64) ledger.TxnID { return benchCommand(serial).Body.(ledger.Commit).Txn }

func TestAKilledLeaderIsReplacedAndComesBackAsFollower(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		first := c.commit()
		c.mustPropose(old, first)
		term := old.Term()
		began := time.Now()
		if err := c.stop(old.config.NodeID); err != nil {
			t.Fatal(err)
		}
		l := c.leader()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a new leader took %s", took)
		}
		if l.Term() <= term {
			t.Errorf("the new leader has term %d, the old one had %d", l.Term(), term)
		}
		if got := outcomeOf(l, txnOf(first)); got != ledger.Committed {
			t.Errorf("the new leader leads without what was acknowledged: %v", got)
		}
		c.mustPropose(l, c.commit())
		c.start(old.config.NodeID)
		c.settle()
	})
}

func TestLeadershipTellsTheLatestStateWithItsTerm(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		if got := <-l.Leadership(); !got.Leader || got.Term != l.Term() {
			t.Errorf("the leader was told %+v", got)
		}
		c.net.Isolate(l.config.NodeID)
		if got := <-l.Leadership(); got.Leader {
			t.Errorf("a leader that was cut off was told %+v", got)
		}
		next := c.leader(l.config.NodeID)
		if got := <-next.Leadership(); !got.Leader || got.Term != next.Term() {
			t.Errorf("the next leader was told %+v", got)
		}
		c.net.Heal(l.config.NodeID)
		c.settle()
		if id, address := l.Leader(); id != next.config.NodeID || address != id+":7070" {
			t.Errorf("the old leader points to %q at %q", id, address)
		}
	})
}

func TestARestartReadsSnapshotAndLog(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		for range 30 {
			c.mustPropose(l, c.commit())
		}
		c.settle()
		for _, r := range c.running {
			if err := r.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
		for range 30 {
			c.mustPropose(l, c.commit())
		}
		hash := c.settle()
		for _, id := range nodeIDs {
			if err := c.stop(id); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range nodeIDs {
			if r := c.start(id); r.installed.Load() != 1 || r.Status().SnapshotIndex == 0 {
				t.Errorf("%s did not start from its snapshot", id)
			}
		}
		c.leader()
		if c.settle() != hash {
			t.Error("the state changed in a restart")
		}
	})
}

func TestAFollowerThatFellBehindCatchesUpBySnapshot(t *testing.T) {
	change := func(conf *Config) { conf.Seams.TrailingLogs = 5 }
	inBubble(t, change, func(t *testing.T, c *cluster) {
		behind := c.follower().config.NodeID
		if err := c.stop(behind); err != nil {
			t.Fatal(err)
		}
		l := c.leader()
		for range 50 {
			c.mustPropose(l, c.commit())
		}
		if err := l.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		r := c.start(behind)
		c.settle()
		if r.installed.Load() != 1 {
			t.Errorf("%d snapshots were installed", r.installed.Load())
		}
	})
}

// TestO8_ALostLeadershipIsUnknownAndARepeatDecidesOnce: no answer from the log means unknown,
// whichever way it went, and the same request asked again is answered once and for all.
func TestO8_ALostLeadershipIsUnknownAndARepeatDecidesOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		cmd := c.commit()
		c.net.Isolate(old.config.NodeID)
		if _, err := old.Propose(t.Context(), cmd); !errors.Is(err, ErrUnknown) {
			t.Fatalf("a leader that was cut off answered %v", err)
		}
		if _, err := old.Propose(t.Context(), cmd); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a deposed leader answered %v", err)
		}
		l := c.leader(old.config.NodeID)
		first := c.mustPropose(l, cmd)
		c.net.Heal(old.config.NodeID)
		c.settle()
		again := c.mustPropose(c.leader(), cmd)
		if first.Outcome != ledger.Committed || again.Outcome != ledger.Committed {
			t.Errorf("answered %v, then %v", first.Outcome, again.Outcome)
		}
		c.settle()
	})
}

func TestADeadlineIsUnknownOnceTheCommandIsOnItsWay(t *testing.T) {
	inBubble(t, func(conf *Config) { conf.MaxInFlight = 2 }, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.net.Isolate(l.config.NodeID)
		short := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := l.Propose(ctx, c.commit())
			return err
		}
		if err := short(); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first got %v", err)
		}
		if err := short(); !errors.Is(err, ErrOverloaded) || errors.Is(err, ErrUnknown) {
			t.Errorf("the second, which waited for the first to come back, got %v", err)
		}
		if err := short(); !errors.Is(err, ErrOverloaded) || errors.Is(err, ErrUnknown) {
			t.Errorf("one that found no place in flight got %v", err)
		}
	})
}

func TestABarrierShowsEverythingCommittedBeforeItAndNeedsAQuorum(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		if err := l.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.settle()
		if err := c.follower().Barrier(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower's barrier: %v", err)
		}
		c.net.Isolate(l.config.NodeID)
		if err := l.Barrier(t.Context()); !errors.Is(err, ErrUnknown) {
			t.Errorf("a barrier without quorum: %v", err)
		}
	})
}

func TestARepeatedBootstrapFindsItDoneAndAnotherOneIsRefused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		c.settle()
		for _, id := range nodeIDs {
			r := c.running[id]
			before := c.settle()
			err := r.Bootstrap(t.Context(), "test", members())
			if leads := r == c.leader(); leads && err != nil || !leads && !errors.Is(err, ErrNotLeader) {
				t.Errorf("%s was asked for the same again and said: %v", id, err)
			}
			if c.settle() != before {
				t.Errorf("%s changed something", id)
			}
			if err := r.Bootstrap(t.Context(), "test", members()[:2]); !errors.Is(err, ErrBootstrapped) && id != "n3" {
				t.Errorf("%s was bootstrapped with other nodes: %v", id, err)
			}
		}
		if err := c.leader().Bootstrap(t.Context(), "other", members()); !errors.Is(err, ErrBootstrapped) {
			t.Errorf("the group got another name: %v", err)
		}
		if s := c.leader().Status(); !s.Bootstrapped || !slices.Equal(s.Voters, nodeIDs) || s.State != "leader" {
			t.Errorf("status %+v", s)
		}
	})
}

// TestAnUnfinishedBootstrapGoesOn: the group was formed, and its first node died before it had
// given it a name.
func TestAnUnfinishedBootstrapGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: NewMemoryNet(), running: map[string]*runningNode{}}
		defer c.stopAll()
		for _, id := range nodeIDs {
			c.start(id)
		}
		if err := c.running["n1"].raft.BootstrapCluster(configuration(members())).Error(); err != nil {
			t.Fatal(err)
		}
		l := c.leader()
		if err := l.Bootstrap(t.Context(), "test", members()); err != nil {
			t.Fatal(err)
		}
		if name, incarnation := l.fsm.namespace(); name != "test" || incarnation != 1 {
			t.Errorf("the group is %q, %d", name, incarnation)
		}
		c.settle()
	})
}

func TestAnEmptiedNodeNeverFormsAClusterOfItsOwn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		for _, id := range nodeIDs {
			if err := c.stop(id); err != nil {
				t.Fatal(err)
			}
		}
		c.net.Wipe("n1")
		r := c.start("n1")
		time.Sleep(time.Minute) // virtual
		if s := r.Status(); s.Bootstrapped || s.Term != 0 || s.State != "follower" {
			t.Errorf("the emptied node is %+v", s)
		}
		if _, err := r.Propose(t.Context(), c.commit()); !errors.Is(err, ErrNotBootstrapped) {
			t.Errorf("the emptied node answered %v", err)
		}
	})
}

// TestNewNodesFormNoGroupUnasked: three of them, up for an hour, wait to be told.
func TestNewNodesFormNoGroupUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: NewMemoryNet(), running: map[string]*runningNode{}}
		defer c.stopAll()
		for _, id := range nodeIDs {
			c.start(id)
		}
		time.Sleep(time.Hour) // virtual
		for id, r := range c.running {
			if s := r.Status(); s.Bootstrapped || s.Term != 0 || s.LastIndex != 0 {
				t.Errorf("%s is %+v", id, s)
			}
		}
	})
}

func TestBootstrapChecksWhatItIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: NewMemoryNet(), running: map[string]*runningNode{}}
		defer c.stopAll()
		r := c.start("n1")
		for name, nodes := range map[string][]ledger.Node{
			"itself missing": members()[1:],
			"id twice":       append(members(), members()[0]),
			"bad name":       append(members(), ledger.Node{ID: "a/b", RaftAddress: "x"}),
			"no address":     append(members(), ledger.Node{ID: "n4"}),
		} {
			if err := r.Bootstrap(t.Context(), "test", nodes); err == nil || r.Status().Bootstrapped {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := r.Bootstrap(t.Context(), "", members()); err == nil {
			t.Error("a group without a name")
		}
	})
}

func TestLeadershipIsHandedOverOnRequest(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		if err := c.follower().TransferLeadership(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower handed over leadership: %v", err)
		}
		if err := l.TransferLeadership(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.mustPropose(c.leader(l.config.NodeID), c.commit())
	})
}

// TestP26_AnEntryOfAFutureVersionStopsEveryReplicaThatCannotReadIt also checks that nothing of
// the entry, nor of those behind it, was applied. Whoever learns that the entry is committed
// stops; the last node cannot learn it any more, and applies nothing either.
func TestP26_AnEntryOfAFutureVersionStopsEveryReplicaThatCannotReadIt(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		hash := c.settle()
		good := entryOf(t, c.commit())
		l := c.leader()
		l.raft.Apply(append(good, 0xfa, 0x01, 0x00), 0) // field 31
		l.raft.Apply(good, 0)
		time.Sleep(time.Minute) // virtual
		stopped := 0
		for id, r := range c.running {
			select {
			case err := <-r.ended:
				stopped++
				if !errors.Is(err, ErrUndecodable) || !errors.Is(err, errUnknownField) {
					t.Errorf("%s went on: %v", id, err)
				}
				r.ended <- nil
			default:
			}
			r.View(func(m *ledger.Machine) {
				if m.Hash() != hash {
					t.Errorf("%s applied a part of it", id)
				}
			})
		}
		if stopped < 2 {
			t.Errorf("%d nodes stopped", stopped)
		}
	})
}

// faultyLog is a log store that fails or hangs when told.
type faultyLog struct {
	raft.LogStore
	fail atomic.Bool
	hang atomic.Pointer[chan struct{}]
}

var errDisk = errors.New("input/output error")

func (f *faultyLog) StoreLogs(logs []*raft.Log) error {
	if hang := f.hang.Load(); hang != nil {
		<-*hang
	}
	if f.fail.Load() {
		// the entries may be there all the same
		return errors.Join(errDisk, f.LogStore.StoreLogs(logs))
	}
	return f.LogStore.StoreLogs(logs)
}

func withFaultyLogs(logs map[string]*faultyLog) func(*Config) {
	return func(conf *Config) {
		logs[conf.NodeID] = &faultyLog{LogStore: conf.Seams.Logs}
		conf.Seams.Logs = logs[conf.NodeID]
	}
}

func TestTheFirstStorageErrorEndsTheNode(t *testing.T) {
	logs := map[string]*faultyLog{}
	inBubble(t, withFaultyLogs(logs), func(t *testing.T, c *cluster) {
		old := c.leader()
		cmd := c.commit()
		logs[old.config.NodeID].fail.Store(true)
		if _, err := old.Propose(t.Context(), cmd); !errors.Is(err, ErrUnknown) {
			t.Errorf("the proposal whose write failed got %v", err)
		}
		if err := old.end(t); !errors.Is(err, ErrStorage) || !errors.Is(err, errDisk) {
			t.Errorf("the node ended with %v", err)
		}
		if _, err := old.Propose(t.Context(), cmd); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a failed node answered %v", err)
		}
		delete(c.running, old.config.NodeID)
		c.mustPropose(c.leader(), cmd)
		c.start(old.config.NodeID)
		c.settle()
	})
}

func TestAHungDiskEndsTheNodeAndAnotherLeads(t *testing.T) {
	logs := map[string]*faultyLog{}
	inBubble(t, withFaultyLogs(logs), func(t *testing.T, c *cluster) {
		thaw := make(chan struct{})
		defer close(thaw)
		old := c.leader()
		logs[old.config.NodeID].hang.Store(&thaw)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := old.Propose(ctx, c.commit()); !errors.Is(err, ErrUnknown) {
			t.Errorf("the proposal behind the hung write got %v", err)
		}
		if err := old.end(t); !errors.Is(err, ErrDiskHung) {
			t.Errorf("the node ended with %v", err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 8*time.Second {
			t.Errorf("it took %s", took)
		}
		delete(c.running, old.config.NodeID)
		c.mustPropose(c.leader(), c.commit())
	})
}

func TestTheTermOfAHungOrFailedVoteNeverReachesRaft(t *testing.T) {
	stop := newFailStop(func(error) {})
	if err := stop.opened(); err != nil {
		t.Fatal(err)
	}
	s := &store{stable: brokenStable{}, stop: stop, limit: time.Second}
	went := make(chan bool, 1)
	go func() {
		defer close(went)
		s.SetUint64([]byte("CurrentTerm"), 7) //nolint:errcheck // it must not return
		went <- true
	}()
	if <-went {
		t.Error("the caller went on after its vote failed")
	}
	if !errors.Is(stop.cause(), ErrStorage) {
		t.Errorf("the cause is %v", stop.cause())
	}
}

type brokenStable struct{ raft.StableStore }

func (brokenStable) SetUint64([]byte, uint64) error { return errDisk }

// TestReplicasAreEqualAfterARandomRun cuts nodes off and restarts them at random while callers
// repeat every request until it is answered.
func TestReplicasAreEqualAfterARandomRun(t *testing.T) {
	seeds, lasts := 8, 20*time.Second
	if testing.Short() {
		seeds, lasts = 3, 6*time.Second // snapshots of what piles up in a longer run take most of the time
	}
	for seed := range seeds {
		t.Run("seed "+strconv.Itoa(seed), func(t *testing.T) { randomRun(t, uint64(seed), lasts) })
	}
}
