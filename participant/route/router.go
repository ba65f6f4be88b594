package route

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/grpctls"
)

// maxMessage bounds one message either way, bytes: a restore point's inline state is the largest.
const maxMessage = 64 << 20

// Router keeps one connection per coordinator node and remembers who led last. It is safe for
// concurrent use. Close ends its connections.
type Router struct {
	set settings

	mu     sync.Mutex // guards the rest; never held across I/O
	known  []string   // configured addresses, then those learnt from hints
	next   int        // whom to try when no leader is known
	leader string
	conns  map[string]*grpc.ClientConn
	closed bool
}

type settings struct {
	tls      func() *tls.Config // nil: plain text
	dial     func(ctx context.Context, addr string) (net.Conn, error)
	patience time.Duration
	attempt  time.Duration
}

// Option changes a Router's settings.
type Option func(*settings)

// WithTLS makes connections use c; nil means plain text, which is the default.
func WithTLS(c *tls.Config) Option {
	return func(s *settings) {
		if s.tls = nil; c != nil {
			s.tls = func() *tls.Config { return c }
		}
	}
}

// WithTLSFrom makes each new connection ask for the configuration that it is to use; a nil function
// changes nothing.
func WithTLSFrom(from func() *tls.Config) Option {
	return func(s *settings) {
		if from != nil {
			s.tls = from
		}
	}
}

// WithDial replaces the network, for tests.
func WithDial(dial func(ctx context.Context, addr string) (net.Conn, error)) Option {
	return func(s *settings) { s.dial = dial }
}

// WithPatience bounds how long a call looks for a coordinator that answers it; default 10s. The
// call's own context bounds it too.
func WithPatience(d time.Duration) Option { return func(s *settings) { s.patience = d } }

// WithAttempt bounds one attempt of a unary call at one node, after which another is asked; default 5s.
func WithAttempt(d time.Duration) Option { return func(s *settings) { s.attempt = d } }

// NewRouter makes a router for the nodes' client addresses (host:port). It connects when it is used.
func NewRouter(addresses []string, opts ...Option) (*Router, error) {
	if err := CheckAddresses(addresses); err != nil {
		return nil, err
	}
	r := &Router{
		set:   settings{patience: 10 * time.Second, attempt: 5 * time.Second},
		known: slices.Compact(slices.Clone(addresses)),
		conns: map[string]*grpc.ClientConn{},
	}
	for _, o := range opts {
		o(&r.set)
	}
	return r, nil
}

// CheckAddresses reports every address that is not host:port, and an empty list.
func CheckAddresses(addresses []string) error {
	if len(addresses) == 0 {
		return errors.New("no coordinator address is given; name at least one as host:port")
	}
	var bad []error
	for _, a := range addresses {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			bad = append(bad, fmt.Errorf("coordinator address %q is not host:port", a))
		}
	}
	return errors.Join(bad...)
}

// Target is a node to try.
type Target struct {
	Addr string
	Conn *grpc.ClientConn
}

// Pick returns the node that leads as far as is known, else the next in turn.
func (r *Router) Pick() (Target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	addr := r.leader
	if addr == "" {
		addr = r.known[r.next]
	}
	return r.target(addr)
}

// target returns the connection to addr, made when it is missing. Called with mu held; making a
// connection does no I/O.
func (r *Router) target(addr string) (Target, error) {
	if r.closed {
		return Target{}, errors.New("the router is closed")
	}
	if c := r.conns[addr]; c != nil {
		return Target{addr, c}, nil
	}
	creds := insecure.NewCredentials()
	if r.set.tls != nil {
		creds = grpctls.Credentials(r.set.tls)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A node that restarts must be found again at once, so waits stay short.
			Backoff:           grpcbackoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.3, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		}),
		// Finds a peer that vanished without a word while a stream waits for orders.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig(),
	}
	if dial := r.set.dial; dial != nil {
		opts = append(opts, grpc.WithContextDialer(dial))
	}
	c, err := grpc.NewClient("passthrough:///"+addr, opts...)
	if err != nil {
		return Target{}, fmt.Errorf("connect to coordinator %s: %w", addr, err)
	}
	r.conns[addr] = c
	return Target{addr, c}, nil
}

// Learn tells the router what a call at addr came to: nil or an answer (that node leads), or a
// Classify'd error (follow its hint, or try the next).
func (r *Router) Learn(addr string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !Retryable(err) {
		r.leader = addr
		return
	}
	if r.leader == addr {
		r.leader = ""
	}
	if old := r.conns[addr]; old != nil && errors.Is(err, ErrDistrusted) {
		delete(r.conns, addr)
		_ = old.Close() // what is under way on it would be refused, too
	}
	// Only the one whose turn it was gives up its turn: a follower that goes on naming a dead leader
	// must not keep the others from being asked.
	if r.known[r.next] == addr {
		r.next = (r.next + 1) % len(r.known)
	}
	var nl *NotLeaderError
	if errors.As(err, &nl) && nl.Leader != "" && nl.Leader != addr {
		r.leader = nl.Leader
		if !slices.Contains(r.known, nl.Leader) {
			r.known = append(r.known, nl.Leader)
		}
	}
}

