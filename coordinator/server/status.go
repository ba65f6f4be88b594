package server

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// propose brings a client's change into the log. An error is a status: a refusal by the ledger
// with its reason, beside which the result stands, or one that says whether the change may have been made.
func (s *Server) propose(ctx context.Context, meta *unisinkv1.Meta, b ledger.Body) (ledger.Result, error) {
	actor := meta.GetActor()
	if actor == "" {
		actor = "unknown"
	}
	// The ledger would say so too, but in the log of every node by then, with all that was sent.
	if len(actor) > ledger.MaxInstance || len(meta.GetRequestId()) > ledger.MaxInstance {
		return ledger.Result{}, invalid("request id and actor may have %d bytes at most", ledger.MaxInstance)
	}
	r, err := s.c.Node.Propose(ctx, ledger.Command{Request: meta.GetRequestId(), Actor: actor, Body: b})
	if err != nil {
		return ledger.Result{}, s.proposalError(err)
	}
	if !r.OK() {
		return r, wire.Refusal(r)
	}
	return r, nil
}

// proposalError is the one place where errors of the replicated log become status codes.
func (s *Server) proposalError(err error) error {
	switch {
	case s.c.Class.NotLeader(err):
		return NotLeader(s.c.Node)
	case s.c.Class.TooLarge(err):
		return invalid("%v", err)
	case s.c.Class.Bootstrapped(err):
		return grpcerr.New(codes.AlreadyExists, grpcerr.Stale, err.Error(), nil)
	case s.c.Class.Unknown(err):
		return grpcerr.New(codes.Unavailable, grpcerr.OutcomeUnknown, err.Error()+"; ask again with the same request id", nil)
	default:
		return grpcerr.New(codes.Unavailable, "", err.Error(), nil)
	}
}

// NotLeader is the answer of a node that does not lead, with who does.
func NotLeader(n Node) error {
	st := n.NodeStatus()
	id, addr := n.Leader()
	meta := map[string]string{grpcerr.MetaLeader: addr}
	var msg string
	switch {
	case !st.Bootstrapped:
		meta[grpcerr.MetaNoGroup] = "true"
		msg = fmt.Sprintf("node %s belongs to no group yet; run `unisink cluster bootstrap` once", st.ID)
	case addr == "":
		msg = fmt.Sprintf("node %s does not lead, and no leader is known; a majority of nodes must be up", st.ID)
	default:
		msg = fmt.Sprintf("node %s does not lead; %s at %s does", st.ID, id, addr)
	}
	return grpcerr.New(codes.FailedPrecondition, grpcerr.NotLeader, msg, meta)
}

func invalid(format string, args ...any) error {
	return grpcerr.New(codes.InvalidArgument, grpcerr.Invalid, fmt.Sprintf(format, args...), nil)
}
