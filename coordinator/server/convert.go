package server

import (
	"slices"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func handBranches(in []*unisinkv1.HandBranch) []ledger.HandBranch {
	out := make([]ledger.HandBranch, len(in))
	for i, b := range in {
		out[i] = ledger.HandBranch{Resource: b.GetResource(), Handle: wire.Handle(b.GetHandle())}
	}
	return out
}

func transactionBranch(b ledger.Branch) *unisinkv1.TransactionBranch {
	return &unisinkv1.TransactionBranch{
		Member: b.ID.Member, Resource: b.ID.Resource, Handle: wire.FromHandle(b.Handle), Proof: wire.FromProof(b.Proof), Forced: b.Forced,
	}
}

// epochRecord writes a decided epoch. Bodies of state and handles stay here unless asked for: they
// are large, and lists are for people.
func epochRecord(scope ledger.Scope, e ledger.EpochRecord, bodies bool) *unisinkv1.EpochRecord {
	out := &unisinkv1.EpochRecord{
		Scope: wire.FromScope(scope.ID), Epoch: wire.FromEpoch(e.Epoch), Outcome: unisinkv1.Outcome_OUTCOME_COMMITTED,
		Final: e.Final, DecidedAtMs: e.DecidedAt, ProvenAtMs: e.ProvenAt, RestorePoint: e.Epoch == scope.RestorePoint,
		Kept: e.Kept(), Pinned: slices.Contains(scope.Pinned, e.Epoch),
	}
	for _, b := range e.Branches {
		s := &unisinkv1.BranchStatus{
			Member: b.ID.Member, Resource: b.ID.Resource, Handle: wire.FromHandle(b.Handle), Proof: wire.FromProof(b.Proof), Forced: b.Forced,
		}
		if !bodies {
			s.Handle.Body = nil
		}
		out.Branches = append(out.Branches, s)
	}
	for _, v := range e.Votes {
		out.Positions = append(out.Positions, wire.FromPositions(v.Positions)...)
		parts := wire.FromParts(v.Parts)
		if !bodies {
			for _, p := range parts {
				p.Body = nil
			}
		}
		out.Parts = append(out.Parts, parts...)
	}
	return out
}