// Leader is the address of the node that led last, "" when unknown.
func (r *Router) Leader() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader
}

// addresses of all nodes that are known.
func (r *Router) addresses() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.known)
}

// Close ends all connections; calls under way fail.
func (r *Router) Close() error {
	r.mu.Lock()
	r.closed = true
	conns := r.conns
	r.conns = map[string]*grpc.ClientConn{}
	r.mu.Unlock()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Do calls f at the leader as far as is known, and again elsewhere while its error is Retryable,
// with growing, scattered waits, until ctx ends or the router's patience does. Its error then says
// what every node answered, and wraps ErrUnreachable or ErrNotLeader (and the context's cause).
func (r *Router) Do(ctx context.Context, f func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	var said Answers
	begun, pause, hints := time.Now(), NewBackOff(), 0
	for {
		target, err := r.Pick()
		if err != nil {
			return err
		}
		attempt, cancel := context.WithTimeout(ctx, r.set.attempt)
		err = Classify(ctx, target.Addr, f(attempt, target.Conn))
		cancel()
		if ctx.Err() != nil && err != nil {
			if len(said.order) > 0 {
				return fmt.Errorf("%w: %w", context.Cause(ctx), said.Err())
			}
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		r.Learn(target.Addr, err)
		if !Retryable(err) {
			return err
		}
		said.Add(target.Addr, err)
		if Hinted(err) && hints < maxHints {
			hints++
			continue
		}
		hints = 0
		wait := pause.NextBackOff()
		if time.Since(begun)+wait > newGroupWait && said.noGroup(r.addresses()) {
			return &noGroupError{nodes: r.addresses()}
		}
		if time.Since(begun)+wait > r.set.patience {
			return said.Err()
		}
		if !Sleep(ctx, wait) {
			return fmt.Errorf("%w: %w", context.Cause(ctx), said.Err())
		}
	}
}

// newGroupWait is how long nodes that belong to no group are asked again: one that has just been
// made into a group by its neighbour hears of it within that time, and a group that nobody has
// made does not come by waiting.
const newGroupWait = 500 * time.Millisecond

// maxHints is how many hints are followed in a row without waiting: nodes that name each other
// must not be asked in a circle at full speed.
const maxHints = 2

// Hinted reports whether err names another node to ask, which is worth doing at once.
func Hinted(err error) bool {
	var nl *NotLeaderError
	return errors.As(err, &nl) && nl.Leader != "" && nl.Leader != nl.Node
}

// Invoke makes a unary call by Do. A node that has the answer from the leader says so, and the leader is asked next
// time, if it can be reached.
func (r *Router) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	var head metadata.MD
	err := r.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		head = nil
		return conn.Invoke(ctx, method, args, reply, append(slices.Clone(opts), grpc.Header(&head))...)
	})
	if leader := head.Get(grpcerr.HeaderLeader); err == nil && len(leader) > 0 {
		r.prefer(leader[0])
	}
	return err
}

// prefer makes the node that leads the one to ask, as soon as it is connected: whoever answered in its stead may be
// the only one that can be reached from here, and then goes on being asked.
func (r *Router) prefer(leader string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, err := r.target(leader)
	if err != nil {
		return
	}
	if t.Conn.GetState() != connectivity.Ready {
		t.Conn.Connect() // behind the caller's back
		return
	}
	r.leader = leader
	if !slices.Contains(r.known, leader) {
		r.known = append(r.known, leader)
	}
}

// NewStream opens a stream at the leader as far as is known. It tries once: whether a broken
// stream may be opened again is the caller's knowledge.
func (r *Router) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	target, err := r.Pick()
	if err != nil {
		return nil, err
	}
	stream, err := target.Conn.NewStream(ctx, desc, method, opts...)
	if err = Classify(ctx, target.Addr, err); err != nil {
		r.Learn(target.Addr, err)
		return nil, err
	}
	return stream, nil
}

// NewBackOff is how calls to coordinators wait between tries: 20 ms growing to 1 s, scattered by
// half. It grows slowly, so that a new leader is found soon: elections take about a second.
func NewBackOff() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval:     20 * time.Millisecond,
		RandomizationFactor: 0.5,
		Multiplier:          1.3,
		MaxInterval:         time.Second,
	}
}

// Sleep waits for d and reports false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
