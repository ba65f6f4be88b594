package server

import (
	"context"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/unisink/unisink/coordinator/access"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// forwarder sends unary calls that need the leader to it.
type forwarder struct {
	node  Node
	creds credentials.TransportCredentials
	dial  func(context.Context, string) (net.Conn, error)
	// mark adds whose call it is.
	mark func(ctx context.Context, self string) context.Context

	mu    sync.Mutex // guards conns; held for memory only
	conns map[string]*grpc.ClientConn
}

func newForwarder(s *Server, creds credentials.TransportCredentials) *forwarder {
	return &forwarder{node: s.c.Node, creds: creds, dial: s.c.Dial, mark: s.guard.HandOn, conns: map[string]*grpc.ClientConn{}}
}

// needsLeader reports whether a call is answered by the leader alone. Session is not: members
// follow the hint themselves, so that a lease never hangs on a third node.
func needsLeader(method string) bool {
	switch method {
	case unisinkv1.Cluster_AddNode_FullMethodName, unisinkv1.Cluster_RemoveNode_FullMethodName,
		unisinkv1.Cluster_ReplaceNode_FullMethodName, unisinkv1.Cluster_Transfer_FullMethodName,
		unisinkv1.Cluster_RaiseFeatureLevel_FullMethodName, unisinkv1.Audit_List_FullMethodName:
		return true
	}
	return strings.HasPrefix(method, "/unisink.v1.Pipelines/") || strings.HasPrefix(method, "/unisink.v1.Transactions/") ||
		strings.HasPrefix(method, "/unisink.v1.Resolution/")
}

// unary answers here on the leader, and elsewhere hands the call on.
func (f *forwarder) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !needsLeader(info.FullMethod) {
		return handler(ctx, req)
	}
	if f.node.Leads() {
		return handler(ctx, req)
	}
	st := f.node.NodeStatus()
	id, addr := f.node.Leader()
	if addr == "" || id == st.ID || access.HandedOn(ctx) {
		return nil, NotLeader(f.node)
	}
	conn, err := f.conn(addr)
	if err != nil {
		return nil, grpcerr.New(codes.Unavailable, grpcerr.NotLeader, "leader "+id+" at "+addr+" cannot be dialled: "+err.Error(),
			map[string]string{grpcerr.MetaLeader: addr})
	}
	resp, err := newResponse(info.FullMethod)
	if err != nil {
		return nil, err
	}
	if err := conn.Invoke(f.mark(ctx, st.ID), info.FullMethod, req, resp); err != nil {
		return nil, err // the leader's status, as it is
	}
	// The caller may ask the leader itself next time. Without the header it goes on asking here.
	_ = grpc.SetHeader(ctx, metadata.Pairs(grpcerr.HeaderLeader, addr))
	return resp, nil
}

// maxAnswer bounds what is handed back, bytes: as much as clients take of the leader itself. grpc-go's own bound is
// far below, and a long answer would reach those alone who ask the leader.
const maxAnswer = 64 << 20

func (f *forwarder) conn(addr string) (*grpc.ClientConn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.conns[addr]; c != nil {
		return c, nil
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(f.creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer))}
	target := addr
	if f.dial != nil {
		opts = append(opts, grpc.WithContextDialer(f.dial))
		target = "passthrough:///" + addr
	}
	c, err := grpc.NewClient(target, opts...) // connects when it is first used
	if err != nil {
		return nil, err
	}
	f.conns[addr] = c
	return c, nil
}

func (f *forwarder) close() {
	f.mu.Lock()
	conns := f.conns
	f.conns = map[string]*grpc.ClientConn{}
	f.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // nothing is under way any more
	}
}

// newResponse makes an empty response message of a method.
func newResponse(fullMethod string) (proto.Message, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, err
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}
