package participant_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func TestPendingEpochsHoldTheTaskBackAndNeverSayNo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		st.epoch(7, 1, "a")
		get(t, "vote", st.voted)
		st.epoch(7, 2, "b")
		get(t, "vote", st.voted)
		branch := make(chan error, 1)
		go func() {
			_, err := st.run.Branch(t.Context(), "out")
			branch <- err
		}()
		none(t, "a third epoch", 40*time.Second, branch)
		none(t, "a vote", time.Second, st.voted)
		st.committed(7, 1)
		if err := get(t, "branch", branch); err != nil {
			t.Fatal(err)
		}
	})
}

// A member that takes no barriers (a sink) adds nothing to an old epoch while no leader is heard, and
// goes on as soon as one is: the barrier that ends the epoch comes behind what it has yet to take in.
func TestASinkIsHeldBackWhileNoLeaderIsHeardAndNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		if _, err := st.run.Branch(t.Context(), "out"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // an old epoch alone is no reason
		if _, err := st.run.Branch(t.Context(), "out"); err != nil {
			t.Fatal(err)
		}
		st.mu.Lock()
		st.onRenew = func() error { return status.Error(codes.Unavailable, "gone") }
		st.mu.Unlock()
		get(t, "attach", st.attached)
		time.Sleep(4 * time.Second)
		branch := make(chan error, 1)
		go func() {
			_, err := st.run.Branch(t.Context(), "out")
			branch <- err
		}()
		none(t, "more of the epoch without a leader", time.Minute, branch)
		st.mu.Lock()
		st.onRenew = nil
		st.mu.Unlock()
		for len(st.attached) > 0 {
			<-st.attached
		}
		get(t, "the next attach", st.attached)
		st.welcome()
		if err := get(t, "branch", branch); err != nil {
			t.Fatal(err)
		}
	})
}

func TestZ2_FencedByAResourceFirstRenewsThenDemandsTheClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		other := st.store.Process()
		if err := other.Open(t.Context(), participant.Opening{
			Namespace: participant.Namespace{Name: "test", Incarnation: 1}, Scope: "orders/0", Member: "solo", Resource: "out", Generation: 8,
		}); err != nil {
			t.Fatal(err)
		}
		for len(st.renewed) > 0 {
			<-st.renewed
		}
		st.epoch(7, 1, "a")
		v := get(t, "vote", st.voted)
		if v.GetKind() != unisinkv1.VoteKind_VOTE_KIND_LOST || v.GetReasonClass() != unisinkv1.ErrorClass_ERROR_CLASS_FENCED {
			t.Fatalf("vote %v, want lost by a fence", v)
		}
		if len(st.renewed) == 0 {
			t.Error("the lease was not renewed first")
		}
		if _, err := st.run.Branch(t.Context(), "out"); !errors.Is(err, participant.ErrClosed) {
			t.Errorf("branch: %v", err)
		}
	})
}

func TestZ3_AFencedRenewalEndsRunAndStopsWriting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		st.epoch(7, 1, "a")
		get(t, "vote", st.voted)
		st.mu.Lock()
		st.onRenew = func() error { return grpcerr.New(codes.FailedPrecondition, grpcerr.Fenced, "taken over", nil) }
		st.mu.Unlock()
		<-st.done
		if !errors.Is(st.err, participant.ErrFenced) {
			t.Fatalf("run: %v, want fenced", st.err)
		}
		get(t, "halt", st.halted)
		want(t, "the prepared branch stays by its handle", commits(st.store), nil)
		if len(st.store.Prepared()) != 1 {
			t.Errorf("prepared: %q", st.store.Prepared())
		}
		if len(st.left) > 0 {
			t.Error("a fenced process took its leave")
		}
	})
}
