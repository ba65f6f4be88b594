package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/coordinator/raftnode"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

const namespace = "sim"

// nodes are the coordinator group.
type nodes struct {
	t      *testing.T
	net    *network
	hist   *check.History
	logger *slog.Logger
	tune   tuning
	// decided hears each decision that a node tells.
	decided func(scope string, e check.Epoch)
	ids     []string
	dying   sync.WaitGroup // processes on their way down
	pumps   sync.WaitGroup // connections that still carry something

	mu  sync.Mutex // guards all; held for memory only
	all map[string]*node
}

// tuning differs from seed to seed.
type tuning struct {
	snapshots uint64 // entries between two
	trailing  uint64
}

// node is one member of the group, running or not.
type node struct {
	disk *disk
	lane chan struct{} // one start at a time, each of which takes time
	proc *proc         // nil while it is down
	skew time.Duration
	dead []error // why its processes ended by themselves
}

// proc is one process of a node.
type proc struct {
	wire    *wire
	host    *host
	clients *bufconn.Listener
	cables  map[*cable]bool
	stop    context.CancelFunc
	done    chan struct{}
}

func newNodes(t *testing.T, n int, seed uint64, hist *check.History, logger *slog.Logger, tune tuning) *nodes {
	c := &nodes{t: t, net: newNetwork(seed), hist: hist, logger: logger, tune: tune, all: map[string]*node{}}
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		c.ids = append(c.ids, id)
		c.all[id] = &node{lane: make(chan struct{}, 1), disk: newDisk(id, seed+uint64(i), hist)}
	}
	return c
}

func address(id string) string { return id + ":7400" }

func (c *nodes) addresses() []string {
	var all []string
	for _, id := range c.ids {
		all = append(all, address(id))
	}
	return all
}

// at finds who listens at a client address.
func (c *nodes) at(addr string) (string, *bufconn.Listener) {
	id, _, _ := net.SplitHostPort(addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.all[id]; n != nil && n.proc != nil {
		return id, n.proc.clients
	}
	return id, nil
}

func (c *nodes) join(id string, x *cable) {
	c.mu.Lock()
	p := c.all[id].proc
	if p != nil {
		p.cables[x] = true
	}
	c.mu.Unlock()
	if p == nil {
		x.kill()
	}
}

func (c *nodes) leave(id string, x *cable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.all[id].proc; p != nil {
		delete(p.cables, x)
	}
}

// start starts a node that is down, on what its disk has. It reports whether it runs.
func (c *nodes) start(id string) bool {
	n := c.all[id]
	n.lane <- struct{}{}
	defer func() { <-n.lane }()
	if c.running(id) {
		return true
	}
	m := n.disk.mount()
	p := &proc{wire: c.net.plug(id), host: c.host(id), clients: bufconn.Listen(256 << 10), cables: map[*cable]bool{}, done: make(chan struct{})}
	co, err := coordinator.New(coordinator.Config{
		NodeID: id, RaftBind: id, ClientAdvertise: address(id), ClientBind: address(id), Logger: c.logger, Insecure: true,
		SnapshotThreshold: c.tune.snapshots,
		Seams: coordinator.Seams{
			Raft: raftnode.Seams{
				Transport: p.wire, Logs: m, Stable: m, Snapshots: m, TrailingLogs: c.tune.trailing,
				Skew: func() time.Duration { c.mu.Lock(); defer c.mu.Unlock(); return n.skew },
			},
			Clients: p.clients, Dial: p.host.dial,
			OnFatal: func(err error) { c.fatal(id, p, err) },
		},
	})
	if err != nil {
		n.disk.crash()
		p.wire.pull()
		c.hist.Add(check.Event{Who: id, Kind: check.Note, Text: "does not start: " + err.Error()})
		return false
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	c.mu.Lock()
	n.proc = p
	c.mu.Unlock()
	go func() {
		defer close(p.done)
		if err := co.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			c.hist.Add(check.Event{Who: id, Kind: check.Note, Text: "ended: " + err.Error()})
		}
	}()
	return true
}

// fatal is the end of a process that must not go on. Its supervisor starts another one.
func (c *nodes) fatal(id string, p *proc, err error) {
	c.mu.Lock()
	n := c.all[id]
	current := n.proc == p
	if current {
		n.dead = append(n.dead, err)
	}
	c.mu.Unlock()
	if current {
		c.hist.Add(check.Event{Who: id, Kind: check.Note, Text: "stops by itself: " + err.Error()})
		c.dying.Go(func() { c.crash(id) })
	}
}

// crash ends a node as kill -9 does, or the power: nothing that it says or writes from now on
// counts, and what it wrote and did not sync is gone.
func (c *nodes) crash(id string) {
	c.mu.Lock()
	n := c.all[id]
	p := n.proc
	n.proc = nil
	var cables []*cable
	if p != nil {
		for x := range p.cables {
			cables = append(cables, x)
		}
	}
	c.mu.Unlock()
	if p == nil {
		return
	}
	c.dying.Add(1)
	defer c.dying.Done()
	n.disk.crash()
	p.wire.pull()
	p.host.die()
	for _, x := range cables {
		x.kill()
	}
	p.stop()
	<-p.done
	p.wire.sends.Wait()
}

func (c *nodes) running(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[id].proc != nil
}

func (c *nodes) step(id string, skew time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[id].skew = skew
}

// client of some nodes from a host.
func (c *nodes) client(h *host, addresses ...string) *participant.Client {
	cl, err := participant.NewClient(participant.ClientConfig{Coordinators: addresses, Dial: h.dial, Actor: h.name, Logger: c.logger})
	if err != nil {
		c.t.Fatal(err) // a mistake of the harness
	}
	return cl
}

// bootstrap makes the group.
func (c *nodes) bootstrap(ctx context.Context, cl *participant.Client) error {
	req := &unisinkv1.BootstrapRequest{Meta: cl.NewMeta(), Namespace: namespace}
	for _, id := range c.ids {
		req.Nodes = append(req.Nodes, &unisinkv1.Node{Id: id, RaftAddress: id, ClientAddress: address(id), Voter: true})
	}
	_, err := cl.Cluster().Bootstrap(ctx, req)
	return err
}

// leader as most of the nodes see it, or "".
func (w *watchers) leader() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	votes := map[string]int{}
	for _, l := range w.leads {
		votes[l]++
	}
	best := ""
	for _, id := range w.nodes.ids {
		if votes[id] > len(w.nodes.ids)/2 {
			best = id
		}
	}
	return best
}

