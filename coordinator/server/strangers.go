package server

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"github.com/unisink/unisink/internal/mutant"
)

// mostStrangers bounds the connections without a certificate that are open at once. Who has none may ask for health and
// be told what is missing; any number of connections, kept for ever, would take the node's memory and open files from
// those who have one.
const mostStrangers = 128

var errStrangers = errors.New("as many connections without a certificate are open as this node takes")

// door lets callers in who show a certificate, and a few who show none. Where nobody is asked for one it lets all in. It
// counts whom it turns away.
type door struct {
	credentials.TransportCredentials
	asks      bool
	strangers *atomic.Int64
	refused   *prometheus.CounterVec
}

func newDoor(c credentials.TransportCredentials, asks bool, m *metrics) *door {
	return &door{c, asks, new(atomic.Int64), m.refused}
}

// ServerHandshake implements credentials.TransportCredentials.
func (d *door) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := d.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		d.refused.WithLabelValues(refusedHandshake).Inc()
		return nil, nil, err
	}
	if who, ok := info.(credentials.TLSInfo); !d.asks || !ok || len(who.State.VerifiedChains) > 0 {
		return conn, info, nil
	}
	if d.strangers.Add(1) > mostStrangers && !mutant.On("server/few-strangers") {
		d.strangers.Add(-1)
		d.refused.WithLabelValues(refusedConnections).Inc()
		return nil, nil, errors.Join(errStrangers, conn.Close())
	}
	return &stranger{Conn: conn, left: func() { d.strangers.Add(-1) }}, info, nil
}

// Clone implements credentials.TransportCredentials; all clones count together.
func (d *door) Clone() credentials.TransportCredentials {
	return &door{d.TransportCredentials.Clone(), d.asks, d.strangers, d.refused}
}

// stranger is a connection that is counted until it is closed.
type stranger struct {
	net.Conn
	once sync.Once
	left func()
}

func (s *stranger) Close() error {
	s.once.Do(s.left)
	return s.Conn.Close()
}
