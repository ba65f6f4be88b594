package raftnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/certs"
	"github.com/unisink/unisink/internal/mutant"
)

// TLSConfig names the files that a node shows itself with and judges others by, all PEM. The
// certificate must carry the node's id as a DNS name and be good for client and server use.
type TLSConfig struct {
	CertFile string
	KeyFile  string
	CAFile   string // the private authority of this group's nodes
}

func (t TLSConfig) validate() []error {
	var errs []error
	for _, f := range [...]struct{ what, file string }{
		{"certificate", t.CertFile}, {"key", t.KeyFile}, {"authority", t.CAFile},
	} {
		if f.file == "" {
			errs = append(errs, fmt.Errorf("the TLS %s file is not set", f.what))
		}
	}
	return errs
}

// Files is t as package certs takes it.
func (t TLSConfig) Files() certs.Files {
	return certs.Files{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile}
}

// errPeer is in the chain of every refusal of a peer.
var errPeer = errors.New("peer refused")

const handshakeTimeout = 5 * time.Second

// peerTLS speaks mutual TLS 1.3 with members of the group and nobody else: whoever reaches the
// raft port could otherwise depose leaders or install a snapshot.
type peerTLS struct {
	files   *certs.Store
	members func() map[string]string // node id -> raft address; empty before the node has a group
}

// newPeerTLS reads the files, which are read again when they change.
func newPeerTLS(c TLSConfig, node string, log *slog.Logger, members func() map[string]string) (*peerTLS, error) {
	files, err := certs.Open(c.Files(), node, log)
	if err != nil {
		return nil, err
	}
	return &peerTLS{files: files, members: members}, nil
}

// server wraps an accepted connection. The peer must be some member; before this node has a
// group, the group's authority alone vouches for it.
func (p *peerTLS) server(conn net.Conn) net.Conn {
	return &lateHandshake{Conn: tls.Server(conn, &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{*p.files.Cert()},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    p.files.Roots(),
		// A session would outlive the authority that it was begun under.
		SessionTicketsDisabled: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			members := p.members()
			names := cs.PeerCertificates[0].DNSNames
			if mutant.On("raft/peer-name") || len(members) == 0 || slices.ContainsFunc(names, func(n string) bool { _, ok := members[n]; return ok }) {
				return nil
			}
			return fmt.Errorf("%w: its certificate names %v, and none of them is a member of this group", errPeer, names)
		},
	})}
}

// client wraps a dialled connection. The peer must be the very member that has the address.
func (p *peerTLS) client(conn net.Conn, to string, timeout time.Duration) (net.Conn, error) {
	tc := tls.Client(conn, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{*p.files.Cert()},
		InsecureSkipVerify: true, //nolint:gosec // verified below, by node id and not by host name
		VerifyConnection:   func(cs tls.ConnectionState) error { return p.verifyServer(cs, to) },
	})
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := tc.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", to, err), tc.Close())
	}
	return tc, nil
}

func (p *peerTLS) verifyServer(cs tls.ConnectionState, to string) error {
	chain := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		chain.AddCert(c)
	}
	leaf := cs.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: p.files.Roots(), Intermediates: chain}); err != nil {
		return fmt.Errorf("%w: %w", errPeer, err)
	}
	for id, address := range p.members() {
		if mutant.On("raft/peer-name") || address == to && slices.Contains(leaf.DNSNames, id) {
			return nil
		}
	}
	return fmt.Errorf("%w: the certificate at %s names %v, and no member of that name has that address", errPeer, to, leaf.DNSNames)
}

// lateHandshake bounds the handshake that the first read or write does.
type lateHandshake struct {
	*tls.Conn
	once sync.Once
	err  error
}

func (c *lateHandshake) shake() error {
	c.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
		defer cancel()
		c.err = c.HandshakeContext(ctx)
	})
	return c.err
}

func (c *lateHandshake) Read(b []byte) (int, error) {
	if err := c.shake(); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *lateHandshake) Write(b []byte) (int, error) {
	if err := c.shake(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
