package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

type pipelines struct {
	unisinkv1.UnimplementedPipelinesServer
	s *Server
}

// PutPipeline makes a pipeline, or changes the one whose revision the request names.
func (p *pipelines) PutPipeline(ctx context.Context, req *unisinkv1.PutPipelineRequest) (*unisinkv1.PutPipelineResponse, error) {
	if d := req.GetPipeline().GetDesired(); d != unisinkv1.DesiredState_DESIRED_STATE_UNSPECIFIED && wire.Desired(d) == 0 {
		return nil, unknownDesired(d)
	}
	r, err := p.s.propose(ctx, req.GetMeta(), ledger.PutPipeline{Pipeline: wire.Pipeline(req.GetPipeline())})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.PutPipelineResponse{Pipeline: pipelineOf(r)}, nil
}

// GetPipeline shows a pipeline and how its scopes stand.
func (p *pipelines) GetPipeline(_ context.Context, req *unisinkv1.GetPipelineRequest) (*unisinkv1.GetPipelineResponse, error) {
	var found ledger.Pipeline
	var ok bool
	p.s.c.Node.View(func(m *ledger.Machine) { found, ok = m.Pipeline(req.GetName()) })
	if !ok {
		return nil, noPipeline(req.GetName())
	}
	if req.GetSettingsOnly() {
		return &unisinkv1.GetPipelineResponse{Pipeline: wire.FromPipeline(found)}, nil
	}
	return p.describe(found), nil
}

// ListPipelines shows all of them.
func (p *pipelines) ListPipelines(context.Context, *unisinkv1.ListPipelinesRequest) (*unisinkv1.ListPipelinesResponse, error) {
	var all []ledger.Pipeline
	p.s.c.Node.View(func(m *ledger.Machine) { all = m.Pipelines() })
	out := &unisinkv1.ListPipelinesResponse{}
	for _, x := range all {
		out.Pipelines = append(out.Pipelines, p.describe(x))
	}
	return out, nil
}

// DeletePipeline is refused while anything of the pipeline is open, unproven or owed.
func (p *pipelines) DeletePipeline(ctx context.Context, req *unisinkv1.DeletePipelineRequest) (*unisinkv1.DeletePipelineResponse, error) {
	_, err := p.s.propose(ctx, req.GetMeta(), ledger.DeletePipeline{Name: req.GetName(), Revision: req.GetRevision()})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.DeletePipelineResponse{}, nil
}

// SetDesired changes what the pipeline is wanted to do. A repeat is no error.
func (p *pipelines) SetDesired(ctx context.Context, req *unisinkv1.SetDesiredRequest) (*unisinkv1.SetDesiredResponse, error) {
	to := wire.Desired(req.GetDesired())
	switch {
	case req.GetDesired() == unisinkv1.DesiredState_DESIRED_STATE_UNSPECIFIED:
		return nil, invalid("the desired state is missing; say running, stopping, draining or stopped")
	case to == 0:
		return nil, unknownDesired(req.GetDesired())
	}
	var now ledger.Pipeline
	var ok bool
	p.s.c.Node.View(func(m *ledger.Machine) { now, ok = m.Pipeline(req.GetName()) })
	if !ok {
		return nil, noPipeline(req.GetName())
	}
	if now.Desired == to || to == ledger.Stopping && now.Desired == ledger.Stopped {
		return &unisinkv1.SetDesiredResponse{Pipeline: wire.FromPipeline(now)}, nil
	}
	r, err := p.s.propose(ctx, req.GetMeta(), ledger.SetDesired{Pipeline: req.GetName(), From: now.Desired, To: to})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.SetDesiredResponse{Pipeline: pipelineOf(r)}, nil
}

// Resume ends a halt.
func (p *pipelines) Resume(ctx context.Context, req *unisinkv1.ResumeRequest) (*unisinkv1.ResumeResponse, error) {
	if req.GetWhy() == "" {
		return nil, invalid("say why the scope may go on; it is kept in the log")
	}
	_, err := p.s.propose(ctx, req.GetMeta(), ledger.Resume{
		Scope: wire.Scope(req.GetScope()), From: wire.Epoch(req.GetRestorePoint()), Why: req.GetWhy(),
	})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.ResumeResponse{}, nil
}

// Rewind sets a closed or halted scope back to a kept restore point. The next generation starts there;
// what was decided after it stays decided, and is finished.
func (p *pipelines) Rewind(ctx context.Context, req *unisinkv1.RewindRequest) (*unisinkv1.RewindResponse, error) {
	id, to := wire.Scope(req.GetScope()), wire.Epoch(req.GetRestorePoint())
	switch {
	case to.IsZero():
		return nil, invalid("say which restore point scope %s goes back to; one looks like 7.12", id)
	case req.GetWhy() == "":
		return nil, invalid("say why the scope goes back; it is kept in the log")
	}
	_, err := p.s.propose(ctx, req.GetMeta(), ledger.Rewind{Scope: id, To: to, Why: req.GetWhy()})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.RewindResponse{}, nil
}

