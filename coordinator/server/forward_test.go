package server

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// following is a node that knows who leads.
type following struct{ Node }

func (following) NodeStatus() NodeStatus {
	return NodeStatus{ID: "n2", State: "follower", Bootstrapped: true}
}
func (following) Leads() bool              { return false }
func (following) Leader() (string, string) { return "n1", "n1:7400" }

// indebted is a leader that owes a great deal.
type indebted struct {
	unisinkv1.UnimplementedResolutionServer
	duties int
}

func (i indebted) ListDuties(context.Context, *unisinkv1.ListDutiesRequest) (*unisinkv1.ListDutiesResponse, error) {
	out := &unisinkv1.ListDutiesResponse{Namespace: "test"}
	for range i.duties {
		out.Duties = append(out.Duties, &unisinkv1.Duty{Handle: &unisinkv1.Handle{Body: make([]byte, 16<<10)}})
	}
	return out, nil
}

// A resolver that does not find its duties finishes nothing, just when there is most to do.
func TestALongAnswerOfTheLeaderComesThroughAFollower(t *testing.T) {
	const duties = 1000 // 16 MiB
	at := bufconn.Listen(1 << 20)
	leader := grpc.NewServer()
	unisinkv1.RegisterResolutionServer(leader, indebted{duties: duties})
	served := make(chan error, 1)
	go func() { served <- leader.Serve(at) }()
	defer func() {
		leader.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	f := &forwarder{
		node: following{}, creds: insecure.NewCredentials(), conns: map[string]*grpc.ClientConn{},
		dial: func(ctx context.Context, _ string) (net.Conn, error) { return at.DialContext(ctx) },
		mark: func(ctx context.Context, _ string) context.Context { return ctx },
	}
	defer f.close()
	info := &grpc.UnaryServerInfo{FullMethod: unisinkv1.Resolution_ListDuties_FullMethodName}
	got, err := f.unary(t.Context(), &unisinkv1.ListDutiesRequest{}, info, func(context.Context, any) (any, error) {
		t.Error("the follower answered by itself")
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.(*unisinkv1.ListDutiesResponse).GetDuties()); n != duties {
		t.Errorf("%d duties came through, of %d", n, duties)
	}
}
