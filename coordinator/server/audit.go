package server

import (
	"context"
	"log/slog"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

type audit struct {
	unisinkv1.UnimplementedAuditServer
	s *Server
}

// List is read through the log, so that whatever was done before the question is in the answer.
func (a *audit) List(ctx context.Context, req *unisinkv1.AuditListRequest) (*unisinkv1.AuditListResponse, error) {
	if err := a.s.c.Node.Barrier(ctx); err != nil {
		return nil, a.s.proposalError(err)
	}
	var acts []ledger.Act
	out := &unisinkv1.AuditListResponse{}
	a.s.c.Node.View(func(m *ledger.Machine) { acts, out.FeatureLevel = m.Acts(), m.FeatureLevel() })
	if len(acts) > 0 {
		out.Forgotten = acts[0].N - 1
	}
	for _, x := range acts {
		if p := req.GetPipeline(); p != "" && x.Pipeline != p {
			continue
		}
		if who := req.GetActor(); who != "" && x.Actor != who || x.At < req.GetSinceMs() {
			continue
		}
		out.Acts = append(out.Acts, &unisinkv1.Act{N: x.N, AtMs: x.At, Actor: x.Actor, Kind: x.Kind, Pipeline: x.Pipeline, What: x.What, Why: x.Why})
	}
	if most := int(req.GetLimit()); most > 0 && len(out.Acts) > most {
		out.Acts = out.Acts[len(out.Acts)-most:]
	}
	return out, nil
}

// note puts an act that is no command of its own into the trail, where the group keeps one. The act goes
// on without it: nobody must be kept from taking a backup because the log is not to be written.
func (s *Server) note(ctx context.Context, meta *unisinkv1.Meta, n ledger.Note) {
	level := uint32(0)
	s.c.Node.View(func(m *ledger.Machine) { level = m.FeatureLevel() })
	if level < ledger.AuditLevel {
		return
	}
	if _, err := s.propose(ctx, meta, n); err != nil {
		s.c.Logger.WarnContext(ctx, "act not in the trail", slog.String("kind", n.Kind), obs.Actor(meta.GetActor()), obs.Err(err))
	}
}
