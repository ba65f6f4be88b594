package server

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/unisink/unisink/internal/mutant"
)

// mostStrangers bounds the connections without a certificate that are open at once. Who has none may ask for health and
// be told what is missing; any number of connections, kept for ever, would take the node's memory and open files from
// those who have one.
const mostStrangers = 128

var errStrangers = errors.New("as many connections without a certificate are open as this node takes")

// door lets callers in who show a certificate, and a few who show none.
type door struct {
	credentials.TransportCredentials
	strangers *atomic.Int64
}

func newDoor(c credentials.TransportCredentials) *door { return &door{c, new(atomic.Int64)} }

// ServerHandshake implements credentials.TransportCredentials.
func (d *door) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := d.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	if who, ok := info.(credentials.TLSInfo); !ok || len(who.State.VerifiedChains) > 0 {
		return conn, info, nil
	}
	if d.strangers.Add(1) > mostStrangers && !mutant.On("server/few-strangers") {
		d.strangers.Add(-1)
		return nil, nil, errors.Join(errStrangers, conn.Close())
	}
	return &stranger{Conn: conn, left: func() { d.strangers.Add(-1) }}, info, nil
}

// Clone implements credentials.TransportCredentials; all clones count together.
func (d *door) Clone() credentials.TransportCredentials {
	return &door{d.TransportCredentials.Clone(), d.strangers}
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
