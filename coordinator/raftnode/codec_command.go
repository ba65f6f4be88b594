package raftnode

import (
	"fmt"

	"github.com/unisink/unisink/coordinator/ledger"
	storagev1 "github.com/unisink/unisink/proto/unisink/storage/v1"
)

// encodeBody sets the body of p. It knows every command; one that it does not know is a
// mistake of this program, which a test finds, and is not proposed.
func encodeBody(p *storagev1.Command, body ledger.Body) error {
	switch c := body.(type) {
	case ledger.Init:
		p.Body = &storagev1.Command_Init{Init: &storagev1.Init{Namespace: c.Namespace, Incarnation: c.Incarnation}}
	case ledger.PutNode:
		p.Body = &storagev1.Command_PutNode{PutNode: &storagev1.PutNode{Node: toNode(c.Node)}}
	case ledger.PutPipeline:
		p.Body = &storagev1.Command_PutPipeline{PutPipeline: &storagev1.PutPipeline{Pipeline: toPipeline(c.Pipeline)}}
	case ledger.DeletePipeline:
		p.Body = &storagev1.Command_DeletePipeline{DeletePipeline: &storagev1.DeletePipeline{Name: c.Name, Revision: c.Revision}}
	case ledger.SetDesired:
		p.Body = &storagev1.Command_SetDesired{SetDesired: &storagev1.SetDesired{
			Pipeline: c.Pipeline, From: storagev1.Desired(c.From), To: storagev1.Desired(c.To)}}
	case ledger.Reshard:
		p.Body = &storagev1.Command_Reshard{Reshard: &storagev1.Reshard{Pipeline: c.Pipeline, Revision: c.Revision, Shards: c.Shards}}
	case ledger.RaiseFeatureLevel:
		p.Body = &storagev1.Command_RaiseFeatureLevel{RaiseFeatureLevel: &storagev1.RaiseFeatureLevel{Level: c.Level}}
	case ledger.Retire:
		p.Body = &storagev1.Command_Retire{Retire: &storagev1.Retire{KeepForMs: c.KeepFor}}
	case ledger.Announce:
		p.Body = &storagev1.Command_Announce{Announce: &storagev1.Announce{
			Txn: string(c.Txn), Branches: each(c.Branches, toHandBranch), Deadline: c.Deadline}}
	case ledger.Commit:
		p.Body = &storagev1.Command_Commit{Commit: &storagev1.Commit{Txn: string(c.Txn), Branches: each(c.Branches, toHandBranch)}}
	case ledger.PresumeAbort:
		p.Body = &storagev1.Command_PresumeAbort{PresumeAbort: &storagev1.PresumeAbort{Txn: string(c.Txn), Why: c.Why}}
	case ledger.Resolve:
		p.Body = &storagev1.Command_Resolve{Resolve: &storagev1.Resolve{
			Txn: string(c.Txn), Branch: toBranchID(c.Branch), Proof: toProof(c.Proof), ProvenThrough: c.ProvenThrough}}
	default:
		return encodeScopeBody(p, body)
	}
	return nil
}

// encodeScopeBody does the commands that are about one scope.
func encodeScopeBody(p *storagev1.Command, body ledger.Body) error {
	switch c := body.(type) {
	case ledger.OpenGeneration:
		p.Body = &storagev1.Command_OpenGeneration{OpenGeneration: &storagev1.OpenGeneration{
			Scope: toScopeID(c.Scope), From: uint64(c.From), Members: each(c.Members, toInstance),
			Cause: c.Cause, Fingerprint: c.Fingerprint, FromScratch: c.FromScratch}}
	case ledger.CloseGeneration:
		p.Body = &storagev1.Command_CloseGeneration{CloseGeneration: &storagev1.CloseGeneration{
			Scope: toScopeID(c.Scope), Generation: uint64(c.Generation), Cause: c.Cause, Halt: c.Halt}}
	case ledger.Decide:
		p.Body = &storagev1.Command_Decide{Decide: &storagev1.Decide{
			Scope: toScopeID(c.Scope), Epoch: toEpoch(c.Epoch), Votes: each(c.Votes, toVote), Final: c.Final}}
	case ledger.Swept:
		p.Body = &storagev1.Command_Swept{Swept: &storagev1.Swept{
			Scope: toScopeID(c.Scope), Generation: uint64(c.Generation), Branch: toBranchID(c.Branch)}}
	case ledger.Rewind:
		p.Body = &storagev1.Command_Rewind{Rewind: &storagev1.Rewind{Scope: toScopeID(c.Scope), To: toEpoch(c.To), Why: c.Why}}
	case ledger.Resume:
		p.Body = &storagev1.Command_Resume{Resume: &storagev1.Resume{Scope: toScopeID(c.Scope), From: toEpoch(c.From), Why: c.Why}}
	case ledger.Force:
		p.Body = &storagev1.Command_Force{Force: &storagev1.Force{
			Txn: string(c.Txn), Branch: toBranchID(c.Branch), Action: storagev1.ForceAction(c.Action), Why: c.Why,
			Scope: toScopeID(c.Scope), Generation: uint64(c.Generation)}}
	case ledger.Pin:
		p.Body = &storagev1.Command_Pin{Pin: &storagev1.Pin{Scope: toScopeID(c.Scope), Epoch: toEpoch(c.Epoch), Unpin: c.Unpin}}
	default:
		return fmt.Errorf("encode command: %T is no command that can be stored", body)
	}
	return nil
}

