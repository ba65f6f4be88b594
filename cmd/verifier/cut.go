package verifier

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Ledger is what is asked of the coordinator: how far the pipeline is proven and decided.
type Ledger interface {
	ProvenCut(ctx context.Context, in *unisinkv1.ProvenCutRequest, opts ...grpc.CallOption) (*unisinkv1.ProvenCutResponse, error)
	ListEpochs(ctx context.Context, in *unisinkv1.ListEpochsRequest, opts ...grpc.CallOption) (*unisinkv1.ListEpochsResponse, error)
	EpochOutcome(ctx context.Context, in *unisinkv1.EpochOutcomeRequest, opts ...grpc.CallOption) (*unisinkv1.EpochOutcomeResponse, error)
}

// CutOf asks what was decided by now, which must be after the extent of the outputs was fixed, and that
// after proven was asked for: what is proven is there, what is there is decided. Splits are all that the
// source has; those that nothing was read of hold windows back all the same.
func CutOf(ctx context.Context, ledger Ledger, proven *unisinkv1.ProvenCutResponse, source string, splits []stream.Split) (verify.Cut, error) {
	cut := verify.Cut{Newest: []stream.Position{}, Final: true}
	for _, s := range proven.GetScopes() {
		// This answer is read through the log, so the next one knows of everything that was visible.
		// Which epoch it is about does not matter; where nothing is proven yet any will do.
		epoch := s.GetEpoch()
		if epoch.GetN() == 0 {
			epoch = &unisinkv1.Epoch{Generation: 1, N: 1}
		}
		_, err := ledger.EpochOutcome(ctx, &unisinkv1.EpochOutcomeRequest{Scope: s.GetScope(), Epoch: epoch})
		if err != nil && status.Code(err) != codes.NotFound {
			return verify.Cut{}, err
		}
		r, err := ledger.ListEpochs(ctx, &unisinkv1.ListEpochsRequest{Scope: s.GetScope(), Limit: 1})
		if err != nil {
			return verify.Cut{}, err
		}
		cut.Positions = append(cut.Positions, positionsOf(s.GetPositions(), source)...)
		cut.Proven = epochOf(s.GetEpoch())
		for _, x := range r.GetRewinds() {
			cut.Rewinds = append(cut.Rewinds, verify.Rewound{To: epochOf(x.GetTo()), Newest: epochOf(x.GetNewest())})
		}
		cut.Forgotten = cut.Forgotten || r.GetRewindsForgotten()
		for _, e := range r.GetEpochs() {
			cut.Newest = append(cut.Newest, positionsOf(e.GetPositions(), source)...)
			cut.Decided = epochOf(e.GetEpoch())
			cut.Final = cut.Final && e.GetFinal() && proto.Equal(e.GetEpoch(), s.GetEpoch())
		}
	}
	if len(proven.GetScopes()) != 1 {
		cut.Proven, cut.Decided = verify.Epoch{}, verify.Epoch{} // each scope counts its own
	}
	cut.Positions = every(cut.Positions, splits)
	cut.Newest = every(cut.Newest, splits)
	return cut, nil
}

func epochOf(e *unisinkv1.Epoch) verify.Epoch {
	return verify.Epoch{Generation: e.GetGeneration(), N: e.GetN()}
}

func positionsOf(in []*unisinkv1.Position, source string) (out []stream.Position) {
	for _, p := range in {
		if p.GetResource() == source {
			out = append(out, stream.Position{
				Split: stream.Split{Resource: source, ID: p.GetSplit()}, Offset: p.GetOffset(), LeaderEpoch: p.GetLeaderEpoch(), Opaque: p.GetOpaque(),
			})
		}
	}
	return out
}

func every(at []stream.Position, splits []stream.Split) []stream.Position {
	for _, s := range splits {
		if !slices.ContainsFunc(at, func(x stream.Position) bool { return x.Split == s }) {
			at = append(at, stream.Position{Split: s})
		}
	}
	return at
}
