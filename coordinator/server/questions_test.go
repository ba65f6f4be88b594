package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/unisink/unisink/coordinator/ledger"
)

func TestACallerAsksAtAPaceAndIsToldItsTurn(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	q := newQuota(10, 5)
	for i := range 5 {
		if wait, ok := q.take("a", start); !ok {
			t.Fatalf("question %d of the first burst waits %s", i+1, wait)
		}
	}
	for i := range 3 {
		want := time.Duration(i+1) * 100 * time.Millisecond
		if wait, ok := q.take("a", start); ok || wait != want {
			t.Fatalf("question %d too many: %t, wait %s, want %s", i+1, ok, wait, want)
		}
	}
	if _, ok := q.take("b", start); !ok {
		t.Error("another caller waits for the first one")
	}
	for i := range 3 { // those who waited come back in their turn
		if wait, ok := q.take("a", at(time.Duration(i+1)*100*time.Millisecond)); !ok {
			t.Errorf("turn %d had not come, %s more", i+1, wait)
		}
	}
	for i := range 6 { // an hour of silence is worth one burst
		if _, ok := q.take("a", at(time.Hour)); ok != (i < 5) {
			t.Errorf("question %d after an hour: %t", i+1, ok)
		}
	}
}

func TestWhoAsksAThousandAtOnceLeavesNoThousandTurnsBehind(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := newQuota(10, 5)
	for range 1000 {
		if wait, ok := q.take("a", now); !ok && wait > time.Second {
			t.Fatalf("told to wait %s", wait)
		}
	}
}

func TestIdleCallersAreForgotten(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := newQuota(10, 5)
	for i := range 10 * fewCallers {
		q.take(fmt.Sprint(i), now.Add(time.Duration(i)*100*time.Millisecond))
	}
	if len(q.callers) > 2*fewCallers {
		t.Errorf("%d callers are kept", len(q.callers))
	}
}

// Who calls is judged by the connection, and by a header only where a node has handed the call on.
func TestACallerIsKnownByItsConnection(t *testing.T) {
	m := ledger.New()
	for _, b := range []ledger.Body{
		ledger.Init{Namespace: "test", Incarnation: 1}, ledger.PutNode{Node: ledger.Node{ID: "n2", RaftAddress: "r", ClientAddress: "c", FeatureLevel: 1}},
	} {
		if r, _ := m.Apply(ledger.Command{At: 1, Actor: "test", Body: b}); !r.OK() {
			t.Fatal(r.Text)
		}
	}
	plain := &Server{c: Config{Node: shown{m: m}}}
	mutual := &Server{c: Config{Node: shown{m: m}, TLS: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}}}
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 4711}
	named := func(name string) credentials.AuthInfo {
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}
		return credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}}
	}
	handedOn := metadata.Pairs(hopHeader, "n2", callerHeader, "10.0.0.9")
	for name, c := range map[string]struct {
		s    *Server
		auth credentials.AuthInfo
		md   metadata.MD
		want string
	}{
		"plain text":                       {plain, nil, nil, "10.0.0.7"},
		"plain text, handed on":            {plain, nil, handedOn, "10.0.0.9"},
		"a header of the caller's own":     {plain, nil, metadata.Pairs(callerHeader, "10.0.0.9"), "10.0.0.7"},
		"a certificate":                    {mutual, named("shop"), nil, "certificate CN=shop"},
		"a certificate, handed on":         {mutual, named("n2"), handedOn, "10.0.0.9"},
		"a client that passes as a node":   {mutual, named("shop"), handedOn, "certificate CN=shop"},
		"no certificate where one is owed": {mutual, nil, handedOn, "10.0.0.7"},
	} {
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: addr, AuthInfo: c.auth})
		if got := c.s.caller(metadata.NewIncomingContext(ctx, c.md)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
