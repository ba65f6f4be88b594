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
