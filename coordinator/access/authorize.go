package access

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/mutant"
)

// allow says why a caller may not send a message to a method; nil if it may. A nil message asks
// whether there is any that it may send.
func (g *Guard) allow(id identity, method string, msg any) error {
	r, known := rules[method]
	if id.distrust != nil && !r.open {
		return grpcerr.New(codes.Unauthenticated, grpcerr.Distrusted,
			fmt.Sprintf("%s may not call %s any more: %v; connect again with another certificate", id.title(), short(method), id.distrust), nil)
	}
	switch {
	case !known && !mutant.On("access/default-deny"):
		return denied(fmt.Sprintf("%s may not call %s: nobody may", id.title(), short(method)))
	case r.open, !known, mutant.On("access/authorize"):
		return nil
	case r.known && (id.node || len(id.grants) > 0 || id.name != "" && len(g.c.Nodes()) == 0):
		return nil
	}
	needed := r.roles
	if t, ok := msg.(interface{ GetTxn() string }); ok && r.epochs {
		if _, _, epoch := ledger.TxnID(t.GetTxn()).Epoch(); epoch {
			needed = []role{operator}
		}
	}
	pipeline := about(msg)
	for _, has := range id.grants {
		for _, wanted := range needed {
			if has.role.holds(wanted) && has.role != member {
				return nil
			}
		}
		if r.member && has.role == member &&
			(has.pipeline == allPipelines || msg == nil || has.pipeline == pipeline || mutant.On("access/member-of-its-pipeline")) {
			return nil
		}
	}
	return denied(refusalText(id, method, r, needed, pipeline))
}

// refusalText names the caller, what it wanted, what it has and which role would do.
func refusalText(id identity, method string, r rule, needed []role, pipeline string) string {
	var would []string
	for _, x := range needed {
		would = append(would, x.String())
	}
	on := ""
	if r.member {
		on = " of pipeline " + pipeline
		if pipeline == "" {
			on, pipeline = "", "PIPELINE"
		}
		would = append(would, "member:"+pipeline)
	}
	takes := "the role " + strings.Join(would, " or ")
	if r.known {
		takes = "any role"
	}
	text := fmt.Sprintf("%s may not call %s%s, which takes %s", id.title(), short(method), on, takes)
	if id.name == "" {
		return text + "; show a certificate (--cert and --key)"
	}
	return text + ", and has " + id.has()
}

// short is a method's name for people: Pipelines.SetDesired.
func short(method string) string {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service[strings.LastIndexByte(service, '.')+1:] + "." + name
}

func denied(text string) error {
	return grpcerr.New(codes.PermissionDenied, grpcerr.NotAllowed, text, nil)
}

// Unary lets a call through whose caller may make it, and writes into it who that is.
func (g *Guard) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !g.c.Certificates {
		return handler(ctx, req)
	}
	id := g.identify(ctx)
	if err := g.allow(id, info.FullMethod, req); err != nil {
		return nil, err
	}
	setActor(req, id.name)
	return handler(ctx, req)
}

// Stream does the same for every message that comes in, and looks again before one goes out
// whether the caller is still trusted.
func (g *Guard) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !g.c.Certificates {
		return handler(srv, ss)
	}
	id := g.identify(ss.Context())
	if r := rules[info.FullMethod]; !r.member { // else the message says of which pipeline
		if err := g.allow(id, info.FullMethod, nil); err != nil {
			return err
		}
	}
	return handler(srv, &authorized{ServerStream: ss, g: g, method: info.FullMethod, name: id.name, seen: time.Now()})
}

// trustFor is how long a stream goes on before its caller is looked at again.
const trustFor = time.Second

// authorized is a stream whose caller is looked at.
type authorized struct {
	grpc.ServerStream
	g            *Guard
	method, name string
	asked        any       // the last message that came in
	seen         time.Time // when the caller was looked at last; of the sending side alone
}

// RecvMsg receives a message that the caller may send.
func (a *authorized) RecvMsg(m any) error {
	if err := a.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if err := a.g.allow(a.g.identify(a.Context()), a.method, m); err != nil {
		return err
	}
	a.asked = m
	setActor(m, a.name)
	return nil
}

// SendMsg sends to a caller that is still allowed to hear it.
func (a *authorized) SendMsg(m any) error {
	if now := time.Now(); now.Sub(a.seen) > trustFor {
		if err := a.g.allow(a.g.identify(a.Context()), a.method, a.asked); err != nil {
			return err
		}
		a.seen = now
	}
	return a.ServerStream.SendMsg(m)
}
