package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/tap"

	"github.com/unisink/unisink/coordinator/access"
	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpctls"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Node is the replicated log and the node's place in the group.
type Node interface {
	Propose(ctx context.Context, c ledger.Command) (ledger.Result, error)
	// Barrier returns when everything committed before the call is applied here.
	Barrier(ctx context.Context) error
	View(read func(*ledger.Machine))
	// ViewAt is View with the index of the newest entry that the state holds; 0 when it is not known.
	ViewAt(read func(m *ledger.Machine, index uint64))
	// Leads reports whether this node does, as far as it knows. It is asked with each call, and costs nothing.
	Leads() bool
	// Leader names who leads, as far as this node knows; "" when nobody.
	Leader() (id, clientAddress string)
	NodeStatus() NodeStatus
	// Bootstrap makes a group of nodes that have none.
	Bootstrap(ctx context.Context, namespace string, nodes []ledger.Node) error
}

// Sessions serves members, and tells what the leader knows of the living.
type Sessions interface {
	unisinkv1.SessionServer
	Living(scope ledger.ScopeID) Living
}

// Living is what the leader knows of a scope beyond the ledger; zero on other nodes.
type Living struct {
	Members     []LivingMember
	RoundsOpen  int
	OldestRound time.Duration
	Rounds      []LivingRound
}

// LivingRound is one epoch that is ordered and not decided.
type LivingRound struct {
	Epoch   ledger.Epoch
	Age     time.Duration
	Missing []string      // members that have not voted
	Left    time.Duration // until the generation is closed for them
}

// LivingMember is one member whose name is held.
type LivingMember struct {
	Name, Instance string
	Attached       bool
	Phase          string        // idle, restoring, ready or running
	Lag            int64         // -1 unknown
	LeaseLeft      time.Duration // 0: no lease runs
	WaitingFor     string
	Texts          map[string]string // what its resources are, for people, by their names; may be missing
}

// InDoubt is what is outstanding, by age, as the leader saw it last; zero on other nodes.
type InDoubt struct {
	Unfinished int
	Oldest     time.Duration
	Debts      int
}

// NodeStatus is what a node knows of itself without asking others.
type NodeStatus struct {
	ID            string
	State         string // "leader", "follower", "candidate", "not bootstrapped", …
	Term          uint64
	LastIndex     uint64
	AppliedIndex  uint64
	SnapshotIndex uint64
	LeaderSilent  time.Duration
	Bootstrapped  bool
	Voters        []string
	RaftAddress   string // as the node advertises it
}

// Classes tell what an error of Node means for its caller.
type Classes struct {
	NotLeader    func(error) bool // nothing was proposed; another node may lead
	Unknown      func(error) bool // the change may have been made
	TooLarge     func(error) bool // nothing was proposed, nor ever will be
	Bootstrapped func(error) bool // the node belongs to a group of another name or other nodes
	Membership   func(error) bool // a change of the members was refused
	NoSuchNode   func(error) bool // there is no member of that id
}

