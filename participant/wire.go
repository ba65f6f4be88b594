package participant

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Between the values of this package and those of the wire. Byte slices are shared, not copied:
// neither side changes them.

func handleToWire(h Handle) *unisinkv1.Handle {
	return &unisinkv1.Handle{
		Kind: h.Kind, Version: h.Version, Identity: h.Identity, Alias: h.Alias, Name: h.Name, Text: h.Text, Body: h.Body,
	}
}

func handleFromWire(h *unisinkv1.Handle) Handle {
	return Handle{
		Kind: h.GetKind(), Version: h.GetVersion(), Identity: h.GetIdentity(), Alias: h.GetAlias(),
		Name: h.GetName(), Text: h.GetText(), Body: h.GetBody(),
	}
}

// Check reports what the coordinator would refuse in a handle: empty parts, or more than MaxHandle
// bytes as it travels.
func (h Handle) Check() error {
	switch size := proto.Size(handleToWire(h)); {
	case h.Kind == "" || h.Identity == "" || h.Name == "":
		return fmt.Errorf("%w: the handle %+q of %q lacks kind, identity or name", ErrBug, h.Name, h.Alias)
	case size > MaxHandle:
		return fmt.Errorf("%w: the handle of %q takes %d bytes, at most %d are allowed; prepare less in one epoch",
			ErrMisconfigured, h.Alias, size, MaxHandle)
	}
	return nil
}

func proofToWire(p Proof) *unisinkv1.Proof {
	w := &unisinkv1.Proof{Evidence: p.Evidence, Asserted: p.Asserted}
	switch p.Verdict {
	case Committed:
		w.Verdict = unisinkv1.Verdict_VERDICT_COMMITTED
	case RolledBack:
		w.Verdict = unisinkv1.Verdict_VERDICT_ROLLED_BACK
	case verdictUnset:
	}
	return w
}

func outcomeFromWire(o unisinkv1.Outcome) Outcome {
	switch o {
	case unisinkv1.Outcome_OUTCOME_PENDING:
		return OutcomePending
	case unisinkv1.Outcome_OUTCOME_COMMITTED:
		return OutcomeCommitted
	case unisinkv1.Outcome_OUTCOME_ABORTED:
		return OutcomeAborted
	case unisinkv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return outcomeUnset
}

func positionsToWire(in []Position) []*unisinkv1.Position {
	out := make([]*unisinkv1.Position, 0, len(in))
	for _, p := range in {
		out = append(out, &unisinkv1.Position{
			Resource: p.Resource, Split: p.Split, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Opaque: p.Opaque,
		})
	}
	return out
}

func positionsFromWire(in []*unisinkv1.Position) []Position {
	out := make([]Position, 0, len(in))
	for _, p := range in {
		out = append(out, Position{
			Resource: p.GetResource(), Split: p.GetSplit(), Offset: p.GetOffset(), LeaderEpoch: p.GetLeaderEpoch(), Opaque: p.GetOpaque(),
		})
	}
	return out
}

func partsToWire(in []StatePart) []*unisinkv1.StatePart {
	out := make([]*unisinkv1.StatePart, 0, len(in))
	for _, p := range in {
		out = append(out, &unisinkv1.StatePart{
			Id: p.ID, Operator: p.Operator, KeyGroupFirst: p.KeyGroupFirst, KeyGroupLast: p.KeyGroupLast, Store: p.Store, Body: p.Body,
		})
	}
	return out
}

func partsFromWire(in []*unisinkv1.StatePart) []StatePart {
	out := make([]StatePart, 0, len(in))
	for _, p := range in {
		out = append(out, StatePart{
			ID: p.GetId(), Operator: p.GetOperator(), KeyGroupFirst: p.GetKeyGroupFirst(), KeyGroupLast: p.GetKeyGroupLast(),
			Store: p.GetStore(), Body: p.GetBody(),
		})
	}
	return out
}

// inlineBytes is what a contribution's inline state takes.
func inlineBytes(parts []StatePart) int {
	total := 0
	for _, p := range parts {
		if p.Store == "" {
			total += len(p.Body)
		}
	}
	return total
}

// checkVote reports an answer of Prepare that breaks the contract.
func checkVote(v Vote) error {
	switch v.Kind {
	case Yes:
		return v.Handle.Check()
	case ReadOnly:
		return nil
	case No:
		if v.Reason == nil {
			return errors.New("no reason was given")
		}
		return nil
	case voteUnset:
	}
	return fmt.Errorf("%w: Prepare answered without a vote", ErrBug)
}
