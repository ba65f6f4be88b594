package session

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Ready says that a member has restored. What it has proven and swept is in the log before it
// counts as ready; a repeat is harmless.
func (m *Manager) Ready(ctx context.Context, req *unisinkv1.ReadyRequest) (*unisinkv1.ReadyResponse, error) {
	id, gen := wire.Scope(req.GetScope()), ledger.Generation(req.GetGeneration())
	err := m.ask(ctx, id, func(ctx context.Context, s *scope) error {
		if _, err := s.entitled(req.GetMember(), req.GetInstance(), gen); err != nil {
			return err
		}
		return s.claimed(ctx, req.GetMember(), req.GetInstance(), committedIn(req.GetProofs())...)
	})
	if err != nil {
		return nil, err
	}
	bodies := proofsOf(id, req.GetProofs())
	for _, d := range req.GetSwept() {
		bodies = append(bodies, ledger.Swept{
			Scope: id, Generation: ledger.Generation(d.GetGeneration()),
			Branch: ledger.BranchID{Member: d.GetMember(), Resource: d.GetResource()},
		})
	}
	if err := m.record(ctx, req.GetMeta(), bodies); err != nil {
		return nil, err
	}
	err = m.ask(ctx, id, func(ctx context.Context, s *scope) error {
		g, err := s.entitled(req.GetMember(), req.GetInstance(), gen)
		if err != nil {
			return err
		}
		for _, d := range req.GetSwept() {
			s.event(eventlog.Swept, ledger.Epoch{Generation: ledger.Generation(d.GetGeneration())}, d.GetMember(), d.GetResource())
		}
		s.ready(ctx, g, req.GetMember())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.ReadyResponse{}, nil
}

// ready notes a member that has restored; the last one starts the generation.
func (s *scope) ready(ctx context.Context, g *generation, name string) {
	g.ready[name] = true
	m := s.members[name]
	if m == nil || !g.has(m) || m.phase == unisinkv1.Phase_PHASE_RUNNING {
		return
	}
	m.generation, m.phase = g.number, unisinkv1.Phase_PHASE_READY
	if g.machine != nil {
		s.begin(ctx, g, m)
	}
}

// Resolved takes proofs that no vote will carry soon.
func (m *Manager) Resolved(ctx context.Context, req *unisinkv1.ResolvedRequest) (*unisinkv1.ResolvedResponse, error) {
	id, gen := wire.Scope(req.GetScope()), ledger.Generation(req.GetGeneration())
	err := m.ask(ctx, id, func(ctx context.Context, s *scope) error {
		told := committedIn(req.GetProofs())
		if n := req.GetProvenThrough(); n > 0 {
			told = append(told, ledger.Epoch{Generation: gen, N: n})
		}
		if err := s.claimed(ctx, req.GetMember(), req.GetInstance(), told...); err != nil {
			return err
		}
		return s.mayProve(req)
	})
	if err != nil {
		return nil, err
	}
	bodies := append(m.halts(id, req.GetProofs()), proofsOf(id, req.GetProofs())...)
	if n := req.GetProvenThrough(); n > 0 {
		bodies = append(bodies, ledger.Resolve{
			Txn:    ledger.EpochTxn(id, ledger.Epoch{Generation: gen, N: n}),
			Branch: ledger.BranchID{Member: req.GetMember()}, ProvenThrough: n,
		})
	}
	if err := m.record(ctx, req.GetMeta(), bodies); err != nil {
		return nil, err
	}
	err = m.ask(ctx, id, func(ctx context.Context, s *scope) error {
		n := req.GetProvenThrough()
		if g := s.gen; g != nil && g.number == gen && g.machine != nil && n > 0 {
			s.obey(ctx, g, g.machine.Proven(req.GetMember(), n, s.now()))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.ResolvedResponse{}, nil
}

// mayProve lets the generation's own instance, and whoever holds the name now, speak.
func (s *scope) mayProve(req *unisinkv1.ResolvedRequest) error {
	gen := ledger.Generation(req.GetGeneration())
	if req.GetProvenThrough() > 0 && !slices.Contains(s.membersOf(gen), ledger.MemberInstance{Member: req.GetMember(), Instance: req.GetInstance()}) {
		return fenced("instance %s was no member %s of generation %d of scope %s; end this process", req.GetInstance(), req.GetMember(), gen, s.id)
	}
	if m := s.members[req.GetMember()]; m == nil || m.instance != req.GetInstance() {
		return s.stranger(req.GetMember(), req.GetInstance())
	}
	return nil
}

// membersOf lists who a generation was opened with, while the ledger keeps its record.
func (s *scope) membersOf(gen ledger.Generation) []ledger.MemberInstance {
	if s.seen.newest.Generation == gen {
		return s.seen.newest.Members
	}
	rec, _ := s.record(gen)
	return rec.Members
}

func proofsOf(id ledger.ScopeID, proofs []*unisinkv1.BranchProof) []ledger.Body {
	out := make([]ledger.Body, 0, len(proofs)+1)
	for _, p := range proofs {
		if p.GetProof().GetVerdict() == unisinkv1.Verdict_VERDICT_UNDETERMINABLE {
			continue // no proof
		}
		out = append(out, ledger.Resolve{
			Txn:    ledger.EpochTxn(id, wire.Epoch(p.GetEpoch())),
			Branch: ledger.BranchID{Member: p.GetMember(), Resource: p.GetResource()}, Proof: wire.Proof(p.GetProof()),
		})
	}
	return out
}

// halts are what follows from branches that nobody can tell of.
func (m *Manager) halts(id ledger.ScopeID, proofs []*unisinkv1.BranchProof) (out []ledger.Body) {
	m.c.Log.View(func(l *ledger.Machine) {
		for _, p := range proofs {
			if p.GetProof().GetVerdict() != unisinkv1.Verdict_VERDICT_UNDETERMINABLE {
				continue
			}
			u := ledger.Undeterminable{
				Scope: id, Epoch: wire.Epoch(p.GetEpoch()), Evidence: p.GetProof().GetEvidence(),
				Branch: ledger.BranchID{Member: p.GetMember(), Resource: p.GetResource()},
			}
			if halt, due := l.HaltOver(u); due {
				out = append(out, halt)
			}
		}
	})
	return out
}

// record proposes all at once, so that they share an entry. What the ledger knows already, or
// knows better, is no error: the first proof of a branch stands.
func (m *Manager) record(ctx context.Context, meta *unisinkv1.Meta, bodies []ledger.Body) error {
	var g errgroup.Group
	for _, b := range bodies {
		g.Go(func() error {
			res, err := m.c.Log.Propose(ctx, m.command(meta, b))
			if err != nil {
				return m.proposal(err)
			}
			if res.Refusal == ledger.Contradicts || res.Refusal == ledger.NotFound {
				m.c.Logger.WarnContext(ctx, "proof not taken", obs.Actor(meta.GetActor()), obs.Cause(res.Text))
				return nil
			}
			return wire.Refusal(res)
		})
	}
	return g.Wait()
}
