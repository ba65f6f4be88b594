// Package wire turns messages of unisink.v1 into the ledger's values and back. It is used by the
// session and server packages, so that each message has one reading.
package wire

import (
	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Scope reads a scope; a missing one is the zero value, which no name check accepts.
func Scope(s *unisinkv1.Scope) ledger.ScopeID {
	return ledger.ScopeID{Pipeline: s.GetPipeline(), Shard: s.GetShard()}
}

// FromScope writes a scope.
func FromScope(s ledger.ScopeID) *unisinkv1.Scope {
	return &unisinkv1.Scope{Pipeline: s.Pipeline, Shard: s.Shard}
}

// Epoch reads an epoch; a missing one is zero.
func Epoch(e *unisinkv1.Epoch) ledger.Epoch {
	return ledger.Epoch{Generation: ledger.Generation(e.GetGeneration()), N: e.GetN()}
}

// FromEpoch writes an epoch; zero is nil.
func FromEpoch(e ledger.Epoch) *unisinkv1.Epoch {
	if e.IsZero() {
		return nil
	}
	return &unisinkv1.Epoch{Generation: uint64(e.Generation), N: e.N}
}

// Handle reads a handle.
func Handle(h *unisinkv1.Handle) ledger.Handle {
	return ledger.Handle{
		Kind: h.GetKind(), Version: h.GetVersion(), Identity: h.GetIdentity(), Alias: h.GetAlias(),
		Name: h.GetName(), Text: h.GetText(), Body: h.GetBody(),
	}
}

// FromHandle writes a handle.
func FromHandle(h ledger.Handle) *unisinkv1.Handle {
	return &unisinkv1.Handle{
		Kind: h.Kind, Version: h.Version, Identity: h.Identity, Alias: h.Alias, Name: h.Name, Text: h.Text, Body: h.Body,
	}
}

// Positions reads positions.
func Positions(in []*unisinkv1.Position) []ledger.Position {
	return each(in, func(p *unisinkv1.Position) ledger.Position {
		return ledger.Position{
			Resource: p.GetResource(), Split: p.GetSplit(), Offset: p.GetOffset(), LeaderEpoch: p.GetLeaderEpoch(), Opaque: p.GetOpaque(),
		}
	})
}

// FromPositions writes positions.
func FromPositions(in []ledger.Position) []*unisinkv1.Position {
	return each(in, func(p ledger.Position) *unisinkv1.Position {
		return &unisinkv1.Position{Resource: p.Resource, Split: p.Split, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Opaque: p.Opaque}
	})
}

// Parts reads state parts.
func Parts(in []*unisinkv1.StatePart) []ledger.StatePart {
	return each(in, func(p *unisinkv1.StatePart) ledger.StatePart {
		return ledger.StatePart{
			ID: p.GetId(), Operator: p.GetOperator(), KeyGroupFirst: p.GetKeyGroupFirst(), KeyGroupLast: p.GetKeyGroupLast(),
			Store: p.GetStore(), Body: p.GetBody(),
		}
	})
}

// FromParts writes state parts.
func FromParts(in []ledger.StatePart) []*unisinkv1.StatePart {
	return each(in, func(p ledger.StatePart) *unisinkv1.StatePart {
		return &unisinkv1.StatePart{
			Id: p.ID, Operator: p.Operator, KeyGroupFirst: p.KeyGroupFirst, KeyGroupLast: p.KeyGroupLast, Store: p.Store, Body: p.Body,
		}
	})
}

// Vote reads the part of a vote that the ledger keeps.
func Vote(member, instance string, v *unisinkv1.Vote) ledger.Vote {
	return ledger.Vote{
		Member: member, Instance: instance,
		Branches: each(v.GetBranches(), func(p *unisinkv1.Prepared) ledger.Prepared {
			return ledger.Prepared{Resource: p.GetResource(), Handle: Handle(p.GetHandle())}
		}),
		Positions: Positions(v.GetPositions()), Parts: Parts(v.GetParts()), ProvenThrough: v.GetProvenThrough(),
	}
}

// Proof reads a proof. What is none, as that nobody can tell, has the zero verdict, which the ledger refuses.
func Proof(p *unisinkv1.Proof) ledger.Proof {
	out := ledger.Proof{Evidence: p.GetEvidence(), Asserted: p.GetAsserted()}
	switch p.GetVerdict() {
	case unisinkv1.Verdict_VERDICT_COMMITTED:
		out.Verdict = ledger.ProvenCommitted
	case unisinkv1.Verdict_VERDICT_ROLLED_BACK:
		out.Verdict = ledger.ProvenRolledBack
	case unisinkv1.Verdict_VERDICT_UNDETERMINABLE, unisinkv1.Verdict_VERDICT_UNSPECIFIED:
	}
	return out
}

// FromProof writes a proof; one without a verdict is nil.
func FromProof(p ledger.Proof) *unisinkv1.Proof {
	out := &unisinkv1.Proof{Evidence: p.Evidence, Asserted: p.Asserted}
	switch p.Verdict {
	case ledger.ProvenCommitted:
		out.Verdict = unisinkv1.Verdict_VERDICT_COMMITTED
	case ledger.ProvenRolledBack:
		out.Verdict = unisinkv1.Verdict_VERDICT_ROLLED_BACK
	default:
		return nil
	}
	return out
}

// FromOutcome writes an outcome.
func FromOutcome(o ledger.Outcome) unisinkv1.Outcome {
	switch o {
	case ledger.Pending:
		return unisinkv1.Outcome_OUTCOME_PENDING
	case ledger.Committed:
		return unisinkv1.Outcome_OUTCOME_COMMITTED
	case ledger.Aborted:
		return unisinkv1.Outcome_OUTCOME_ABORTED
	default:
		return unisinkv1.Outcome_OUTCOME_UNSPECIFIED
	}
}

// Pipeline reads a pipeline as a client wrote it.
func Pipeline(p *unisinkv1.Pipeline) ledger.Pipeline {
	s := p.GetSettings()
	return ledger.Pipeline{
		Name: p.GetName(), Fingerprint: p.GetFingerprint(), Shards: p.GetShards(), KeyGroups: p.GetKeyGroups(),
		Desired: Desired(p.GetDesired()), Revision: p.GetRevision(), Description: p.GetDescription(),
		Settings: ledger.Settings{
			EpochInterval: s.GetEpochIntervalMs(), PrepareTimeout: s.GetPrepareTimeoutMs(), MaxPending: s.GetMaxPending(),
			Lease: s.GetLeaseMs(), RestorePoints: s.GetRestorePoints(), CommitBudget: s.GetCommitBudgetMs(),
		},
		Members: each(p.GetMembers(), func(m *unisinkv1.MemberSpec) ledger.MemberSpec {
			return ledger.MemberSpec{
				Name: m.GetName(), Source: m.GetSource(),
				Resources: each(m.GetResources(), func(r *unisinkv1.ResourceSpec) ledger.ResourceSpec {
					return ledger.ResourceSpec{Name: r.GetName(), Kind: r.GetKind()}
				}),
			}
		}),
	}
}

// FromPipeline writes a pipeline.
func FromPipeline(p ledger.Pipeline) *unisinkv1.Pipeline {
	return &unisinkv1.Pipeline{
		Name: p.Name, Fingerprint: p.Fingerprint, Shards: p.Shards, KeyGroups: p.KeyGroups,
		Desired: FromDesired(p.Desired), Revision: p.Revision, Description: p.Description,
		Settings: &unisinkv1.PipelineSettings{
			EpochIntervalMs: p.Settings.EpochInterval, PrepareTimeoutMs: p.Settings.PrepareTimeout, MaxPending: p.Settings.MaxPending,
			LeaseMs: p.Settings.Lease, RestorePoints: p.Settings.RestorePoints, CommitBudgetMs: p.Settings.CommitBudget,
		},
		Members: each(p.Members, func(m ledger.MemberSpec) *unisinkv1.MemberSpec {
			return &unisinkv1.MemberSpec{
				Name: m.Name, Source: m.Source,
				Resources: each(m.Resources, func(r ledger.ResourceSpec) *unisinkv1.ResourceSpec {
					return &unisinkv1.ResourceSpec{Name: r.Name, Kind: r.Kind}
				}),
			}
		}),
	}
}

var desired = map[unisinkv1.DesiredState]ledger.Desired{
	unisinkv1.DesiredState_DESIRED_STATE_RUNNING:  ledger.Running,
	unisinkv1.DesiredState_DESIRED_STATE_STOPPING: ledger.Stopping,
	unisinkv1.DesiredState_DESIRED_STATE_DRAINING: ledger.Draining,
	unisinkv1.DesiredState_DESIRED_STATE_STOPPED:  ledger.Stopped,
}

// Desired reads a desired state; an unknown one is zero.
func Desired(d unisinkv1.DesiredState) ledger.Desired { return desired[d] }

// FromDesired writes a desired state.
func FromDesired(d ledger.Desired) unisinkv1.DesiredState {
	for w, l := range desired {
		if l == d {
			return w
		}
	}
	return unisinkv1.DesiredState_DESIRED_STATE_UNSPECIFIED
}

func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}
