package server

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// still is a node to which nothing happens.
type still struct{ shown }

func (still) NodeStatus() NodeStatus { return NodeStatus{ID: "n1"} }

// edge serves, and returns a connection to it.
func edge(t *testing.T, serverTLS, clientTLS *tls.Config) *grpc.ClientConn {
	t.Helper()
	connect := edgeFor(t, serverTLS)
	return connect(clientTLS)
}

// edgeFor serves, and returns how to connect to it.
func edgeFor(t *testing.T, serverTLS *tls.Config) func(clientTLS *tls.Config) *grpc.ClientConn {
	t.Helper()
	at := bufconn.Listen(1 << 16)
	happened := eventlog.New(4, slog.New(slog.DiscardHandler))
	happened.Add(eventlog.Event{Kind: eventlog.Leader})
	s := New(Config{
		Events: happened,
		Node:   still{shown{m: ledger.New()}}, Sessions: noSessions{}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Listener: at, TLS: serverTLS,
	})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func(clientTLS *tls.Config) *grpc.ClientConn {
		t.Helper()
		creds := insecure.NewCredentials()
		if clientTLS != nil {
			creds = credentials.NewTLS(clientTLS)
		}
		conn, err := grpc.NewClient("passthrough:///n1", grpc.WithTransportCredentials(creds),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return at.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // what is under way on it ends
		return conn
	}
}

// A viewer, or in plain text anybody, could else start handlers until the node has no memory left.
func TestOneConnectionHasABoundedNumberOfCalls(t *testing.T) {
	conn := edge(t, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range mostCalls {
		w, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		if err != nil {
			t.Fatalf("call %d of %d that are allowed: %v", i+1, mostCalls, err)
		}
	}
	more, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	if _, err := healthpb.NewHealthClient(conn).Check(more, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("one call more was answered: %v", err)
	}
	cancel() // they end, and there is room again
	free, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	if _, err := healthpb.NewHealthClient(conn).Check(free, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("after the others have ended: %v", err)
	}
}

func TestTheHeadOfACallIsBounded(t *testing.T) {
	conn := edge(t, nil, nil)
	ask := func(size int) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "junk", strings.Repeat("j", size))
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	if err := ask(mostHeaders / 2); err != nil { // and the client knows the bound from here on
		t.Errorf("half of what is allowed: %v", err)
	}
	if err := ask(2 * mostHeaders); status.Code(err) != codes.Internal {
		t.Errorf("twice what is allowed: %v", err)
	}
	if err := ask(0); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// turnedAway begins a call that decides, sends nothing, and wants to hear all the same that it may not.
func turnedAway(t *testing.T, conn *grpc.ClientConn, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, unisinkv1.Transactions_Commit_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	err = call.RecvMsg(&unisinkv1.CommitResponse{})
	if reason, _ := grpcerr.Reason(err); reason != grpcerr.NotAllowed || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want %q", err, why)
	}
}

// A message may be of megabytes, and take as long to come as its sender likes.
func TestWhoShowsNoCertificateIsTurnedAwayBeforeItsMessageComes(t *testing.T) {
	theirs, ours := certificates(t)
	conn := edge(t, ours, theirs)
	turnedAway(t, conn, "a caller without a certificate may not call Transactions.Commit")
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health, which is for everybody: %v", err)
	}
}

// Nor of one who has a certificate, and no role for it.
func TestWhoHasNoRoleForACallIsTurnedAwayBeforeItsMessageComes(t *testing.T) {
	client, ours := certificates(t)
	client.Certificates = ours.Certificates
	conn := edge(t, ours, client)
	turnedAway(t, conn, "n1 may not call Transactions.Commit, which takes the role client, and has no role")
}

// A newer client asks a node that is not upgraded yet for something that it does not know, and is told just that: "nobody
// may" would send people to look for a role.
func TestAMethodOfANewerVersionIsUnimplementedAndNotForbidden(t *testing.T) {
	client, ours := certificates(t)
	client.Certificates = ours.Certificates
	conn := edge(t, ours, client)
	for _, method := range []string{"/unisink.v1.Cluster/Unheard", "/unisink.v2.Cluster/Status"} {
		err := conn.Invoke(t.Context(), method, &unisinkv1.StatusRequest{}, &unisinkv1.StatusResponse{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// certificates are the two sides of a connection; that of the server is for clients too, and the authority of both.
func certificates(t *testing.T) (client, server *tls.Config) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "n1"}, DNSNames: []string{"n1"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c)
	own := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}
	return &tls.Config{RootCAs: pool, ServerName: "n1", MinVersion: tls.VersionTLS13},
		&tls.Config{Certificates: own, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool, MinVersion: tls.VersionTLS13}
}

// Who shows no certificate must not be able to take all there is of memory and open files.
func TestFewConnectionsWithoutACertificateAreOpenAtOnce(t *testing.T) {
	stranger, ours := certificates(t)
	known := stranger.Clone()
	known.Certificates = ours.Certificates // which is an authority of its own
	connect := edgeFor(t, ours)
	ask := func(conn *grpc.ClientConn, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	var open []*grpc.ClientConn
	for i := range mostStrangers {
		open = append(open, connect(stranger))
		if err := ask(open[i], 10*time.Second); err != nil {
			t.Fatalf("connection %d of %d that are allowed: %v", i+1, mostStrangers, err)
		}
	}
	if err := ask(connect(stranger), 10*time.Second); status.Code(err) != codes.Unavailable {
		t.Errorf("one more: %v", err)
	}
	if err := ask(connect(known), 10*time.Second); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := open[0].Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		err := ask(connect(stranger), 10*time.Second)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after one has gone: %v", err)
		}
	}
}

// Where nobody is asked for a certificate, having none makes nobody a stranger.
func TestWhereNoCertificateIsAskedForAllConnectionsAreLetIn(t *testing.T) {
	client, ours := certificates(t)
	ours.ClientAuth = tls.NoClientCert
	connect := edgeFor(t, ours)
	for i := range mostStrangers + 2 {
		if _, err := healthpb.NewHealthClient(connect(client)).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
	}
}
