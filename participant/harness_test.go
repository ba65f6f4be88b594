package participant_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
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

// pipeBytes is what each direction of a connection holds, allocated when it is made: a member without a leader makes
// many.
const pipeBytes = 16 << 10

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
	n := &node{group: g, addr: addr, net: bufconn.Listen(pipeBytes), server: grpc.NewServer()}
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
