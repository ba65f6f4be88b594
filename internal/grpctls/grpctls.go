package grpctls

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// Credentials of a client that asks config at each connection. Each answer is a configuration of its
// own, or one that is not changed any more.
func Credentials(config func() *tls.Config) credentials.TransportCredentials {
	return &fresh{config: config}
}

type fresh struct {
	config func() *tls.Config
	name   string // replaces the name that a server's certificate must carry; "": the host dialled
}

func (f *fresh) now() credentials.TransportCredentials {
	c := f.config()
	if f.name != "" {
		c = c.Clone()
		c.ServerName = f.name
	}
	return credentials.NewTLS(c)
}

// ClientHandshake implements credentials.TransportCredentials.
func (f *fresh) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return f.now().ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements credentials.TransportCredentials.
func (f *fresh) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return f.now().ServerHandshake(conn)
}

// Info implements credentials.TransportCredentials.
func (f *fresh) Info() credentials.ProtocolInfo { return f.now().Info() }

// Clone implements credentials.TransportCredentials.
func (f *fresh) Clone() credentials.TransportCredentials {
	c := *f
	return &c
}

// OverrideServerName implements credentials.TransportCredentials.
func (f *fresh) OverrideServerName(name string) error {
	f.name = name
	return nil
}