// Config of the edge.
type Config struct {
	Node     Node
	Members  Members
	Sessions Sessions
	Events   *eventlog.Log
	InDoubt  func() InDoubt
	Logger   *slog.Logger
	Registry *prometheus.Registry

	// Listener serves gRPC, HTTP serves /livez, /readyz and /metrics; HTTP may be nil.
	Listener net.Listener
	HTTP     net.Listener
	// TLS of both listeners; nil: plain text. When it asks clients for certificates, roles count.
	TLS *tls.Config
	// ForwardTLS is asked for each connection to another node; nil: plain text.
	ForwardTLS func() *tls.Config
	// Trusts says why a certificate does not count any more; nil: it does until its connection ends.
	Trusts func(chains [][]*x509.Certificate, now time.Time) error
	// Roles are those of a file, as it is now; nil: certificates name their roles.
	Roles func() *access.Roles
	// HTTPOpen are the paths of HTTP that need no certificate.
	HTTPOpen []string
	// Reflection lets tools list the services; off by default.
	Reflection bool
	// HandTimeout is the deadline of an announced transaction that names none; default 1 min.
	HandTimeout time.Duration
	// Class tells the errors of Node apart.
	Class Classes
	// DialContext replaces the network in tests.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// handshakeTimeout bounds how long somebody who connects may take to say who they are.
const handshakeTimeout = 10 * time.Second

// Server answers clients of one node.
type Server struct {
	c       Config
	grpc    *grpc.Server
	http    *http.Server
	health  *health.Server
	forward *forwarder
	guard   *access.Guard
	asked   *quota // questions about unknown transactions
	metrics *metrics
	told    reports // by resolvers
}

// New builds the services; nothing listens before Run.
func New(c Config) *Server {
	if c.HandTimeout <= 0 {
		c.HandTimeout = time.Minute
	}
	s := &Server{c: c, health: health.NewServer(), asked: newQuota(questionsPerSecond, questionsAtOnce)}
	asks := c.TLS != nil && c.TLS.ClientAuth >= tls.VerifyClientCertIfGiven // clients for certificates
	s.guard = access.New(access.Config{
		Certificates: asks,
		Nodes:        s.nodeIDs, Trusts: c.Trusts, Roles: c.Roles,
	})
	creds := insecure.NewCredentials()
	if c.ForwardTLS != nil {
		creds = grpctls.Credentials(c.ForwardTLS)
	}
	s.forward = newForwarder(s, creds)
	m := newMetrics(c)
	s.metrics = m
	opts := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(m.unary, recoverUnary(c.Logger), s.guard.Unary, s.forward.unary),
		grpc.ChainStreamInterceptor(m.stream, recoverStream(c.Logger), s.guard.Stream),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Second, Timeout: 2 * time.Second}),
		// The SDK pings every 10 s, the least that grpc-go lets a client do, and clients in other languages
		// more often. The default policy takes pings more frequent than every 5 minutes for an attack.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 500 * time.Millisecond, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(4 << 20),
		// Without a bound one connection can make this node start any number of handlers, and hold a message in each.
		grpc.MaxConcurrentStreams(mostCalls),
		grpc.MaxHeaderListSize(mostHeaders),
		grpc.InTapHandle(s.gate),
		// A member has a connection of its own, mostly idle. With the default buffers a thousand take 60 MiB.
		grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(writeBuffer), grpc.HeaderTableSize(headerTable),
		grpc.ConnectionTimeout(handshakeTimeout),
	}
	if c.TLS != nil {
		opts = append(opts, grpc.Creds(newDoor(credentials.NewTLS(c.TLS), asks, m)))
	}
	s.grpc = grpc.NewServer(opts...)
	unisinkv1.RegisterSessionServer(s.grpc, c.Sessions)
	unisinkv1.RegisterPipelinesServer(s.grpc, &pipelines{s: s})
	unisinkv1.RegisterTransactionsServer(s.grpc, &transactions{s: s})
	c.Registry.MustRegister(&s.told)
	unisinkv1.RegisterResolutionServer(s.grpc, &resolution{s: s, reports: &s.told})
	unisinkv1.RegisterClusterServer(s.grpc, &cluster{s: s})
	unisinkv1.RegisterEventsServer(s.grpc, &events{s: s})
	unisinkv1.RegisterAuditServer(s.grpc, &audit{s: s})
	healthpb.RegisterHealthServer(s.grpc, s.health)
	if c.Reflection {
		reflection.Register(s.grpc)
	}
	if c.HTTP != nil {
		s.http = s.newHTTP()
	}
	return s
}

// nodeIDs are the nodes that the ledger knows.
func (s *Server) nodeIDs() (ids []string) {
	s.c.Node.View(func(m *ledger.Machine) {
		for _, n := range m.Nodes() {
			ids = append(ids, n.ID)
		}
	})
	return ids
}

// readBuffer and writeBuffer of a connection, bytes: a vote with its handles, mostly, and its answer. A page of a list
// takes several writes.
const readBuffer, writeBuffer = 4 << 10, 8 << 10

// headerTable is how much of the headers of earlier calls clients are asked to let a connection remember, bytes (RFC 7541,
// section 4): the handful that do not change. By default a deadline that is another with each call fills 4 KiB.
const headerTable = 1 << 10

// mostCalls are the calls under way on one connection, watchers' streams among them. A client that has more waits with the
// next. mostHeaders bounds what stands at the head of one, bytes: with a call that is handed on, the roles of its caller.
const mostCalls, mostHeaders = 1 << 10, 64 << 10

// gate judges a call before its message is read.
func (s *Server) gate(ctx context.Context, info *tap.Info) (context.Context, error) {
	err := s.guard.Gate(ctx, info.FullMethodName)
	if err != nil { // then the method is one of the table, and no name that a caller has made up
		s.metrics.answered(info.FullMethodName, err)
	}
	return ctx, err
}

// Run serves until ctx ends, then lets calls under way finish for at most a second.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.grpc.Serve(s.c.Listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve gRPC at %s: %w", s.c.Listener.Addr(), err)
		}
		return nil
	})
	if s.http != nil {
		g.Go(func() error {
			if err := s.serveHTTP(); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve HTTP at %s: %w", s.c.HTTP.Addr(), err)
			}
			return nil
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		s.stop()
		return nil
	})
	return g.Wait()
}

func (s *Server) stop() {
	s.health.Shutdown()
	done := make(chan struct{})
	go func() { s.grpc.GracefulStop(); close(done) }()
	// Streams of members and watchers never end by themselves.
	grace := time.NewTimer(time.Second)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
		s.grpc.Stop()
		<-done
	}
	if s.http != nil {
		if err := s.http.Close(); err != nil {
			s.c.Logger.Warn("HTTP not closed cleanly", slog.String("err", err.Error()))
		}
	}
	s.forward.close()
}
