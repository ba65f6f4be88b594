package participant_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/session"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

var errUnknown = errors.New("outcome unknown")

// memLog is a replicated log of one copy: it outlives the nodes.
type memLog struct {
	mu   sync.Mutex
	m    *ledger.Machine
	term uint64
	tell func([]ledger.Effect)
}

// termLog is the log as the leader of one term sees it.
type termLog struct {
	*memLog
	mine func() uint64
}

func (l termLog) Propose(_ context.Context, c ledger.Command) (ledger.Result, error) {
	l.mu.Lock()
	if l.mine() != l.term {
		l.mu.Unlock()
		return ledger.Result{}, errUnknown
	}
	res, effects := l.m.Apply(c)
	tell := l.tell
	l.mu.Unlock()
	if tell != nil {
		tell(effects)
	}
	return res, nil
}
func (l termLog) Barrier(context.Context) error { return nil }
func (l termLog) View(read func(*ledger.Machine)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	read(l.m)
}

// group is a coordinator group with the real session room, on an in-memory network.
type group struct {
	t   *testing.T
	log *memLog

	mu     sync.Mutex
	nodes  map[string]*node
	leader string
}

type node struct {
	unisinkv1.UnimplementedPipelinesServer
	group   *group
	addr    string
	net     *bufconn.Listener
	server  *grpc.Server
	manager *session.Manager
	term    uint64
	depose  func()
}

const pipeline = "orders"

// newGroup starts nodes a, b and c, a leading, and declares a pipeline of the members named, each of
// which takes barriers and has the memory resource "out".
func newGroup(t *testing.T, set ledger.Settings, members ...string) *group {
	t.Helper()
	g := &group{t: t, log: &memLog{m: ledger.New()}, nodes: map[string]*node{}}
	p := ledger.Pipeline{Name: pipeline, Fingerprint: "f1", Settings: set}
	for _, name := range members {
		p.Members = append(p.Members, ledger.MemberSpec{
			Name: name, Source: true, Resources: []ledger.ResourceSpec{{Name: "out", Kind: "memory"}},
		})
	}
	g.apply(ledger.Init{Namespace: "test", Incarnation: 1})
	g.apply(ledger.PutPipeline{Pipeline: p})
	for _, addr := range addresses() {
		g.start(addr)
	}
	t.Cleanup(func() {
		for _, addr := range addresses() {
			g.kill(addr)
		}
	})
	g.lead("a:1")
	return g
}

func addresses() []string { return []string{"a:1", "b:1", "c:1"} }

// apply applies a command as the server would.
func (g *group) apply(b ledger.Body) {
	g.t.Helper()
	g.log.mu.Lock()
	res, effects := g.log.m.Apply(ledger.Command{Actor: "test", At: time.Now().UnixMilli(), Body: b})
	tell := g.log.tell
	g.log.mu.Unlock()
	if !res.OK() {
		g.t.Fatalf("%T: %s", b, res.Text)
	}
	if tell != nil {
		tell(effects)
	}
}

func (g *group) desire(to ledger.Desired) {
	g.t.Helper()
	var from ledger.Desired
	g.view(func(m *ledger.Machine) { p, _ := m.Pipeline(pipeline); from = p.Desired })
	g.apply(ledger.SetDesired{Pipeline: pipeline, From: from, To: to})
}

func (g *group) view(read func(*ledger.Machine)) {
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	read(g.log.m)
}

// newest is the scope's newest generation.
func (g *group) newest() (rec ledger.GenerationRecord) {
	g.view(func(m *ledger.Machine) { rec, _ = m.Newest(ledger.ScopeID{Pipeline: pipeline}) })
	return rec
}

func (g *group) start(addr string) {
	n := &node{group: g, addr: addr, net: bufconn.Listen(1 << 20), server: grpc.NewServer()}
	n.manager = session.New(session.Config{
		Log:     termLog{g.log, func() uint64 { return n.term }},
		Unknown: func(err error) bool { return errors.Is(err, errUnknown) },
		NotLeader: func() error {
			g.mu.Lock()
			defer g.mu.Unlock()
			return grpcerr.New(codes.FailedPrecondition, grpcerr.NotLeader, addr+" does not lead", map[string]string{grpcerr.MetaLeader: g.leader})
		},
	})
	unisinkv1.RegisterSessionServer(n.server, n.manager)
	unisinkv1.RegisterPipelinesServer(n.server, n)
	go func() { _ = n.server.Serve(n.net) }() // ends with kill
	g.mu.Lock()
	g.nodes[addr] = n
	g.mu.Unlock()
}

