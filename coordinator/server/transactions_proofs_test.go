package server

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func proofOf(n, resource string, v unisinkv1.Verdict) *unisinkv1.HandProof {
	return &unisinkv1.HandProof{Txn: "00000000-03e8-7000-8000-00000000000" + n, Resource: resource, Proof: &unisinkv1.Proof{Verdict: v, Evidence: "seen"}}
}

// Of many proofs each is recorded or refused on its own, and a repeat changes nothing.
func TestProofsOfManyBranchesAreRecordedOneByOne(t *testing.T) {
	m := doubtful(t, 3)
	s := &transactions{s: &Server{c: Config{Node: applied{shown: shown{m: m}, one: &sync.Mutex{}}, Class: Classes{TooLarge: func(error) bool { return false }}}}}
	committed, rolledBack := unisinkv1.Verdict_VERDICT_COMMITTED, unisinkv1.Verdict_VERDICT_ROLLED_BACK
	req := &unisinkv1.ResolveAllRequest{Meta: &unisinkv1.Meta{Actor: "test"}, Proofs: []*unisinkv1.HandProof{
		proofOf("0", "out", committed), proofOf("9", "out", committed), proofOf("1", "other", committed), proofOf("2", "out", committed),
	}}
	for what := range 2 {
		got, err := s.ResolveAll(t.Context(), req)
		if err != nil || len(got.GetRefused()) != 2 {
			t.Fatalf("call %d: %v, %v", what, got, err)
		}
		for i, want := range []uint32{1, 2} {
			if x := got.GetRefused()[i]; x.GetIndex() != want || x.GetReason() != grpcerr.NotFound || x.GetText() == "" {
				t.Errorf("call %d: refused %v, want the one at %d", what, x, want)
			}
		}
		for n, proven := range map[string]bool{"0": true, "1": false, "2": true} {
			x, _ := m.Txn(ledger.TxnID(proofOf(n, "", 0).GetTxn()))
			if got := x.Branches[0].Proof.Verdict == ledger.ProvenCommitted; got != proven {
				t.Errorf("call %d: transaction %s is proven: %v", what, n, got)
			}
		}
	}
	req.Proofs = []*unisinkv1.HandProof{proofOf("0", "out", rolledBack)}
	if got, err := s.ResolveAll(t.Context(), req); err != nil || len(got.GetRefused()) != 1 || got.GetRefused()[0].GetReason() != grpcerr.Contradicts {
		t.Errorf("another verdict than the first: %v, %v", got, err)
	}
}

// refusing is a log that takes nothing.
type refusing struct {
	shown
	err error
}

func (r refusing) Propose(context.Context, ledger.Command) (ledger.Result, error) {
	return ledger.Result{}, r.err
}

// What may have been recorded or not is not told as refused: the caller asks again.
func TestProofsOfManyBranchesThatTheLogDidNotTakeAreAnError(t *testing.T) {
	lost, large := errors.New("no answer in time"), errors.New("too large")
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	never := func(error) bool { return false }
	with := func(err error) *transactions {
		return &transactions{s: &Server{c: Config{Node: refusing{err: err}, Class: Classes{
			Unknown: is(lost), TooLarge: is(large), NotLeader: never, Bootstrapped: never,
		}}}}
	}
	req := &unisinkv1.ResolveAllRequest{Proofs: []*unisinkv1.HandProof{proofOf("0", "out", unisinkv1.Verdict_VERDICT_COMMITTED)}}
	_, err := with(lost).ResolveAll(t.Context(), req)
	if reason, _ := grpcerr.Reason(err); reason != grpcerr.OutcomeUnknown {
		t.Errorf("no answer in time: %v", err)
	}
	got, err := with(large).ResolveAll(t.Context(), req)
	if err != nil || len(got.GetRefused()) != 1 || got.GetRefused()[0].GetReason() != grpcerr.Invalid {
		t.Errorf("a proof that no entry can hold: %v, %v", got, err)
	}
	req.Proofs = make([]*unisinkv1.HandProof, judgedAtOnce+1)
	if _, err := with(nil).ResolveAll(t.Context(), req); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "1001 proofs are reported") {
		t.Errorf("more than may be reported at once: %v", err)
	}
}
