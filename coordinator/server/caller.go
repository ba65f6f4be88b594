package server

import (
	"context"
	"crypto/tls"
	"net"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/unisink/unisink/coordinator/ledger"
)

// callerHeader carries, with a call that a node hands on to the leader, whose call it is.
const callerHeader = "unisink-caller"

// peerName is who is at the other end of the connection: the name in its certificate or, without
// TLS, the host that it calls from.
func peerName(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "unknown"
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
		return "certificate " + info.State.VerifiedChains[0][0].Subject.String()
	}
	if p.Addr == nil {
		return "unknown"
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}

// caller is whose call it is. What a node says that handed the call on counts, if it is one: with
// certificates it has a node's name. Without them nobody is known for sure, and everybody is
// believed.
func (s *Server) caller(ctx context.Context) string {
	who := peerName(ctx)
	md, _ := metadata.FromIncomingContext(ctx)
	if named := md.Get(callerHeader); len(named) == 1 && len(md.Get(hopHeader)) > 0 && s.isNode(ctx) {
		return named[0]
	}
	return who
}

// isNode reports whether the connection is another node's, or may be.
func (s *Server) isNode(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return s.c.TLS == nil || s.c.TLS.ClientAuth < tls.VerifyClientCertIfGiven
	}
	names := info.State.VerifiedChains[0][0].DNSNames
	found := false
	s.c.Node.View(func(m *ledger.Machine) {
		found = slices.ContainsFunc(m.Nodes(), func(n ledger.Node) bool { return slices.Contains(names, n.ID) })
	})
	return found
}