// decodeBody is the reverse of encodeBody.
func decodeBody(p *storagev1.Command) (ledger.Body, error) {
	switch b := p.GetBody().(type) {
	case *storagev1.Command_Init:
		return ledger.Init{Namespace: b.Init.GetNamespace(), Incarnation: b.Init.GetIncarnation()}, nil
	case *storagev1.Command_PutNode:
		return ledger.PutNode{Node: fromNode(b.PutNode.GetNode())}, nil
	case *storagev1.Command_PutPipeline:
		return ledger.PutPipeline{Pipeline: fromPipeline(b.PutPipeline.GetPipeline())}, nil
	case *storagev1.Command_DeletePipeline:
		return ledger.DeletePipeline{Name: b.DeletePipeline.GetName(), Revision: b.DeletePipeline.GetRevision()}, nil
	case *storagev1.Command_SetDesired:
		c := b.SetDesired
		return ledger.SetDesired{Pipeline: c.GetPipeline(), From: ledger.Desired(c.GetFrom()), To: ledger.Desired(c.GetTo())}, nil
	case *storagev1.Command_Reshard:
		c := b.Reshard
		return ledger.Reshard{Pipeline: c.GetPipeline(), Revision: c.GetRevision(), Shards: c.GetShards()}, nil
	case *storagev1.Command_RaiseFeatureLevel:
		return ledger.RaiseFeatureLevel{Level: b.RaiseFeatureLevel.GetLevel()}, nil
	case *storagev1.Command_Retire:
		return ledger.Retire{KeepFor: b.Retire.GetKeepForMs()}, nil
	case *storagev1.Command_Announce:
		c := b.Announce
		return ledger.Announce{Txn: ledger.TxnID(c.GetTxn()), Branches: each(c.GetBranches(), fromHandBranch), Deadline: c.GetDeadline()}, nil
	case *storagev1.Command_Commit:
		c := b.Commit
		return ledger.Commit{Txn: ledger.TxnID(c.GetTxn()), Branches: each(c.GetBranches(), fromHandBranch)}, nil
	case *storagev1.Command_PresumeAbort:
		return ledger.PresumeAbort{Txn: ledger.TxnID(b.PresumeAbort.GetTxn()), Why: b.PresumeAbort.GetWhy()}, nil
	case *storagev1.Command_Resolve:
		c := b.Resolve
		return ledger.Resolve{Txn: ledger.TxnID(c.GetTxn()), Branch: fromBranchID(c.GetBranch()),
			Proof: fromProof(c.GetProof()), ProvenThrough: c.GetProvenThrough()}, nil
	default:
		return decodeScopeBody(p)
	}
}

// decodeScopeBody is the reverse of encodeScopeBody.
func decodeScopeBody(p *storagev1.Command) (ledger.Body, error) {
	switch b := p.GetBody().(type) {
	case *storagev1.Command_OpenGeneration:
		c := b.OpenGeneration
		return ledger.OpenGeneration{Scope: fromScopeID(c.GetScope()), From: ledger.Generation(c.GetFrom()),
			Members: each(c.GetMembers(), fromInstance), Cause: c.GetCause(),
			Fingerprint: c.GetFingerprint(), FromScratch: c.GetFromScratch()}, nil
	case *storagev1.Command_CloseGeneration:
		c := b.CloseGeneration
		return ledger.CloseGeneration{Scope: fromScopeID(c.GetScope()), Generation: ledger.Generation(c.GetGeneration()),
			Cause: c.GetCause(), Halt: c.GetHalt()}, nil
	case *storagev1.Command_Decide:
		c := b.Decide
		return ledger.Decide{Scope: fromScopeID(c.GetScope()), Epoch: fromEpoch(c.GetEpoch()),
			Votes: each(c.GetVotes(), fromVote), Final: c.GetFinal()}, nil
	case *storagev1.Command_Swept:
		c := b.Swept
		return ledger.Swept{Scope: fromScopeID(c.GetScope()), Generation: ledger.Generation(c.GetGeneration()),
			Branch: fromBranchID(c.GetBranch())}, nil
	case *storagev1.Command_Rewind:
		c := b.Rewind
		return ledger.Rewind{Scope: fromScopeID(c.GetScope()), To: fromEpoch(c.GetTo()), Why: c.GetWhy()}, nil
	case *storagev1.Command_Resume:
		c := b.Resume
		return ledger.Resume{Scope: fromScopeID(c.GetScope()), From: fromEpoch(c.GetFrom()), Why: c.GetWhy()}, nil
	case *storagev1.Command_Force:
		c := b.Force
		return ledger.Force{Txn: ledger.TxnID(c.GetTxn()), Branch: fromBranchID(c.GetBranch()),
			Action: ledger.ForceAction(c.GetAction()), Why: c.GetWhy(),
			Scope: fromScopeID(c.GetScope()), Generation: ledger.Generation(c.GetGeneration())}, nil
	case *storagev1.Command_Pin:
		c := b.Pin
		return ledger.Pin{Scope: fromScopeID(c.GetScope()), Epoch: fromEpoch(c.GetEpoch()), Unpin: c.GetUnpin()}, nil
	default:
		return nil, fmt.Errorf("the command %q has no body that this version knows", p.GetRequest())
	}
}