// watchers look at every node from outside, all along, past every fault.
type watchers struct {
	nodes *nodes
	hist  *check.History
	group sync.WaitGroup

	mu    sync.Mutex // guards leads
	leads map[string]string
}

// watch looks at each node until ctx ends.
func (c *nodes) watch(ctx context.Context) *watchers {
	w := &watchers{nodes: c, hist: c.hist, leads: map[string]string{}}
	for _, id := range c.ids {
		h := c.host("watch-" + id)
		h.immune = true
		cl := c.client(h, address(id))
		w.group.Go(func() { w.states(ctx, id, cl) })
		w.group.Go(func() { w.events(ctx, id, cl) })
		w.group.Go(func() { <-ctx.Done(); _ = cl.Close() })
	}
	return w
}

func (w *watchers) states(ctx context.Context, id string, cl *participant.Client) {
	last := uint64(0)
	for ctx.Err() == nil {
		ask, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		st, err := cl.Cluster().Status(ask, &unisinkv1.StatusRequest{StateHash: true})
		cancel()
		w.mu.Lock()
		w.leads[id] = ""
		if err == nil {
			w.leads[id] = st.GetLeader()
		}
		w.mu.Unlock()
		if err == nil && st.GetStateIndex() != 0 && st.GetStateIndex() != last {
			last = st.GetStateIndex()
			w.hist.Add(check.Event{Who: id, Kind: check.State, Index: last, Term: st.GetTerm(), Hash: st.GetStateHash()})
		}
		pause(ctx, 97*time.Millisecond)
	}
}

func (w *watchers) events(ctx context.Context, id string, cl *participant.Client) {
	seen := map[string]bool{} // a node tells again what it remembers, and what it applies again
	for ctx.Err() == nil {
		stream, err := cl.Events().Watch(ctx, &unisinkv1.WatchRequest{})
		for err == nil {
			var e *unisinkv1.Event
			if e, err = stream.Recv(); err != nil {
				break
			}
			ev, ok := observed(id, e)
			if key := fmt.Sprint(ev); ok && !seen[key] {
				seen[key] = true
				w.hist.Add(ev)
				if ev.Kind == check.Decided {
					w.nodes.decided(ev.Branch.Scope, ev.Branch.Epoch)
				}
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// observed is what a node says happened, if that is of interest.
func observed(id string, e *unisinkv1.Event) (check.Event, bool) {
	ev := check.Event{Who: id, Text: e.GetText(), Index: e.GetIndex(), Term: e.GetTerm(), Branch: check.Branch{
		Scope: scopeName(e.GetScope()), Member: e.GetMember(), Epoch: check.Epoch{Generation: e.GetEpoch().GetGeneration(), N: e.GetEpoch().GetN()},
	}}
	switch e.GetKind() {
	case unisinkv1.EventKind_EVENT_KIND_DECIDED:
		ev.Kind = check.Decided
	case unisinkv1.EventKind_EVENT_KIND_GENERATION_CLOSED:
		ev.Kind = check.Closed
	case unisinkv1.EventKind_EVENT_KIND_LEADER:
		ev.Kind = check.Leads
	case unisinkv1.EventKind_EVENT_KIND_HEURISTIC:
		ev.Kind = check.Heuristic
	case unisinkv1.EventKind_EVENT_KIND_HALTED, unisinkv1.EventKind_EVENT_KIND_GENERATION_OPENED,
		unisinkv1.EventKind_EVENT_KIND_MEMBER_LOST, unisinkv1.EventKind_EVENT_KIND_GENERATION_STARTED:
		ev.Kind = check.Note
		name := strings.ToLower(strings.TrimPrefix(e.GetKind().String(), "EVENT_KIND_"))
		ev.Text = strings.Join([]string{
			strings.ReplaceAll(name, "_", " "), ev.Branch.Scope, ev.Branch.Epoch.String(), ev.Branch.Member, e.GetText(),
		}, " ")
	default:
		return ev, false
	}
	return ev, true
}

func scopeName(s *unisinkv1.Scope) string {
	if s.GetPipeline() == "" {
		return ""
	}
	return fmt.Sprintf("%s/%d", s.GetPipeline(), s.GetShard())
}

// pause is a sleep that ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func others(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(s string) bool { return s == id })
}
