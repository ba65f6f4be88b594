package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
)

const (
	transportTimeout = 5 * time.Second
	transportPool    = 3
)

// Transport is what raft needs of a network, pre-vote and closing included.
type Transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// guarded is the transport that raft sees. Pre-vote stays visible: raft looks for it by type, and
// does without it with no more than a line in the log.
type guarded struct {
	Transport
	log       *slog.Logger
	probation *probation    // nil: votes without restraint
	term      func() uint64 // of this node
	founded   func() bool   // the group has a name

	relay sync.Once
	rpcs  chan raft.RPC
	done  chan struct{} // closed when the relay is to end
	wait  sync.WaitGroup
	over  sync.Once

	mu        sync.Mutex // guards what follows
	followers map[raft.ServerID]*follower
}

// follower is what this node knows of another one from sending to it.
type follower struct {
	heard   time.Time // when it last answered
	sent    time.Time // when it was last sent a snapshot
	held    held
	watched bool                // every answer is looked at
	pipe    raft.AppendPipeline // the newest
}

// held is what a follower is known to hold of this leader's log, in one term, while the group is
// founded or the follower is being added.
type held struct {
	term    uint64
	reaches uint64 // its log equals ours up to here
	knows   uint64 // it has been told, on disk, that this is committed
}

var (
	_ raft.WithPreVote = (*guarded)(nil)
	_ raft.WithClose   = (*guarded)(nil)
)

func guard(t Transport, log *slog.Logger) *guarded {
	return &guarded{
		Transport: t, log: log, term: func() uint64 { return 0 }, founded: func() bool { return true },
		rpcs: make(chan raft.RPC), done: make(chan struct{}),
		followers: map[raft.ServerID]*follower{},
	}
}

// Consumer hands raft what arrives; while the node is in probation, by way of the relay.
func (g *guarded) Consumer() <-chan raft.RPC {
	if g.probation == nil || !g.probation.on.Load() {
		return g.Transport.Consumer()
	}
	g.relay.Do(func() {
		in := g.Transport.Consumer()
		g.wait.Go(func() { g.probation.relay(in, g.rpcs, g.done, g.term) })
	})
	return g.rpcs
}

// Close ends the relay and closes the transport.
func (g *guarded) Close() error {
	g.over.Do(func() { close(g.done) })
	err := g.Transport.Close()
	g.wait.Wait()
	return err
}

// RequestVote calls for a vote, unless this node must not.
func (g *guarded) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if !g.probation.allows(args.LastLogIndex) {
		return errProbation
	}
	return g.Transport.RequestVote(id, target, args, resp)
}

// RequestPreVote asks for the promise of a vote, unless this node must not.
func (g *guarded) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if !g.probation.allows(args.LastLogIndex) {
		return errProbation
	}
	return g.Transport.RequestPreVote(id, target, args, resp)
}

// AppendEntries notes that the follower is there, and what it holds while that matters.
func (g *guarded) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := g.Transport.AppendEntries(id, target, args, resp)
	if err != nil {
		return err
	}
	now := held{term: args.Term, reaches: reaches(args)}
	if upToDate(args) {
		now.knows = args.LeaderCommitIndex
	}
	founded := g.founded()
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.follower(id)
	f.heard = time.Now()
	if resp.Success && now.reaches > 0 && (!founded || f.watched) {
		f.held = now
	}
	return nil
}

// watch begins or ends to look at every answer of a follower. A pipeline, whose answers are not seen,
// is closed: the library goes on without, and opens the next one when it may.
func (g *guarded) watch(id raft.ServerID, on bool) {
	g.mu.Lock()
	f := g.follower(id)
	pipe := f.pipe
	f.pipe, f.held, f.watched = nil, held{}, on
	g.mu.Unlock()
	if on && pipe != nil {
		pipe.Close() //nolint:errcheck // it is given up either way
	}
}

// alive reports whether the follower has answered lately.
func (g *guarded) alive(id raft.ServerID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.follower(id).heard) < aliveFor
}

// AppendEntriesPipeline is for founded groups and for members that are not just being added: of the
// others every answer is looked at.
func (g *guarded) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	g.mu.Lock()
	watched := g.follower(id).watched
	g.mu.Unlock()
	if watched || !g.founded() {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	pipe, err := g.Transport.AppendEntriesPipeline(id, target)
	if err == nil {
		g.mu.Lock()
		g.follower(id).pipe = pipe
		g.mu.Unlock()
	}
	return pipe, err
}

// follower finds or makes the record of id. The caller holds mu.
func (g *guarded) follower(id raft.ServerID) *follower {
	f := g.followers[id]
	if f == nil {
		f = &follower{}
		g.followers[id] = f
	}
	return f
}

