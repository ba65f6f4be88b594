// Package coordinatortest runs whole coordinator groups inside a test, on an in-memory network and
// disk, in a testing/synctest bubble: time is virtual, and what is left running fails the test.
package coordinatortest

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/raftnode"
	"github.com/unisink/unisink/coordinator/raftnode/devcert"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Namespace of every group.
const Namespace = "test"

// Cluster is a group of nodes. Its methods may be called from the test's goroutines.
type Cluster struct {
	t      testing.TB
	net    *raftnode.MemoryNet
	change func(*coordinator.Config)
	secure func() *tls.Config // of the cluster's own clients; nil: plain text

	mu    sync.Mutex // guards nodes' fields; held for memory only
	ids   []string
	nodes map[string]*node
}

type node struct {
	id      string
	clients *bufconn.Listener // nil while it is down
	conns   []net.Conn
	log     *raftnode.Node
	cut     bool
	stop    context.CancelFunc
	done    chan error
}

// Start starts a group of n nodes, bootstraps it, and ends it with the test.
func Start(t testing.TB, n int) *Cluster {
	t.Helper()
	return StartNew(t, n).bootstrap()
}

// StartWith is Start, with each node's settings as change leaves them.
func StartWith(t testing.TB, n int, change func(*coordinator.Config)) *Cluster {
	t.Helper()
	return (&Cluster{t: t, net: raftnode.NewMemoryNet(), nodes: map[string]*node{}, change: change}).start(n).bootstrap()
}

// StartSecure is Start with certificates: of each node, by its id, in the directory, and of admin, who
// the cluster's own clients are. Change, if not nil, changes each node's settings.
func StartSecure(t testing.TB, n int, dir, admin string, change func(*coordinator.Config)) *Cluster {
	t.Helper()
	c := &Cluster{t: t, net: raftnode.NewMemoryNet(), nodes: map[string]*node{}, secure: Secure(t, dir, admin)}
	c.change = func(cfg *coordinator.Config) {
		cfg.ClientTLS = &raftnode.TLSConfig{
			CertFile: devcert.CertFile(dir, cfg.NodeID), KeyFile: devcert.KeyFile(dir, cfg.NodeID), CAFile: filepath.Join(dir, devcert.CAFile),
		}
		if change != nil {
			change(cfg)
		}
	}
	return c.start(n).bootstrap()
}

// Secure is how the bearer of a certificate in the directory connects; "" has none.
func Secure(t testing.TB, dir, name string) func() *tls.Config {
	t.Helper()
	f := participant.TLSFiles{CA: filepath.Join(dir, devcert.CAFile)}
	if name != "" {
		f.Cert, f.Key = devcert.CertFile(dir, name), devcert.KeyFile(dir, name)
	}
	from, err := f.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	return from
}

func (c *Cluster) bootstrap() *Cluster {
	t := c.t
	t.Helper()
	cl := c.ClientAt(c.ids[0])
	req := &unisinkv1.BootstrapRequest{Meta: cl.NewMeta(), Namespace: Namespace}
	for _, id := range c.ids {
		req.Nodes = append(req.Nodes, &unisinkv1.Node{Id: id, RaftAddress: id, ClientAddress: Address(id), Voter: true})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := cl.Cluster().Bootstrap(ctx, req); err != nil {
		t.Fatalf("bootstrap: %v", err)
	}
	c.Leader()
	return c
}

// StartNew starts nodes that belong to no group yet.
func StartNew(t testing.TB, n int) *Cluster {
	t.Helper()
	return (&Cluster{t: t, net: raftnode.NewMemoryNet(), nodes: map[string]*node{}}).start(n)
}

func (c *Cluster) start(n int) *Cluster {
	c.t.Helper()
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		c.ids = append(c.ids, id)
		c.nodes[id] = &node{id: id}
		c.Restart(id)
	}
	c.t.Cleanup(func() {
		for _, id := range c.ids {
			c.Crash(id)
		}
	})
	return c
}

// Address is where clients find a node.
func Address(id string) string { return id + ":7400" }

// IDs of the nodes.
func (c *Cluster) IDs() []string { return c.ids }

// Addresses of all nodes.
func (c *Cluster) Addresses() []string {
	out := make([]string, len(c.ids))
	for i, id := range c.ids {
		out[i] = Address(id)
	}
	return out
}

