package participant_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func TestRetiredPartsReachTheTask(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		retire := func(generation uint64, parts ...string) {
			st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Retired{Retired: &unisinkv1.Retired{Generation: generation, Parts: parts}}})
		}
		retire(7, "a", "b")
		retire(6, "of another generation")
		retire(7, "c")
		synctest.Wait()
		got := get(t, "retired parts", st.run.Retired())
		for len(got) < 3 {
			got = append(got, get(t, "more retired parts", st.run.Retired())...)
		}
		if !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("retired %q", got)
		}
		retire(7, "nobody takes this one, and nothing hangs for it")
		st.close(7, 0)
		get(t, "halt", st.halted)
		<-st.run.Done()
	})
}

func TestWorkAndProgressAreToldAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		synctest.Wait()
		drain := func() (last *unisinkv1.RenewRequest) {
			synctest.Wait()
			for len(st.renewed) > 0 {
				last = <-st.renewed
			}
			return last
		}
		drain()
		st.run.HasWork()
		if r := drain(); !r.GetHasWork() || r.GetGeneration() != 7 || r.GetLag() != -1 {
			t.Errorf("after work: %v", r)
		}
		st.run.HasWork()
		if r := drain(); r != nil {
			t.Errorf("the same work was told again: %v", r)
		}
		st.run.Progress(42, true)
		if r := drain(); !r.GetEnded() || r.GetLag() != 42 {
			t.Errorf("at the end: %v", r)
		}
		st.barrier(7, 1, false)
		get(t, "barrier", st.barriers)
		st.run.HasWork() // read behind the barrier, or just before it: an epoch too many does no harm
		if r := drain(); !r.GetHasWork() {
			t.Errorf("work after a barrier was not told: %v", r)
		}
	})
}

func TestWhatIsTooLargeForAVoteIsMisconfigured(t *testing.T) {
	vote := func(t *testing.T, st *stage, parts ...participant.StatePart) {
		t.Helper()
		b := participant.Barrier{Generation: 7, N: 1}
		if err := st.run.Vote(t.Context(), b, participant.Contribution{Parts: parts}); err != nil {
			t.Fatal(err)
		}
		v := get(t, "vote", st.voted)
		if v.GetKind() != unisinkv1.VoteKind_VOTE_KIND_NO || v.GetReasonClass() != unisinkv1.ErrorClass_ERROR_CLASS_MISCONFIGURED {
			t.Errorf("vote %v", v)
		}
		if len(v.GetParts()) > 0 || len(v.GetBranches()) > 0 {
			t.Error("a no carries what it refuses")
		}
	}
	t.Run("inline state", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			st.start(7, 2, false)
			vote(t, st, participant.StatePart{ID: "p", Body: make([]byte, 2048)}, participant.StatePart{ID: "q", Store: "s", Body: make([]byte, 4096)})
		})
	})
	t.Run("a handle", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			st.memory.SetHandleBytes(participant.MaxHandle + 1)
			st.start(7, 2, false)
			b, err := st.run.Branch(t.Context(), "out")
			if err != nil {
				t.Fatal(err)
			}
			if err := b.(*participanttest.MemoryBranch).Write("r"); err != nil {
				t.Fatal(err)
			}
			vote(t, st)
			st.close(7, 0)
			get(t, "halt", st.halted)
			synctest.Wait()
			want(t, "what was prepared for it", commits(st.store), []string{"roll back 7.1"})
		})
	})
}

func TestATaskThatFailsEndsTheGenerationWithItsClass(t *testing.T) {
	for class, err := range map[unisinkv1.ErrorClass]error{
		unisinkv1.ErrorClass_ERROR_CLASS_RETRY:         errors.New("a worker stumbled"),
		unisinkv1.ErrorClass_ERROR_CLASS_MISCONFIGURED: participant.ErrMisconfigured,
		unisinkv1.ErrorClass_ERROR_CLASS_BUG:           participant.ErrBug,
	} {
		t.Run(class.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := onStage(t)
				st.start(7, 2, false)
				st.epoch(7, 1, "promised")
				get(t, "vote", st.voted)
				st.run.Fail(err)
				st.run.Fail(errors.New("only the first counts"))
				v := get(t, "demand", st.voted)
				if v.GetKind() != unisinkv1.VoteKind_VOTE_KIND_LOST || v.GetEpoch().GetN() != 2 || v.GetReasonClass() != class || v.GetReason() != err.Error() {
					t.Errorf("demand %v", v)
				}
				if err := st.run.Vote(context.Background(), participant.Barrier{Generation: 7, N: 2}, participant.Contribution{}); !errors.Is(err, participant.ErrClosed) {
					t.Errorf("vote after the failure: %v", err)
				}
				// The demand may lose to the decision of what was promised before.
				st.close(7, 1)
				get(t, "halt", st.halted)
				synctest.Wait()
				want(t, "promised before", commits(st.store), []string{"commit 7.1"})
			})
		})
	}
}

func TestACoordinatorOfAnotherGroupIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		st.hangUp()
		get(t, "attach", st.attached)
		st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Welcome{Welcome: &unisinkv1.Welcome{
			Namespace: "other", Incarnation: 1, Lease: &unisinkv1.Lease{DurationMs: 3000},
		}}})
		<-st.done
		if !errors.Is(st.err, participant.ErrRefused) {
			t.Errorf("run: %v", st.err)
		}
	})
}

func TestALostLeaseMeansAttachingAgainNotGivingUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		lost := true
		st.mu.Lock()
		st.onVote = func(*unisinkv1.Vote) (*unisinkv1.VoteResponse, error) {
			if lost {
				lost = false
				return nil, grpcerr.New(codes.FailedPrecondition, grpcerr.LeaseLost, "silent for a lease", nil)
			}
			return &unisinkv1.VoteResponse{}, nil
		}
		st.mu.Unlock()
		st.epoch(7, 1, "a")
		first := get(t, "vote", st.voted)
		req := get(t, "attach", st.attached)
		if n := len(req.GetStanding().GetVotes()); n != 1 {
			t.Errorf("the standing carries %d votes", n)
		}
		st.welcome()
		if again := get(t, "vote again", st.voted); again.GetKind() != first.GetKind() || again.GetEpoch().GetN() != 1 {
			t.Errorf("vote %v", again)
		}
	})
}

func TestReadyIsSaidAgainToALeaderThatHasNotHeard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.restore(&unisinkv1.Restore{Generation: 7})
		get(t, "restore of the task", st.restored)
		st.restore(&unisinkv1.Restore{Generation: 7})
		none(t, "a second restore of the task", time.Second, st.restored)
	})
}