// GetPipeline answers with the settings.
func (n *node) GetPipeline(_ context.Context, req *unisinkv1.GetPipelineRequest) (*unisinkv1.GetPipelineResponse, error) {
	var p ledger.Pipeline
	n.group.view(func(m *ledger.Machine) { p, _ = m.Pipeline(req.GetName()) })
	return &unisinkv1.GetPipelineResponse{Pipeline: &unisinkv1.Pipeline{Name: p.Name, Settings: &unisinkv1.PipelineSettings{
		MaxPending: p.Settings.MaxPending, EpochIntervalMs: p.Settings.EpochInterval,
	}}}, nil
}

// lead makes a node lead a new term, with nothing but the log; the old leader falls first.
func (g *group) lead(addr string) {
	g.fall()
	g.mu.Lock()
	n := g.nodes[addr]
	g.leader = addr
	g.mu.Unlock()
	g.log.mu.Lock()
	g.log.term++
	n.term = g.log.term
	g.log.tell = n.manager.Effects
	g.log.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := n.manager.Lead(ctx, n.term); err != nil {
			g.t.Errorf("lead: %v", err)
		}
	}()
	n.depose = func() { cancel(); <-ended }
}

// fall ends the leadership, as a crash would.
func (g *group) fall() {
	g.mu.Lock()
	n := g.nodes[g.leader]
	g.leader = ""
	g.mu.Unlock()
	if n == nil || n.depose == nil {
		return
	}
	g.log.mu.Lock()
	g.log.term++ // what is on its way is not taken
	g.log.mu.Unlock()
	n.depose()
	n.depose = nil
}

// kill ends a node with all its connections.
func (g *group) kill(addr string) {
	g.mu.Lock()
	n, leads := g.nodes[addr], g.leader == addr
	delete(g.nodes, addr)
	g.mu.Unlock()
	if n == nil {
		return
	}
	if leads {
		g.mu.Lock()
		g.nodes[addr] = n
		g.mu.Unlock()
		g.fall()
		g.mu.Lock()
		delete(g.nodes, addr)
		g.mu.Unlock()
	}
	n.server.Stop()
}

func (g *group) dial(ctx context.Context, addr string) (net.Conn, error) {
	g.mu.Lock()
	n := g.nodes[addr]
	g.mu.Unlock()
	if n == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return n.net.DialContext(ctx)
}

// wire is one process's network, which can be cut.
type wire struct {
	group *group
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (w *wire) dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, errors.New("network is down")
	}
	c, err := w.group.dial(ctx, addr)
	if err == nil {
		w.conns = append(w.conns, c)
	}
	return c, err
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, c := range w.conns {
		_ = c.Close() // it is cut
	}
	w.conns = nil
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// process is one run of a member: a counter that writes into a memory resource.
type process struct {
	*counter
	wire   *wire
	memory *participanttest.Memory
	member *participant.Member
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
}

