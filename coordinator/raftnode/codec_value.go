package raftnode

import (
	"github.com/unisink/unisink/coordinator/ledger"
	storagev1 "github.com/unisink/unisink/proto/unisink/storage/v1"
)

// Values that commands and state share. Enumerations have the same numbers on both sides, which
// a test checks; to... goes to the disk, from... comes back. A zero value may be left out.

func toScopeID(s ledger.ScopeID) *storagev1.ScopeID {
	if s == (ledger.ScopeID{}) {
		return nil
	}
	return &storagev1.ScopeID{Pipeline: s.Pipeline, Shard: s.Shard}
}

func fromScopeID(p *storagev1.ScopeID) ledger.ScopeID {
	return ledger.ScopeID{Pipeline: p.GetPipeline(), Shard: p.GetShard()}
}

func toEpoch(e ledger.Epoch) *storagev1.Epoch {
	if e.IsZero() {
		return nil
	}
	return &storagev1.Epoch{Generation: uint64(e.Generation), N: e.N}
}

func fromEpoch(p *storagev1.Epoch) ledger.Epoch {
	return ledger.Epoch{Generation: ledger.Generation(p.GetGeneration()), N: p.GetN()}
}

func toBranchID(b ledger.BranchID) *storagev1.BranchID {
	if b == (ledger.BranchID{}) {
		return nil
	}
	return &storagev1.BranchID{Member: b.Member, Resource: b.Resource}
}

func fromBranchID(p *storagev1.BranchID) ledger.BranchID {
	return ledger.BranchID{Member: p.GetMember(), Resource: p.GetResource()}
}

func toNode(n ledger.Node) *storagev1.Node {
	return &storagev1.Node{Id: n.ID, RaftAddress: n.RaftAddress, ClientAddress: n.ClientAddress,
		FeatureLevel: n.FeatureLevel, Version: n.Version}
}

func fromNode(p *storagev1.Node) ledger.Node {
	return ledger.Node{ID: p.GetId(), RaftAddress: p.GetRaftAddress(), ClientAddress: p.GetClientAddress(),
		FeatureLevel: p.GetFeatureLevel(), Version: p.GetVersion()}
}

func toSettings(s ledger.Settings) *storagev1.Settings {
	if s == (ledger.Settings{}) {
		return nil
	}
	return &storagev1.Settings{EpochIntervalMs: s.EpochInterval, PrepareTimeoutMs: s.PrepareTimeout,
		MaxPending: s.MaxPending, LeaseMs: s.Lease, RestorePoints: s.RestorePoints, CommitBudgetMs: s.CommitBudget}
}

func fromSettings(p *storagev1.Settings) ledger.Settings {
	return ledger.Settings{EpochInterval: p.GetEpochIntervalMs(), PrepareTimeout: p.GetPrepareTimeoutMs(),
		MaxPending: p.GetMaxPending(), Lease: p.GetLeaseMs(), RestorePoints: p.GetRestorePoints(), CommitBudget: p.GetCommitBudgetMs()}
}

func toResourceSpec(r ledger.ResourceSpec) *storagev1.ResourceSpec {
	return &storagev1.ResourceSpec{Name: r.Name, Kind: r.Kind}
}

func fromResourceSpec(p *storagev1.ResourceSpec) ledger.ResourceSpec {
	return ledger.ResourceSpec{Name: p.GetName(), Kind: p.GetKind()}
}

func toMemberSpec(m ledger.MemberSpec) *storagev1.MemberSpec {
	return &storagev1.MemberSpec{Name: m.Name, Source: m.Source, Resources: each(m.Resources, toResourceSpec)}
}

func fromMemberSpec(p *storagev1.MemberSpec) ledger.MemberSpec {
	return ledger.MemberSpec{Name: p.GetName(), Source: p.GetSource(), Resources: each(p.GetResources(), fromResourceSpec)}
}

func toPipeline(p ledger.Pipeline) *storagev1.Pipeline {
	return &storagev1.Pipeline{
		Name: p.Name, Settings: toSettings(p.Settings), Members: each(p.Members, toMemberSpec),
		Fingerprint: p.Fingerprint, Shards: p.Shards, KeyGroups: p.KeyGroups, Desired: storagev1.Desired(p.Desired),
		Revision: p.Revision, Description: p.Description, LastRequest: p.LastRequest,
	}
}