// holds is what the follower is known to hold.
func (g *guarded) holds(id raft.ServerID) held {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.follower(id).held
}

// SetHeartbeatHandler does nothing, so that every message goes through raft's main loop. The
// library's fast path changes term and role beside that loop, and then two nodes can decide
// differently:
//
//	leader A is cut off; B wins term 2 and sends A a heartbeat
//	A's transport sets A's term to 2 and its role to follower, beside A's main loop
//	A's main loop, still within its leader's step, writes the next client command as term 2
//	A has an entry of term 2 that B never wrote; log matching is broken
func (g *guarded) SetHeartbeatHandler(handle func(raft.RPC)) {
	if mutant.On("raft/fast-path") {
		g.Transport.SetHeartbeatHandler(handle)
	}
}

// InstallSnapshot says when a follower is sent snapshots in a row: it is then being sent what it
// cannot use, or falls behind faster than it catches up.
func (g *guarded) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader,
) error {
	g.mu.Lock()
	f := g.follower(id)
	last := f.sent
	f.sent = time.Now()
	g.mu.Unlock()
	if time.Since(last) < snapshotTooSoon {
		g.log.Error("follower is sent one snapshot after the other; look at its log and disk",
			slog.String("follower", string(id)), obs.Index(args.LastLogIndex))
	}
	return g.Transport.InstallSnapshot(id, target, args, resp, data)
}

// openNetwork listens on the configured address.
func openNetwork(c Config, members func() map[string]string) (Transport, error) {
	listener, err := net.Listen("tcp", c.RaftBind)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: another process listens on %s; stop it, or choose another address", ErrAddressInUse, c.RaftBind)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on the raft address %s: %w", c.RaftBind, err)
	}
	stream := &stream{Listener: listener, advertised: advertised(c, listener), open: map[net.Conn]struct{}{}}
	if c.TLS != nil {
		if stream.tls, err = newPeerTLS(*c.TLS, c.NodeID, c.Logger, members); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	return &network{stream: stream, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: stream, MaxPool: transportPool, Timeout: transportTimeout, Logger: raftLogger(c.Logger),
		MsgpackUseNewTimeFormat: true,
	})}, nil
}

// advertised is the address given, except that port 0 becomes the port that was found.
func advertised(c Config, listener net.Listener) net.Addr {
	if _, port, err := net.SplitHostPort(c.RaftAdvertise); err != nil || port == "0" {
		return listener.Addr()
	}
	return address(c.RaftAdvertise)
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// network is the library's transport with an end: Close also closes the connections, accepted
// and pooled, that the library leaves open.
type network struct {
	*raft.NetworkTransport
	stream *stream
}

func (n *network) Close() error {
	err := n.NetworkTransport.Close()
	n.CloseStreams()
	n.stream.closeAll()
	return err
}

// stream is raft's view of TCP, with or without TLS.
type stream struct {
	net.Listener
	advertised net.Addr
	tls        *peerTLS // nil: plain text

	mu     sync.Mutex // guards open and closed
	open   map[net.Conn]struct{}
	closed bool
}

func (s *stream) Addr() net.Addr { return s.advertised }

// Accept returns as soon as there is a connection; the peer is checked by its first read, so a
// peer that says nothing holds up nobody else.
func (s *stream) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if s.tls != nil {
		conn = s.tls.server(conn)
	}
	return s.track(conn)
}

// Dial connects to a peer and, with TLS, returns only if it is the member at that address.
func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(context.Background(), "tcp", string(to))
	if err != nil {
		return nil, err
	}
	if s.tls != nil {
		if conn, err = s.tls.client(conn, string(to), timeout); err != nil {
			return nil, err
		}
	}
	return s.track(conn)
}

func (s *stream) track(conn net.Conn) (net.Conn, error) {
	tracked := &trackedConn{Conn: conn, stream: s}
	s.mu.Lock()
	refuse := s.closed
	if !refuse {
		s.open[tracked] = struct{}{}
	}
	s.mu.Unlock()
	if refuse {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	return tracked, nil
}

// closeAll closes every connection and refuses new ones. Errors do not matter any more.
func (s *stream) closeAll() {
	s.mu.Lock()
	s.closed = true
	conns := make([]net.Conn, 0, len(s.open))
	for c := range s.open {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.Close() //nolint:errcheck // the connection is given up either way
	}
}

type trackedConn struct {
	net.Conn
	stream *stream
}

func (c *trackedConn) Close() error {
	c.stream.mu.Lock()
	delete(c.stream.open, c)
	c.stream.mu.Unlock()
	return c.Conn.Close()
}
