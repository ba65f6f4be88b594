package route_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// certificate for one name, signed by itself.
func certificate(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, pool
}

func TestTLSChecksTheNameOfTheNodeThatIsDialled(t *testing.T) {
	cert, pool := certificate(t, "node-a")
	x := &node{net: bufconn.Listen(1 << 16), answer: leads}
	x.server = grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	unisinkv1.RegisterTransactionsServer(x.server, x)
	go func() { _ = x.server.Serve(x.net) }() // ends with Stop
	t.Cleanup(x.server.Stop)
	everywhere := func(ctx context.Context, _ string) (net.Conn, error) { return x.net.DialContext(ctx) }

	for addr, good := range map[string]bool{"node-a:1": true, "node-b:1": false} {
		r, err := route.NewRouter([]string{addr}, route.WithDial(everywhere),
			route.WithTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}), route.WithPatience(200*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		err = ask(t.Context(), r)
		if good && err != nil {
			t.Errorf("%s: %v", addr, err)
		}
		if !good && (!errors.Is(err, route.ErrUnreachable) || !strings.Contains(err.Error(), "node-b")) {
			t.Errorf("%s: %v; want that the certificate is not for it", addr, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// That one side does not trust the other is said as that, and whose file it is about can be told from the error.
func TestWhatIsNotTrustedIsSaid(t *testing.T) {
	cert, pool := certificate(t, "node-a")
	foreign, _ := certificate(t, "somebody")
	// A real connection: in memory a caller that is cut off can't read why.
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &node{answer: leads}
	x.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
	})))
	unisinkv1.RegisterTransactionsServer(x.server, x)
	go func() { _ = x.server.Serve(listener) }() // ends with Stop
	t.Cleanup(x.server.Stop)
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		if addr == "down:1" {
			return nil, errors.New("connection refused")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	}
	shows := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &foreign, nil }
	for name, c := range map[string]struct {
		config *tls.Config
		is     error
		says   string
	}{
		"the node":   {&tls.Config{RootCAs: x509.NewCertPool()}, route.ErrForeignNode, "node-a:1 shows a certificate that is not trusted here (x509: certificate signed by unknown authority"},
		"the caller": {&tls.Config{RootCAs: pool, GetClientCertificate: shows}, route.ErrForeignCaller, "node-a:1 does not accept the certificate that it was shown (unknown certificate authority); show one that is signed by an authority of the coordinators and valid now"},
	} {
		c.config.MinVersion = tls.VersionTLS13
		r, err := route.NewRouter([]string{"down:1", "node-a:1"}, route.WithDial(dial), route.WithTLS(c.config), route.WithPatience(2*time.Second)) // several tries: of some nothing is heard but that they were cut
		if err != nil {
			t.Fatal(err)
		}
		err = ask(t.Context(), r)
		if !errors.Is(err, c.is) || !errors.Is(err, route.ErrUnreachable) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "check the addresses") {
			t.Errorf("%s is not trusted: %v", name, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