func fromPipeline(p *storagev1.Pipeline) ledger.Pipeline {
	return ledger.Pipeline{
		Name: p.GetName(), Settings: fromSettings(p.GetSettings()), Members: each(p.GetMembers(), fromMemberSpec),
		Fingerprint: p.GetFingerprint(), Shards: p.GetShards(), KeyGroups: p.GetKeyGroups(), Desired: ledger.Desired(p.GetDesired()),
		Revision: p.GetRevision(), Description: p.GetDescription(), LastRequest: p.GetLastRequest(),
	}
}

func toInstance(m ledger.MemberInstance) *storagev1.MemberInstance {
	return &storagev1.MemberInstance{Member: m.Member, Instance: m.Instance}
}

func fromInstance(p *storagev1.MemberInstance) ledger.MemberInstance {
	return ledger.MemberInstance{Member: p.GetMember(), Instance: p.GetInstance()}
}

func toHandle(h ledger.Handle) *storagev1.Handle {
	return &storagev1.Handle{Kind: h.Kind, Version: h.Version, Identity: h.Identity, Alias: h.Alias,
		Name: h.Name, Text: h.Text, Body: h.Body}
}

func fromHandle(p *storagev1.Handle) ledger.Handle {
	return ledger.Handle{Kind: p.GetKind(), Version: p.GetVersion(), Identity: p.GetIdentity(), Alias: p.GetAlias(),
		Name: p.GetName(), Text: p.GetText(), Body: some(p.GetBody())}
}

func toHandBranch(b ledger.HandBranch) *storagev1.HandBranch {
	return &storagev1.HandBranch{Resource: b.Resource, Handle: toHandle(b.Handle)}
}

func fromHandBranch(p *storagev1.HandBranch) ledger.HandBranch {
	return ledger.HandBranch{Resource: p.GetResource(), Handle: fromHandle(p.GetHandle())}
}

func toProof(p ledger.Proof) *storagev1.Proof {
	if p == (ledger.Proof{}) {
		return nil
	}
	return &storagev1.Proof{Verdict: storagev1.Verdict(p.Verdict), Evidence: p.Evidence, Asserted: p.Asserted}
}

func fromProof(p *storagev1.Proof) ledger.Proof {
	return ledger.Proof{Verdict: ledger.Verdict(p.GetVerdict()), Evidence: p.GetEvidence(), Asserted: p.GetAsserted()}
}

func toPosition(p ledger.Position) *storagev1.Position {
	return &storagev1.Position{Resource: p.Resource, Split: p.Split, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Opaque: p.Opaque}
}

func fromPosition(p *storagev1.Position) ledger.Position {
	return ledger.Position{Resource: p.GetResource(), Split: p.GetSplit(), Offset: p.GetOffset(),
		LeaderEpoch: p.GetLeaderEpoch(), Opaque: some(p.GetOpaque())}
}

func toStatePart(s ledger.StatePart) *storagev1.StatePart {
	return &storagev1.StatePart{Id: s.ID, Operator: s.Operator, KeyGroupFirst: s.KeyGroupFirst, KeyGroupLast: s.KeyGroupLast,
		Store: s.Store, Body: s.Body}
}

func fromStatePart(p *storagev1.StatePart) ledger.StatePart {
	return ledger.StatePart{ID: p.GetId(), Operator: p.GetOperator(), KeyGroupFirst: p.GetKeyGroupFirst(), KeyGroupLast: p.GetKeyGroupLast(),
		Store: p.GetStore(), Body: some(p.GetBody())}
}

func toPrepared(b ledger.Prepared) *storagev1.Prepared {
	return &storagev1.Prepared{Resource: b.Resource, Handle: toHandle(b.Handle)}
}

func fromPrepared(p *storagev1.Prepared) ledger.Prepared {
	return ledger.Prepared{Resource: p.GetResource(), Handle: fromHandle(p.GetHandle())}
}

func toVote(v ledger.Vote) *storagev1.Vote {
	return &storagev1.Vote{Member: v.Member, Instance: v.Instance, Branches: each(v.Branches, toPrepared),
		Positions: each(v.Positions, toPosition), Parts: each(v.Parts, toStatePart), ProvenThrough: v.ProvenThrough}
}

func fromVote(p *storagev1.Vote) ledger.Vote {
	return ledger.Vote{Member: p.GetMember(), Instance: p.GetInstance(), Branches: each(p.GetBranches(), fromPrepared),
		Positions: each(p.GetPositions(), fromPosition), Parts: each(p.GetParts(), fromStatePart), ProvenThrough: p.GetProvenThrough()}
}

// Values of the state alone.

