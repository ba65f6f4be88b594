package server

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// ResolveAll records the proofs of many branches. Each is a command of its own, as by Resolve; what is refused for good
// is told, and an error of the log ends the call, for the caller to repeat.
func (t *transactions) ResolveAll(ctx context.Context, req *unisinkv1.ResolveAllRequest) (*unisinkv1.ResolveAllResponse, error) {
	proofs := req.GetProofs()
	if n := len(proofs); n > judgedAtOnce {
		return nil, invalid("%d proofs are reported, at most %d may be at once", n, judgedAtOnce)
	}
	refused := make([]*unisinkv1.RefusedProof, len(proofs))
	var g errgroup.Group // side by side, so that they share entries
	for i, p := range proofs {
		g.Go(func() (err error) {
			refused[i], err = t.resolve(ctx, req.GetMeta().GetActor(), p)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	resp := &unisinkv1.ResolveAllResponse{}
	for i, r := range refused {
		if r != nil {
			r.Index = uint32(i)
			resp.Refused = append(resp.Refused, r)
		}
	}
	return resp, nil
}

// resolve records one of many proofs, and says why if it never will be.
func (t *transactions) resolve(ctx context.Context, actor string, p *unisinkv1.HandProof) (*unisinkv1.RefusedProof, error) {
	if actor == "" {
		actor = "unknown"
	}
	r, err := t.s.c.Node.Propose(ctx, ledger.Command{Actor: actor, Body: ledger.Resolve{
		Txn: ledger.TxnID(p.GetTxn()), Branch: ledger.BranchID{Resource: p.GetResource()}, Proof: wire.Proof(p.GetProof()),
	}})
	switch {
	case err != nil && t.s.c.Class.TooLarge(err):
		return &unisinkv1.RefusedProof{Reason: grpcerr.Invalid, Text: err.Error()}, nil
	case err != nil:
		return nil, t.s.proposalError(err)
	case !r.OK():
		reason, _ := grpcerr.Reason(wire.Refusal(r))
		return &unisinkv1.RefusedProof{Reason: reason, Text: r.Text}, nil
	}
	return nil, nil
}
