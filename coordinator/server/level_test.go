package server

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// first is the leader of a group whose log is one machine.
type first struct{ applied }

func (first) NodeStatus() NodeStatus { return NodeStatus{ID: "n1", State: "leader"} }

// upgraded is a node that follows further than it did, and of which something happens while it is asked.
type upgraded struct {
	unisinkv1.UnimplementedClusterServer
	meanwhile func()
}

func (u upgraded) Status(context.Context, *unisinkv1.StatusRequest) (*unisinkv1.StatusResponse, error) {
	u.meanwhile()
	return &unisinkv1.StatusResponse{Node: "n2", SupportedFeatureLevel: ledger.CurrentFeatureLevel}, nil
}

func TestANodeThatChangesWhileItIsAskedIsNotWrittenDownAsItWas(t *testing.T) {
	moved := ledger.Node{ID: "n2", RaftAddress: "n2:7401", ClientAddress: "elsewhere:7400", FeatureLevel: 1}
	for name, c := range map[string]struct {
		meanwhile *ledger.Node
		code      codes.Code
		known     string // where n2 is after it
	}{
		"nothing":    {nil, codes.OK, "n2:7400"},
		"it is gone": {&ledger.Node{ID: "n2"}, codes.OK, ""},
		"it moved":   {&moved, codes.FailedPrecondition, "elsewhere:7400"},
	} {
		t.Run(name, func(t *testing.T) {
			node := first{applied{shown: shown{m: doubtful(t, 0)}, barriers: new(int), one: &sync.Mutex{}}}
			put := func(n ledger.Node) {
				if r, err := node.Propose(t.Context(), ledger.Command{Actor: "test", Body: ledger.PutNode{Node: n}}); err != nil || !r.OK() {
					t.Errorf("%+v: %v %s", n, err, r.Text)
				}
			}
			put(ledger.Node{ID: "n1", RaftAddress: "n1:7401", ClientAddress: "n1:7400", FeatureLevel: ledger.CurrentFeatureLevel})
			put(ledger.Node{ID: "n2", RaftAddress: "n2:7401", ClientAddress: "n2:7400", FeatureLevel: 1})
			at := bufconn.Listen(1 << 16)
			follower := grpc.NewServer()
			unisinkv1.RegisterClusterServer(follower, upgraded{meanwhile: func() {
				if c.meanwhile != nil {
					put(*c.meanwhile)
				}
			}})
			served := make(chan error, 1)
			go func() { served <- follower.Serve(at) }()
			defer func() {
				follower.Stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			}()
			f := &forwarder{
				node: node, creds: insecure.NewCredentials(), conns: map[string]*grpc.ClientConn{},
				dial: func(ctx context.Context, _ string) (net.Conn, error) { return at.DialContext(ctx) },
				mark: func(ctx context.Context, _ string) context.Context { return ctx },
			}
			defer f.close()
			s := &cluster{s: &Server{c: Config{Node: node}, forward: f}}
			if _, err := s.RaiseFeatureLevel(t.Context(), &unisinkv1.RaiseFeatureLevelRequest{}); status.Code(err) != c.code {
				t.Errorf("%v, want %v", err, c.code)
			}
			nodes := node.m.Nodes()
			i := slices.IndexFunc(nodes, func(n ledger.Node) bool { return n.ID == "n2" })
			switch {
			case i < 0 && c.known != "":
				t.Errorf("it is gone; want it at %s", c.known)
			case i >= 0 && nodes[i].ClientAddress != c.known:
				t.Errorf("it is at %s, want %q", nodes[i].ClientAddress, c.known)
			}
			if want := map[bool]uint32{true: ledger.CurrentFeatureLevel, false: 1}[c.code == codes.OK]; node.m.FeatureLevel() != want {
				t.Errorf("the group is at level %d, want %d", node.m.FeatureLevel(), want)
			}
		})
	}
}
