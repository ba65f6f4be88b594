package raftnode

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/coordinator/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is three nodes in memory, within a bubble of virtual time.
type cluster struct {
	t       *testing.T
	net     *MemoryNet
	change  func(*Config) // applied to each node's settings
	running map[string]*runningNode
	serial  uint64
	mu      sync.Mutex // guards running while nodes come and go under load
}

type runningNode struct {
	*Node
	cancel    context.CancelFunc
	ended     chan error
	installed atomic.Int64 // snapshots that replaced the state
}

var nodeIDs = []string{"n1", "n2", "n3"}

func members() []ledger.Node {
	var out []ledger.Node
	for _, id := range nodeIDs {
		out = append(out, ledger.Node{ID: id, RaftAddress: id, ClientAddress: id + ":7070", FeatureLevel: ledger.CurrentFeatureLevel})
	}
	return out
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// inBubble runs f with a bootstrapped cluster, and ends it.
func inBubble(t *testing.T, change func(*Config), f func(*testing.T, *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: NewMemoryNet(), change: change, running: map[string]*runningNode{}}
		defer c.stopAll()
		for _, id := range nodeIDs {
			c.start(id)
		}
		if err := c.running["n1"].Bootstrap(t.Context(), "test", members()); err != nil {
			t.Fatal(err)
		}
		f(t, c)
	})
}

func (c *cluster) config(id string) Config {
	conf := Config{NodeID: id, Logger: quiet(), OnFatal: func(error) {}, Seams: c.net.Seams(id)}
	if c.change != nil {
		c.change(&conf)
	}
	return conf
}

func (c *cluster) start(id string) *runningNode {
	c.t.Helper()
	r := &runningNode{ended: make(chan error, 1)}
	conf := c.config(id)
	effects := conf.Effects
	conf.Effects = func(e []ledger.Effect, index uint64) {
		if e == nil {
			r.installed.Add(1)
		}
		if effects != nil {
			effects(e, index)
		}
	}
	n, err := Open(conf)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Node = n
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- n.Run(ctx) }()
	c.running[id] = r
	return r
}

// end returns what Run returned, of a node that ends by itself.
func (r *runningNode) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(time.Minute): // virtual
		t.Fatal("the node went on")
		return nil
	}
}

// stop ends a node as a kill would: nothing is handed over. It returns what Run returned.
func (c *cluster) stop(id string) error {
	r := c.running[id]
	if r == nil {
		return nil
	}
	delete(c.running, id)
	r.cancel()
	return <-r.ended
}

func (c *cluster) stopAll() {
	for _, id := range nodeIDs {
		if err := c.stop(id); err != nil && !errors.Is(err, ErrStorage) && !errors.Is(err, ErrDiskHung) && !errors.Is(err, ErrUndecodable) {
			c.t.Errorf("%s ended with %v", id, err)
		}
	}
}

// leader waits for one that has caught up, other than those named.
func (c *cluster) leader(except ...string) *runningNode {
	c.t.Helper()
	for range 3000 {
		for _, id := range slices.Sorted(maps.Keys(c.running)) {
			r := c.running[id]
			if now, _ := r.role.get(); now.Leader && !slices.Contains(except, id) {
				return r
			}
		}
		time.Sleep(10 * time.Millisecond) // virtual
	}
	c.t.Fatal("no leader within 30s")
	return nil
}

func (c *cluster) follower() *runningNode {
	l := c.leader()
	for _, id := range nodeIDs {
		if r := c.running[id]; r != nil && r != l {
			return r
		}
	}
	c.t.Fatal("no follower")
	return nil
}

func (c *cluster) commit() ledger.Command {
	c.serial++
	return benchCommand(c.serial)
}

func (c *cluster) mustPropose(r *runningNode, cmd ledger.Command) ledger.Result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	got, err := r.Propose(ctx, cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	if !got.OK() {
		c.t.Fatalf("refused: %s", got.Text)
	}
	return got
}

// settle waits until all running nodes have applied the same entries and compares their states.
func (c *cluster) settle() [32]byte {
	c.t.Helper()
	for range 3000 {
		applied := map[uint64]bool{}
		for _, r := range c.running {
			s := r.Status()
			applied[s.AppliedIndex] = true
			applied[s.LastIndex] = true
		}
		if len(applied) == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond) // virtual
	}
	var hash [32]byte
	var from string
	for id, r := range c.running {
		var h [32]byte
		r.View(func(m *ledger.Machine) { h = m.Hash() })
		if from != "" && h != hash {
			c.t.Fatalf("%s and %s differ at the same index", from, id)
		}
		hash, from = h, id
	}
	return hash
}

func outcomeOf(r *runningNode, id ledger.TxnID) ledger.Outcome {
	var out ledger.Outcome
	r.View(func(m *ledger.Machine) {
		if txn, ok := m.Txn(id); ok {
			out = txn.Outcome
		}
	})
	return out
}

func txnOf(c ledger.Command) ledger.TxnID { return c.Body.(ledger.Commit).Txn }