func toBranch(b ledger.Branch) *storagev1.Branch {
	return &storagev1.Branch{Id: toBranchID(b.ID), Handle: toHandle(b.Handle), Proof: toProof(b.Proof), Forced: b.Forced}
}

func fromBranch(p *storagev1.Branch) ledger.Branch {
	return ledger.Branch{ID: fromBranchID(p.GetId()), Handle: fromHandle(p.GetHandle()), Proof: fromProof(p.GetProof()), Forced: p.GetForced()}
}

func toGeneration(g ledger.GenerationRecord) *storagev1.GenerationRecord {
	return &storagev1.GenerationRecord{Generation: uint64(g.Generation), Members: each(g.Members, toInstance), Open: g.Open,
		Final: g.Final, OpenedAt: g.OpenedAt, ClosedAt: g.ClosedAt, Cause: g.Cause, Debts: each(g.Debts, toListedBranchID)}
}

func fromGeneration(p *storagev1.GenerationRecord) ledger.GenerationRecord {
	return ledger.GenerationRecord{Generation: ledger.Generation(p.GetGeneration()), Members: each(p.GetMembers(), fromInstance), Open: p.GetOpen(),
		Final: p.GetFinal(), OpenedAt: p.GetOpenedAt(), ClosedAt: p.GetClosedAt(), Cause: p.GetCause(), Debts: each(p.GetDebts(), fromBranchID)}
}

// toListedBranchID and toListedEpoch keep zero values, since an element of a list is never nil.
func toListedBranchID(b ledger.BranchID) *storagev1.BranchID {
	return &storagev1.BranchID{Member: b.Member, Resource: b.Resource}
}

func toListedEpoch(e ledger.Epoch) *storagev1.Epoch {
	return &storagev1.Epoch{Generation: uint64(e.Generation), N: e.N}
}

func toEpochRecord(e ledger.EpochRecord) *storagev1.EpochRecord {
	return &storagev1.EpochRecord{Epoch: toEpoch(e.Epoch), Final: e.Final, Votes: each(e.Votes, toVote),
		Branches: each(e.Branches, toBranch), DecidedAt: e.DecidedAt, ProvenAt: e.ProvenAt}
}

func fromEpochRecord(p *storagev1.EpochRecord) ledger.EpochRecord {
	return ledger.EpochRecord{Epoch: fromEpoch(p.GetEpoch()), Final: p.GetFinal(), Votes: each(p.GetVotes(), fromVote),
		Branches: each(p.GetBranches(), fromBranch), DecidedAt: p.GetDecidedAt(), ProvenAt: p.GetProvenAt()}
}

func toScope(s ledger.Scope) *storagev1.Scope {
	return &storagev1.Scope{Id: toScopeID(s.ID), Generations: each(s.Generations, toGeneration), Epochs: each(s.Epochs, toEpochRecord),
		RestorePoint: toEpoch(s.RestorePoint), Pinned: each(s.Pinned, toListedEpoch), Halted: s.Halted,
		Barren: s.Barren, OpenAfter: s.OpenAfter, LastRequest: s.LastRequest}
}

func fromScope(p *storagev1.Scope) ledger.Scope {
	return ledger.Scope{ID: fromScopeID(p.GetId()), Generations: each(p.GetGenerations(), fromGeneration), Epochs: each(p.GetEpochs(), fromEpochRecord),
		RestorePoint: fromEpoch(p.GetRestorePoint()), Pinned: each(p.GetPinned(), fromEpoch), Halted: p.GetHalted(),
		Barren: p.GetBarren(), OpenAfter: p.GetOpenAfter(), LastRequest: p.GetLastRequest()}
}

func toTxn(t ledger.Txn) *storagev1.Txn {
	return &storagev1.Txn{Id: string(t.ID), Outcome: storagev1.Outcome(t.Outcome), Branches: each(t.Branches, toBranch),
		BegunAt: t.BegunAt, DecidedAt: t.DecidedAt, Deadline: t.Deadline, Heuristic: t.Heuristic, Why: t.Why}
}

func fromTxn(p *storagev1.Txn) ledger.Txn {
	return ledger.Txn{ID: ledger.TxnID(p.GetId()), Outcome: ledger.Outcome(p.GetOutcome()), Branches: each(p.GetBranches(), fromBranch),
		BegunAt: p.GetBegunAt(), DecidedAt: p.GetDecidedAt(), Deadline: p.GetDeadline(), Heuristic: p.GetHeuristic(), Why: p.GetWhy()}
}