// Pin keeps a restore point until it is unpinned. A repeat is no error.
func (p *pipelines) Pin(ctx context.Context, req *unisinkv1.PinRequest) (*unisinkv1.PinResponse, error) {
	_, err := p.s.propose(ctx, req.GetMeta(), ledger.Pin{
		Scope: wire.Scope(req.GetScope()), Epoch: wire.Epoch(req.GetRestorePoint()), Unpin: req.GetUnpin(),
	})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.PinResponse{}, nil
}

// ListEpochs shows decided epochs that the ledger still has, newest first.
func (p *pipelines) ListEpochs(_ context.Context, req *unisinkv1.ListEpochsRequest) (*unisinkv1.ListEpochsResponse, error) {
	limit := int(req.GetLimit())
	if limit <= 0 {
		limit = 20
	}
	limit = min(limit, 1000)
	id := wire.Scope(req.GetScope())
	var scope ledger.Scope
	var ok, known bool
	var epochs []ledger.EpochRecord
	p.s.c.Node.View(func(m *ledger.Machine) {
		scope, ok = m.ScopeHead(id)
		epochs = m.Epochs(id)
		_, known = m.Pipeline(id.Pipeline)
	})
	if !ok && !known {
		return nil, noPipeline(id.Pipeline)
	}
	if !ok {
		return nil, grpcerr.New(codes.NotFound, grpcerr.NotFound, fmt.Sprintf("there is no scope %s: pipeline %s has no such shard", id, id.Pipeline), nil)
	}
	out := &unisinkv1.ListEpochsResponse{RewindsForgotten: len(scope.Rewinds) == ledger.MaxRewinds}
	for _, r := range scope.Rewinds {
		out.Rewinds = append(out.Rewinds, &unisinkv1.Rewound{To: wire.FromEpoch(r.To), Newest: wire.FromEpoch(r.Newest)})
	}
	for _, e := range slices.Backward(epochs) {
		if len(out.Epochs) == limit {
			break
		}
		if req.GetInDoubt() && e.ProvenAt != 0 {
			continue
		}
		out.Epochs = append(out.Epochs, epochRecord(scope, e, false))
	}
	return out, nil
}

// GetEpoch shows one decided epoch.
func (p *pipelines) GetEpoch(_ context.Context, req *unisinkv1.GetEpochRequest) (*unisinkv1.GetEpochResponse, error) {
	id, want := wire.Scope(req.GetScope()), wire.Epoch(req.GetEpoch())
	var scope ledger.Scope
	var e ledger.EpochRecord
	var kept bool
	var o ledger.Outcome
	p.s.c.Node.View(func(m *ledger.Machine) {
		scope, _ = m.ScopeHead(id)
		e, kept = m.Epoch(id, want)
		o = m.EpochOutcome(id, want)
	})
	out := &unisinkv1.EpochRecord{Scope: wire.FromScope(id), Epoch: wire.FromEpoch(want), Outcome: wire.FromOutcome(o)}
	switch {
	case kept:
		out = epochRecord(scope, e, true)
	case o == ledger.Committed || o == ledger.Aborted:
		// Its record is retired, or it was never decided; the outcome is known all the same.
	default:
		return nil, grpcerr.New(codes.NotFound, grpcerr.NotFound, "epoch "+want.String()+" of "+id.String()+" is not in the ledger", nil)
	}
	return &unisinkv1.GetEpochResponse{Epoch: out}, nil
}

// EpochOutcome is read through the log, and never aborts anything. A generation that was never
// opened has no epochs, and nothing is said of them.
func (p *pipelines) EpochOutcome(ctx context.Context, req *unisinkv1.EpochOutcomeRequest) (*unisinkv1.EpochOutcomeResponse, error) {
	id, e := wire.Scope(req.GetScope()), wire.Epoch(req.GetEpoch())
	switch {
	case id.Pipeline == "":
		return nil, invalid("the question names no scope; ask for one, like orders/0")
	case e.Generation == 0 || e.N == 0:
		return nil, invalid("epoch %s of scope %s cannot be: generations and epochs are counted from 1", e, id)
	}
	if err := p.s.c.Node.Barrier(ctx); err != nil {
		return nil, p.s.proposalError(err)
	}
	var o ledger.Outcome
	var newest ledger.GenerationRecord
	p.s.c.Node.View(func(m *ledger.Machine) { newest, _ = m.Newest(id); o = m.EpochOutcome(id, e) })
	if e.Generation > newest.Generation {
		return nil, grpcerr.New(codes.NotFound, grpcerr.NotFound,
			fmt.Sprintf("generation %d of scope %s was never opened, the newest is %d", e.Generation, id, newest.Generation), nil)
	}
	return &unisinkv1.EpochOutcomeResponse{Outcome: wire.FromOutcome(o)}, nil
}

