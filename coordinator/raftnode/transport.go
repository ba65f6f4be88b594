package raftnode

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

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

// guarded is the transport that raft sees. The interface is embedded, so pre-vote stays visible:
// raft looks for it by type, and does without it with no more than a line in the log.
type guarded struct {
	Transport
	log *slog.Logger

	mu   sync.Mutex // guards sent
	sent map[raft.ServerID]time.Time
}

var (
	_ raft.WithPreVote = (*guarded)(nil)
	_ raft.WithClose   = (*guarded)(nil)
)

func guard(t Transport, log *slog.Logger) *guarded {
	return &guarded{Transport: t, log: log, sent: map[raft.ServerID]time.Time{}}
}

// SetHeartbeatHandler does nothing, so that every message goes through raft's main loop. The
// library's fast path changes term and role beside that loop, and then two nodes can decide
// differently:
//
//	leader A is cut off; B wins term 2 and sends A a heartbeat
//	A's transport sets A's term to 2 and its role to follower, beside A's main loop
//	A's main loop, still within its leader's step, writes the next client command as term 2
//	A has an entry of term 2 that B never wrote; log matching is broken
func (g *guarded) SetHeartbeatHandler(func(raft.RPC)) {}

// InstallSnapshot says when a follower is sent snapshots in a row: it is then being sent what it
// cannot use, or falls behind faster than it catches up.
func (g *guarded) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader,
) error {
	g.mu.Lock()
	last, again := g.sent[id]
	g.sent[id] = time.Now()
	g.mu.Unlock()
	if again && time.Since(last) < snapshotTooSoon {
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
		if stream.tls, err = newPeerTLS(*c.TLS, c.NodeID, members); err != nil {
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
	conn, err := net.DialTimeout("tcp", string(to), timeout)
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