// Restart starts a node that is down, on the disk that it had.
func (c *Cluster) Restart(id string) {
	c.t.Helper()
	n := c.nodes[id]
	l := bufconn.Listen(1 << 20)
	cfg := coordinator.Config{
		NodeID: id, RaftBind: id, ClientAdvertise: Address(id), ClientBind: Address(id), Logger: c.logger(), Insecure: true,
		Seams: coordinator.Seams{
			Raft: c.net.Seams(id), Clients: l, Dial: c.Dial, OnFatal: func(err error) { c.t.Errorf("node %s must not go on: %v", id, err) },
			Opened: func(log *raftnode.Node) { n.log = log },
		},
	}
	if c.change != nil {
		c.change(&cfg)
	}
	co, err := coordinator.New(cfg)
	if err != nil {
		c.t.Fatalf("start node %s: %v", id, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	c.mu.Lock()
	n.clients, n.stop, n.done = l, stop, done
	c.mu.Unlock()
	go func() { done <- co.Run(ctx) }()
}

// logger writes to standard error when UNISINK_TEST_LOG is set, else nowhere.
func (c *Cluster) logger() *slog.Logger {
	if os.Getenv("UNISINK_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Crash ends a node. To everybody else it looks like kill -9: its connections break first, so
// that nothing it says on the way down is heard.
func (c *Cluster) Crash(id string) {
	c.t.Helper()
	c.net.Isolate(id)
	c.mu.Lock()
	n := c.nodes[id]
	l, stop, done := n.clients, n.stop, n.done
	n.clients = nil
	c.mu.Unlock()
	if l == nil {
		c.net.Heal(id)
		return
	}
	c.breakConns(n)
	stop()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		c.t.Errorf("node %s: %v", id, err)
	}
	c.net.Heal(id)
}

// Isolate cuts a node off from the other nodes and from all clients.
func (c *Cluster) Isolate(id string) {
	c.net.Isolate(id)
	c.mu.Lock()
	n := c.nodes[id]
	n.cut = true
	c.mu.Unlock()
	c.breakConns(n)
}

// Heal undoes Isolate.
func (c *Cluster) Heal(id string) {
	c.net.Heal(id)
	c.mu.Lock()
	c.nodes[id].cut = false
	c.mu.Unlock()
}

func (c *Cluster) breakConns(n *node) {
	c.mu.Lock()
	conns := n.conns
	n.conns = nil
	c.mu.Unlock()
	for _, x := range conns {
		_ = x.Close() // the other side may have closed it
	}
}

// Dial reaches a node by its client address, if it is up and not cut off.
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) {
	for _, id := range c.ids {
		if Address(id) != addr {
			continue
		}
		c.mu.Lock()
		n := c.nodes[id]
		l := n.clients
		if n.cut {
			l = nil
		}
		c.mu.Unlock()
		if l == nil {
			return nil, fmt.Errorf("dial %s: connection refused", addr)
		}
		conn, err := l.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		n.conns = append(n.conns, conn)
		c.mu.Unlock()
		return conn, nil
	}
	return nil, fmt.Errorf("dial %s: no such host", addr)
}

// Client of the whole group, closed with the test.
func (c *Cluster) Client() *participant.Client { return c.client(c.Addresses()...) }

// ClientAt is a client that knows one node alone.
func (c *Cluster) ClientAt(id string) *participant.Client { return c.client(Address(id)) }

func (c *Cluster) client(addresses ...string) *participant.Client {
	return c.ClientWith(c.secure, addresses...)
}

// ClientWith is a client with other certificates than the cluster's own, of the nodes named, or of all.
func (c *Cluster) ClientWith(secure func() *tls.Config, addresses ...string) *participant.Client {
	c.t.Helper()
	if len(addresses) == 0 {
		addresses = c.Addresses()
	}
	cl, err := participant.NewClient(participant.ClientConfig{Coordinators: addresses, TLSFrom: secure, Dial: c.Dial, Actor: "test"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			c.t.Errorf("close a client: %v", err)
		}
	})
	return cl
}

// Status asks one node about itself.
func (c *Cluster) Status(id string) (*unisinkv1.StatusResponse, error) {
	cl, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{Address(id)}, TLSFrom: c.secure, Dial: c.Dial, Patience: 100 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	st, err := cl.Cluster().Status(ctx, &unisinkv1.StatusRequest{StateHash: true})
	return st, errors.Join(err, cl.Close())
}

// Leader waits until a majority agrees on a leader that is up, and returns its id.
func (c *Cluster) Leader() string {
	c.t.Helper()
	for range 1200 {
		votes := map[string]int{}
		for _, id := range c.ids {
			if st, err := c.Status(id); err == nil {
				votes[st.GetLeader()]++
			}
		}
		for id, n := range votes {
			if st, err := c.Status(id); id != "" && n > len(c.ids)/2 && err == nil && st.GetState() == "leader" {
				return id
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatal("no leader within a minute")
	return ""
}

// Decide puts a command into the leader's log past the edge, as a build does whose edge judges less.
func (c *Cluster) Decide(b ledger.Body) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := c.nodes[c.Leader()].log.Propose(ctx, ledger.Command{Actor: "test", Body: b})
	if err != nil || !r.OK() {
		c.t.Fatalf("%T past the edge: %s, %v", b, r.Text, err)
	}
}

// AssertSameState waits until all nodes have applied the same, and compares the hashes and the digests of
// what they hold.
func (c *Cluster) AssertSameState() {
	c.t.Helper()
	var seen map[string]string
	for range 200 {
		seen = map[string]string{}
		for _, id := range c.ids {
			if st, err := c.Status(id); err == nil {
				seen[id] = fmt.Sprintf("%d %s %s", st.GetAppliedIndex(), st.GetStateDigest(), st.GetStateHash())
			}
		}
		distinct := map[string]bool{}
		for _, s := range seen {
			distinct[s] = true
		}
		if len(seen) == len(c.ids) && len(distinct) == 1 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Errorf("the nodes did not come to one state: %v", seen)
}

// EmptyHash is what a node without any history reports.
func EmptyHash() string {
	h := ledger.New().Hash()
	return hex.EncodeToString(h[:])
}