// ProvenCut is the longest gap-free proven prefix of each shard.
func (p *pipelines) ProvenCut(_ context.Context, req *unisinkv1.ProvenCutRequest) (*unisinkv1.ProvenCutResponse, error) {
	type cut struct {
		epoch ledger.EpochRecord
		found bool
	}
	var cuts []cut
	known := false
	p.s.c.Node.View(func(m *ledger.Machine) {
		var x ledger.Pipeline
		x, known = m.Pipeline(req.GetPipeline())
		cuts = make([]cut, x.Shards)
		for shard := range x.Shards {
			cuts[shard].epoch, cuts[shard].found = m.ProvenCut(ledger.ScopeID{Pipeline: x.Name, Shard: shard})
		}
	})
	if !known {
		return nil, noPipeline(req.GetPipeline())
	}
	out := &unisinkv1.ProvenCutResponse{}
	for shard, c := range cuts {
		id := ledger.ScopeID{Pipeline: req.GetPipeline(), Shard: uint32(shard)}
		scope := &unisinkv1.ScopeCut{Scope: wire.FromScope(id)}
		if c.found {
			rec := epochRecord(ledger.Scope{ID: id}, c.epoch, false)
			scope.Epoch, scope.Branches, scope.Positions = rec.Epoch, rec.Branches, rec.Positions
		}
		out.Scopes = append(out.Scopes, scope)
	}
	return out, nil
}

func (p *pipelines) describe(x ledger.Pipeline) *unisinkv1.GetPipelineResponse {
	out := &unisinkv1.GetPipelineResponse{Pipeline: wire.FromPipeline(x)}
	asOf := p.s.c.Node.NodeStatus().AppliedIndex // once: it costs more than a scope does
	for shard := range x.Shards {
		st := p.scopeStatus(ledger.ScopeID{Pipeline: x.Name, Shard: shard}, x, time.Now())
		st.AsOfIndex = asOf
		out.Scopes = append(out.Scopes, st)
	}
	return out
}

func (p *pipelines) scopeStatus(id ledger.ScopeID, x ledger.Pipeline, now time.Time) *unisinkv1.ScopeStatus {
	out := &unisinkv1.ScopeStatus{Scope: wire.FromScope(id), SinceDecisionMs: -1}
	var scope ledger.Scope
	var g ledger.GenerationRecord
	var epochs []ledger.EpochRecord
	var debts []ledger.Debt
	p.s.c.Node.View(func(m *ledger.Machine) {
		scope, _ = m.ScopeHead(id)
		g, _ = m.Newest(id)
		epochs = m.Epochs(id)
		_, debts = m.ScopeOutstanding(id)
	})
	if g.Generation != 0 {
		out.Generation, out.Open, out.Final, out.Cause = uint64(g.Generation), g.Open, g.Final, g.Cause
		out.Drained = g.Cause == wire.Drained && scope.RestorePoint == ledger.Epoch{Generation: g.Generation, N: g.Final}
	}
	out.RestorePoint = wire.FromEpoch(scope.RestorePoint)
	out.Halted = scope.Halted
	out.Debts = uint32(len(debts))
	for _, e := range epochs {
		if e.ProvenAt == 0 {
			out.Unfinished++
			out.OldestInDoubtMs = max(out.OldestInDoubtMs, now.UnixMilli()-e.DecidedAt)
		}
		out.SinceDecisionMs = max(0, now.UnixMilli()-e.DecidedAt)
		if e.Kept() {
			out.RestorePoints = append(out.RestorePoints, &unisinkv1.KeptRestorePoint{
				Epoch: wire.FromEpoch(e.Epoch), DecidedAtMs: e.DecidedAt, AgeMs: max(0, now.UnixMilli()-e.DecidedAt),
				Final: e.Final, Pinned: slices.Contains(scope.Pinned, e.Epoch), Current: e.Epoch == scope.RestorePoint,
			})
		}
	}
	p.addLiving(out, p.s.c.Sessions.Living(id), x)
	return out
}

// addLiving adds what the leader knows of the living; a member that is declared and absent is listed too.
func (p *pipelines) addLiving(out *unisinkv1.ScopeStatus, now Living, x ledger.Pipeline) {
	out.RoundsOpen = uint32(now.RoundsOpen)
	out.OldestInDoubtMs = max(out.OldestInDoubtMs, now.OldestRound.Milliseconds())
	living := map[string]*unisinkv1.MemberStatus{}
	for _, m := range now.Members {
		living[m.Name] = &unisinkv1.MemberStatus{
			Name: m.Name, Instance: m.Instance, Attached: m.Attached, Phase: m.Phase, Lag: m.Lag,
			LeaseLeftMs: m.LeaseLeft.Milliseconds(), WaitingFor: m.WaitingFor,
		}
	}
	for _, spec := range x.Members {
		m := living[spec.Name]
		if m == nil {
			m = &unisinkv1.MemberStatus{Name: spec.Name, Lag: -1}
		}
		out.Members = append(out.Members, m)
	}
}

func pipelineOf(r ledger.Result) *unisinkv1.Pipeline {
	if r.Pipeline == nil {
		return nil
	}
	return wire.FromPipeline(*r.Pipeline)
}

func unknownDesired(d unisinkv1.DesiredState) error {
	return invalid("%d is no desired state that this node knows; say running, stopping, draining or stopped", d)
}

func noPipeline(name string) error {
	return grpcerr.New(codes.NotFound, grpcerr.NotFound, "there is no pipeline "+name+"; `unisink pipeline list` shows those that are", nil)
}