func (g *group) logger() *slog.Logger {
	if !testing.Verbose() || os.Getenv("UNISINK_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// run starts a process of a member on a store. Change may alter its configuration.
func (g *group) run(member string, store *participanttest.Store, change func(*participant.MemberConfig)) *process {
	g.t.Helper()
	p := &process{
		counter: &counter{name: member, every: 10 * time.Millisecond}, wire: &wire{group: g},
		memory: store.Process(), done: make(chan struct{}),
	}
	cfg := participant.MemberConfig{
		Coordinators: addresses(), Pipeline: pipeline, Member: member, Fingerprint: "f1",
		Resources: map[string]participant.Resource{"out": p.memory}, Dial: p.wire.dial, Logger: g.logger(),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if p.member, err = participant.NewMember(cfg, p.counter); err != nil {
		g.t.Fatal(err)
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(p.done)
		p.err = p.member.Run(ctx)
	}()
	g.t.Cleanup(func() { p.cancel(); <-p.done })
	return p
}

// kill ends a process as kill -9 does: nothing it does from now on reaches anybody.
func (p *process) kill() {
	p.memory.Crash()
	p.wire.cut()
	p.cancel()
	<-p.done
}

func (p *process) wait(t *testing.T, d time.Duration) error {
	t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(d):
		t.Fatalf("member %s still runs after %s: %+v", p.name, d, p.member.Status())
		return nil
	}
}

// counter is a task that writes name-0, name-1, … and keeps how far it came as its position.
type counter struct {
	name  string
	every time.Duration

	mu       sync.Mutex
	next     int64
	limit    int64 // stop counting there; 0: never
	restores []participant.Restore
	halts    []string
	barriers chan participant.Barrier
	seen     []participant.Barrier
	stop     context.CancelFunc
	ended    chan struct{}
	run      participant.Run
	failure  error // what Branch or Vote answered at the end
}

func (c *counter) Restore(_ context.Context, r participant.Restore) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restores, c.next = append(c.restores, r), 0
	if len(r.Positions) > 0 {
		c.next = r.Positions[0].Offset
	}
	return nil
}

func (c *counter) Start(_ context.Context, s participant.Start) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	c.stop, c.ended, c.run = cancel, make(chan struct{}), s.Run
	c.barriers = make(chan participant.Barrier, 64)
	go c.work(ctx, s.Run, c.barriers, c.ended)
	return nil
}

func (c *counter) work(ctx context.Context, run participant.Run, barriers <-chan participant.Barrier, ended chan<- struct{}) {
	defer close(ended)
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	fail := func(err error) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failure = err
		return err != nil
	}
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-barriers:
			at := []participant.Position{{Resource: "in", Split: "0", Offset: c.position(), LeaderEpoch: -1}}
			if fail(run.Vote(ctx, b, participant.Contribution{Positions: at})) || b.Final {
				return
			}
		case <-tick.C:
			c.mu.Lock()
			over := c.limit > 0 && c.next >= c.limit
			c.mu.Unlock()
			if over {
				continue
			}
			b, err := run.Branch(ctx, "out")
			if fail(err) {
				return
			}
			if fail(b.(*participanttest.MemoryBranch).Write(fmt.Sprintf("%s-%d", c.name, c.position()))) {
				return
			}
			c.mu.Lock()
			c.next++
			c.mu.Unlock()
			run.HasWork()
		}
	}
}

func (c *counter) position() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

func (c *counter) Barrier(_ context.Context, b participant.Barrier) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, b)
	c.barriers <- b
	return nil
}

func (c *counter) Halted(_ context.Context, why string) error {
	c.mu.Lock()
	c.halts = append(c.halts, why)
	stop, ended := c.stop, c.ended
	c.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	return nil
}

func (c *counter) restored() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.restores)
}

// exactlyOnce checks that a member's committed records are 0, 1, 2, … in order, and at least some.
func exactlyOnce(t *testing.T, store *participanttest.Store, name string, least int) {
	t.Helper()
	n := 0
	for _, r := range store.Records() {
		number, ok := strings.CutPrefix(r, name+"-")
		if !ok {
			continue
		}
		if number != fmt.Sprint(n) {
			t.Fatalf("record %q where %s-%d was due; trail:\n%s", r, name, n, strings.Join(store.Trail(), "\n"))
		}
		n++
	}
	if n < least {
		t.Fatalf("%d records of %s are committed, want at least %d", n, name, least)
	}
}

// inOrder checks P6: per member, epochs became visible in the order of their numbers, over generations too.
func inOrder(t *testing.T, store *participanttest.Store) {
	t.Helper()
	newest := map[string]uint64{}
	for _, line := range store.Trail() {
		name, ok := strings.CutPrefix(line, "commit ")
		if !ok {
			continue
		}
		b, err := participant.ParseBranchName(name)
		if err != nil {
			t.Fatal(err)
		}
		key := b.Member
		at := b.Generation<<32 | b.N
		if at <= newest[key] {
			t.Fatalf("%s: epoch %d.%d was committed out of order; trail:\n%s", key, b.Generation, b.N, strings.Join(store.Trail(), "\n"))
		}
		newest[key] = at
	}
}

func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // in the bubble's time
		if ok() {
			return
		}
	}
	t.Fatalf("not within %s: %s", d, what)
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func count(lines []string, prefix string) int {
	return len(slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return !strings.HasPrefix(s, prefix) }))
}
