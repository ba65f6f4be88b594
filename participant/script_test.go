package participant_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// script is a leader whose orders a test gives by hand, and which keeps what the member says.
type script struct {
	unisinkv1.UnimplementedSessionServer
	t      *testing.T
	net    *bufconn.Listener
	server *grpc.Server

	attached chan *unisinkv1.AttachRequest
	voted    chan *unisinkv1.Vote
	readied  chan *unisinkv1.ReadyRequest
	resolved chan *unisinkv1.ResolvedRequest
	renewed  chan *unisinkv1.RenewRequest
	left     chan *unisinkv1.LeaveRequest

	mu       sync.Mutex
	term     uint64
	orders   chan *unisinkv1.Order
	cut      chan struct{}
	onVote   func(*unisinkv1.Vote) (*unisinkv1.VoteResponse, error)
	onDecide func(*unisinkv1.Vote) (*unisinkv1.DecideResponse, error)
	onRenew  func() error
	onLeave  func()
	clock    uint64
}

func newScript(t *testing.T) *script {
	s := &script{
		t: t, net: bufconn.Listen(pipeBytes), server: grpc.NewServer(), term: 5,
		attached: make(chan *unisinkv1.AttachRequest, 64), voted: make(chan *unisinkv1.Vote, 1024),
		readied: make(chan *unisinkv1.ReadyRequest, 64), resolved: make(chan *unisinkv1.ResolvedRequest, 64),
		renewed: make(chan *unisinkv1.RenewRequest, 1<<14), left: make(chan *unisinkv1.LeaveRequest, 4),
	}
	unisinkv1.RegisterSessionServer(s.server, s)
	go func() { _ = s.server.Serve(s.net) }() // ends with Stop
	t.Cleanup(s.server.Stop)
	return s
}

func (s *script) dial(ctx context.Context, _ string) (net.Conn, error) { return s.net.DialContext(ctx) }

func (s *script) stamp() *unisinkv1.Stamp {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	return &unisinkv1.Stamp{Term: s.term, ClockNs: s.clock}
}

func (s *script) Attach(req *unisinkv1.AttachRequest, out unisinkv1.Session_AttachServer) error {
	s.mu.Lock()
	s.orders, s.cut = make(chan *unisinkv1.Order, 64), make(chan struct{})
	orders, cut := s.orders, s.cut
	s.mu.Unlock()
	s.attached <- req
	for {
		select {
		case o := <-orders:
			if err := out.Send(o); err != nil {
				return err
			}
		case <-cut:
			return nil
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
}

// order gives an order in the leader's term.
func (s *script) order(o *unisinkv1.Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Term == 0 {
		o.Term = s.term
	}
	s.orders <- o
}

// hangUp ends the present stream.
func (s *script) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
}

func (s *script) Renew(_ context.Context, req *unisinkv1.RenewRequest) (*unisinkv1.RenewResponse, error) {
	s.mu.Lock()
	on := s.onRenew
	s.mu.Unlock()
	s.renewed <- req
	if on != nil {
		if err := on(); err != nil {
			return nil, err
		}
	}
	return &unisinkv1.RenewResponse{Lease: &unisinkv1.Lease{DurationMs: 3000, Stamp: s.stamp()}}, nil
}

func (s *script) Vote(_ context.Context, req *unisinkv1.VoteRequest) (*unisinkv1.VoteResponse, error) {
	s.mu.Lock()
	on := s.onVote
	s.mu.Unlock()
	s.voted <- req.GetVote()
	if on != nil {
		return on(req.GetVote())
	}
	return &unisinkv1.VoteResponse{Stamp: s.stamp()}, nil
}

func (s *script) Decide(_ context.Context, req *unisinkv1.DecideRequest) (*unisinkv1.DecideResponse, error) {
	s.voted <- req.GetVote().GetVote()
	s.mu.Lock()
	on := s.onDecide
	s.mu.Unlock()
	return on(req.GetVote().GetVote())
}

func (s *script) Ready(_ context.Context, req *unisinkv1.ReadyRequest) (*unisinkv1.ReadyResponse, error) {
	s.readied <- req
	return &unisinkv1.ReadyResponse{}, nil
}

func (s *script) Resolved(_ context.Context, req *unisinkv1.ResolvedRequest) (*unisinkv1.ResolvedResponse, error) {
	s.resolved <- req
	return &unisinkv1.ResolvedResponse{}, nil
}

func (s *script) Leave(_ context.Context, req *unisinkv1.LeaveRequest) (*unisinkv1.LeaveResponse, error) {
	s.mu.Lock()
	on := s.onLeave
	s.mu.Unlock()
	s.left <- req
	if on != nil {
		on()
	}
	return &unisinkv1.LeaveResponse{}, nil
}

// get takes what is due on a channel.
func get[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("nothing came: %s", what)
		panic("unreachable")
	}
}

