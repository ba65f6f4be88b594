package server

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
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
	"github.com/unisink/unisink/internal/obs"
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
	return edgeOf(t, Config{TLS: serverTLS, Registry: prometheus.NewRegistry()})
}

// edgeOf is edgeFor with what else a test says.
func edgeOf(t *testing.T, c Config) func(clientTLS *tls.Config) *grpc.ClientConn {
	t.Helper()
	at := serveAt(t, c)
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

// serveAt serves until the test's end, and returns where.
func serveAt(t *testing.T, c Config) *bufconn.Listener {
	t.Helper()
	at := bufconn.Listen(1 << 16)
	happened := eventlog.New(4, slog.New(slog.DiscardHandler))
	happened.Add(eventlog.Event{Kind: eventlog.Leader})
	c.Events, c.Node, c.Sessions, c.Logger, c.Listener = happened, still{shown{m: ledger.New()}}, noSessions{}, slog.New(slog.DiscardHandler), at
	c.InDoubt = func() InDoubt { return InDoubt{} } // for the metrics
	s := New(c)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return at
}

// A client is asked to keep to a small table of headers (RFC 9113, section 6.5.2: SETTINGS_HEADER_TABLE_SIZE is 1): a
// thousand connections with the default of 4 KiB take 7 MiB more.
func TestAClientIsAskedToRememberFewHeaders(t *testing.T) {
	conn, err := serveAt(t, Config{Registry: prometheus.NewRegistry()}).DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// The client's preface, and an empty SETTINGS frame of it.
	if _, err := conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0)); err != nil {
		t.Fatal(err)
	}
	var head [9]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		t.Fatal(err)
	}
	length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	if head[3] != 4 || length%6 != 0 {
		t.Fatalf("the first frame is of type %d and has %d bytes, no SETTINGS", head[3], length)
	}
	settings := make([]byte, length)
	if _, err := io.ReadFull(conn, settings); err != nil {
		t.Fatal(err)
	}
	told := map[uint16]uint32{}
	for ; len(settings) > 0; settings = settings[6:] {
		told[binary.BigEndian.Uint16(settings)] = binary.BigEndian.Uint32(settings[2:])
	}
	if told[1] != headerTable {
		t.Errorf("the settings are %v; 1, the size of the table of headers, should be %d", told, headerTable)
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
	registry := prometheus.NewRegistry()
	connect := edgeOf(t, Config{TLS: ours, Registry: registry})
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
	if n := refused(t, registry)[refusedConnections]; n < 1 {
		t.Errorf("%v connections were counted as refused", n)
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

func anyRole(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := unisinkv1.NewClusterClient(conn).Status(ctx, &unisinkv1.StatusRequest{})
	return err
}

func commit(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := unisinkv1.NewTransactionsClient(conn).Commit(ctx, &unisinkv1.CommitRequest{})
	return err
}

// refused are the counters of what was turned away, by cause.
func refused(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]float64{}
	for _, f := range all {
		if f.GetName() == obs.MetricRefused {
			for _, m := range f.GetMetric() {
				n[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// Who is refused shows in a metric, by one of four causes: somebody who tries doors, or a client whose certificate has run out.
func TestWhoIsRefusedIsCounted(t *testing.T) {
	nobody, ours := certificates(t)
	known := nobody.Clone()
	known.Certificates = ours.Certificates
	_, theirs := certificates(t)
	foreign := nobody.Clone()
	foreign.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &theirs.Certificates[0], nil }
	registry := prometheus.NewRegistry()
	connect := edgeOf(t, Config{TLS: ours, Registry: registry, Trusts: func([][]*x509.Certificate, time.Time) error { return errors.New("it has ended") }})
	want := map[string]float64{refusedHandshake: 0, refusedConnections: 0, refusedRole: 0, refusedCertificate: 0}
	if got := refused(t, registry); !maps.Equal(got, want) {
		t.Errorf("at first: %v", got)
	}
	for _, c := range []struct {
		what  string
		by    *tls.Config
		call  func(context.Context, *grpc.ClientConn) error
		code  codes.Code
		cause string
	}{
		{"without a certificate", nobody, anyRole, codes.PermissionDenied, refusedRole},
		{"without a role", known, commit, codes.PermissionDenied, refusedRole},
		{"not trusted any more", known, anyRole, codes.Unauthenticated, refusedCertificate},
		{"of another authority", foreign, anyRole, codes.Unavailable, refusedHandshake},
		{"in plain text", nil, anyRole, codes.Unavailable, refusedHandshake},
	} {
		before := refused(t, registry)
		conn := connect(c.by)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := c.call(ctx, conn); status.Code(err) != c.code {
			t.Errorf("%s: %v", c.what, err)
		}
		// Of a handshake the client may hear sooner than the count is made.
		for c.cause == refusedHandshake && ctx.Err() == nil && refused(t, registry)[c.cause] == before[c.cause] {
			_ = c.call(ctx, conn) // refused again
		}
		cancel()
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		for cause, n := range refused(t, registry) {
			if more := n - before[cause]; (more > 0) != (cause == c.cause) || more > 1 && cause != refusedHandshake {
				t.Errorf("%s: %v more are refused by cause %s", c.what, more, cause)
			}
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
