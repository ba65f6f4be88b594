package session

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// process is a client with a connection of its own, which a kill takes away.
func process(t *testing.T, lis *bufconn.Listener) (unisinkv1.SessionClient, *grpc.ClientConn) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///leader", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	return unisinkv1.NewSessionClient(conn), conn
}

func TestOverTheWireAKilledProcessIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "all")
		lis := bufconn.Listen(1 << 16)
		srv := grpc.NewServer()
		unisinkv1.RegisterSessionServer(srv, w.now())
		served := make(chan error, 1)
		go func() { served <- srv.Serve(lis) }()

		first, conn := process(t, lis)
		orders, err := first.Attach(t.Context(), attachRequest("all", "a"))
		if err != nil {
			t.Fatal(err)
		}
		receive(t, orders, "welcome")
		receive(t, orders, "restore 1")
		if _, err := first.Ready(t.Context(), &unisinkv1.ReadyRequest{Scope: scopeOnWire(), Member: "all", Instance: "a", Generation: 1}); err != nil {
			t.Fatal(err)
		}
		receive(t, orders, "start 1")
		resp, err := first.Decide(t.Context(), &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{
			Scope: scopeOnWire(), Member: "all", Instance: "a", Vote: yes("all", 1, 1),
		}})
		if err != nil || resp.GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
			t.Fatalf("%v, %v", resp, err)
		}
		_, err = first.Vote(t.Context(), &unisinkv1.VoteRequest{Scope: scopeOnWire(), Member: "all", Instance: "x", Vote: yes("all", 1, 2)})
		if reason, _ := grpcerr.Reason(err); reason != grpcerr.Fenced {
			t.Errorf("vote of a stranger: %v", err)
		}
		time.Sleep(2 * time.Second) // of the bubble: what ends younger is delayed (P24)
		second, conn2 := process(t, lis)
		waiting, err := second.Attach(t.Context(), attachRequest("all", "b"))
		if err != nil {
			t.Fatal(err)
		}
		receive(t, waiting, "waiting for instance a")
		killed := time.Now()
		_ = conn.Close()
		receive(t, waiting, "welcome")
		receive(t, waiting, "restore 2 from 1.1, 1 unfinished, 1 debts")
		if took := time.Since(killed); took > 100*time.Millisecond {
			t.Errorf("the newcomer waited %s", took)
		}
		w.fall()
		if _, err := waiting.Recv(); err == nil {
			t.Error("the stream outlived the leadership")
		} else if reason, _ := grpcerr.Reason(err); reason != grpcerr.NotLeader {
			t.Errorf("the stream ended with %v", err)
		}
		_ = conn2.Close()
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func scopeOnWire() *unisinkv1.Scope { return &unisinkv1.Scope{Pipeline: pipelineName} }

// receive skips Waiting, unless that is what is wanted.
func receive(t *testing.T, s grpc.ServerStreamingClient[unisinkv1.Order], want string) {
	t.Helper()
	for {
		o, err := s.Recv()
		if err != nil {
			t.Fatalf("want %q: %v", want, err)
		}
		got := describe(o)
		if len(got) >= len(want) && got[:len(want)] == want {
			return
		}
		if o.GetWaiting() == nil {
			t.Fatalf("got order %q, want %q", got, want)
		}
	}
}