// none checks that nothing comes for a while.
func none[T any](t *testing.T, what string, d time.Duration, c <-chan T) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("%s: %v", what, v)
	case <-time.After(d):
	}
}

// puppet is a task that does only what a test makes it do.
type puppet struct {
	restored chan participant.Restore
	started  chan participant.Start
	barriers chan participant.Barrier
	halted   chan string
	onHalt   func()
}

func newPuppet() *puppet {
	return &puppet{
		restored: make(chan participant.Restore, 8), started: make(chan participant.Start, 8),
		barriers: make(chan participant.Barrier, 64), halted: make(chan string, 8),
	}
}

func (p *puppet) Restore(_ context.Context, r participant.Restore) error {
	p.restored <- r
	return nil
}

func (p *puppet) Start(_ context.Context, s participant.Start) error {
	p.started <- s
	return nil
}

func (p *puppet) Barrier(_ context.Context, b participant.Barrier) error {
	p.barriers <- b
	return nil
}

func (p *puppet) Halted(_ context.Context, why string) error {
	if p.onHalt != nil {
		p.onHalt()
	}
	p.halted <- why
	return nil
}

// stage is a member under a scripted leader.
type stage struct {
	*script
	*puppet
	t      *testing.T
	store  *participanttest.Store
	memory *participanttest.Memory
	member *participant.Member
	run    participant.Run
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// onStage starts a member, attached and welcomed, in no generation yet.
func onStage(t *testing.T) *stage {
	t.Helper()
	st := &stage{script: newScript(t), puppet: newPuppet(), t: t, store: participanttest.NewStore("s"), done: make(chan struct{})}
	st.memory = st.store.Process()
	var err error
	st.member, err = participant.NewMember(participant.MemberConfig{
		Coordinators: []string{"leader:1"}, Pipeline: pipeline, Member: "solo",
		Resources: map[string]participant.Resource{"out": st.memory}, Dial: st.dial,
	}, st.puppet)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, st.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(st.done)
		st.err = st.member.Run(ctx)
	}()
	t.Cleanup(func() { st.cancel(); <-st.done })
	get(t, "attach", st.attached)
	st.welcome()
	return st
}

func (st *stage) welcome() {
	st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Welcome{Welcome: &unisinkv1.Welcome{
		Namespace: "test", Incarnation: 1, Lease: &unisinkv1.Lease{DurationMs: 3000, Stamp: st.stamp()},
	}}})
}

func (st *stage) restore(r *unisinkv1.Restore) *unisinkv1.ReadyRequest {
	st.t.Helper()
	st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Restore{Restore: r}})
	return get(st.t, "ready", st.readied)
}

// start brings the member to running in a generation.
func (st *stage) start(generation uint64, maxPending uint32, solo bool) {
	st.t.Helper()
	st.restore(&unisinkv1.Restore{Generation: generation})
	get(st.t, "restore of the task", st.restored)
	st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Start{Start: &unisinkv1.Start{
		Generation: generation, MaxPending: maxPending, EpochIntervalMs: 100, PrepareTimeoutMs: 5000, InlineLimit: 1024, Solo: solo,
	}}})
	st.run = get(st.t, "start of the task", st.started).Run
}

// epoch writes a record into the epoch being written and votes for it.
func (st *stage) epoch(generation, n uint64, record string) {
	st.t.Helper()
	b, err := st.run.Branch(st.t.Context(), "out")
	if err != nil {
		st.t.Fatalf("branch of %d.%d: %v", generation, n, err)
	}
	if err := b.(*participanttest.MemoryBranch).Write(record); err != nil {
		st.t.Fatal(err)
	}
	at := []participant.Position{{Resource: "in", Split: "0", Offset: int64(n), LeaderEpoch: -1}}
	if err := st.run.Vote(st.t.Context(), participant.Barrier{Generation: generation, N: n}, participant.Contribution{Positions: at}); err != nil {
		st.t.Fatalf("vote for %d.%d: %v", generation, n, err)
	}
}

func (st *stage) committed(generation, n uint64) {
	st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Committed{Committed: &unisinkv1.Committed{Epoch: &unisinkv1.Epoch{Generation: generation, N: n}}}})
}

func (st *stage) close(generation, final uint64) {
	st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Close{Close: &unisinkv1.Close{Generation: generation, Final: final, Cause: "test"}}})
}

func (st *stage) barrier(generation, n uint64, final bool) {
	st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Barrier{Barrier: &unisinkv1.Barrier{
		Epoch: &unisinkv1.Epoch{Generation: generation, N: n}, Final: final,
	}}})
}
