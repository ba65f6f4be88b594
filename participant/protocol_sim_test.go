package participant_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func commits(store *participanttest.Store) []string {
	var out []string
	for _, line := range store.Trail() {
		if n, ok := cutPrefix(line, "commit test.orders.0.solo.out."); ok {
			out = append(out, "commit "+n)
		}
		if n, ok := cutPrefix(line, "roll back test.orders.0.solo.out."); ok {
			out = append(out, "roll back "+n)
		}
	}
	return out
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return "", false
	}
	return s[len(prefix):], true
}

func want(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

func TestP8_AVoteThatHasLeftIsNeverChangedOrTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		refusals := 3
		st.mu.Lock()
		st.onVote = func(*unisinkv1.Vote) (*unisinkv1.VoteResponse, error) {
			if refusals--; refusals >= 0 {
				return nil, grpcerr.New(codes.Unavailable, grpcerr.OutcomeUnknown, "answer lost", nil)
			}
			return &unisinkv1.VoteResponse{}, nil
		}
		st.mu.Unlock()
		st.epoch(7, 1, "a")
		first := get(t, "vote", st.voted)
		for range 3 {
			again := get(t, "repeated vote", st.voted)
			again.Stamp = first.GetStamp()
			if !proto.Equal(first, again) {
				t.Fatalf("the vote was changed on its way: %v, then %v", first, again)
			}
		}
		none(t, "vote after its answer", time.Minute, st.voted)
		// The stream breaks, nobody answers for an hour: the promise stands.
		st.hangUp()
		get(t, "attach", st.attached)
		time.Sleep(time.Hour)
		want(t, "without an order", commits(st.store), nil)
		st.hangUp()
		for len(st.attached) > 0 {
			<-st.attached
		}
		req := get(t, "attach", st.attached)
		held := req.GetStanding().GetVotes()
		if len(held) != 1 || !proto.Equal(held[0].GetBranches()[0], first.GetBranches()[0]) || held[0].GetKind() != first.GetKind() {
			t.Fatalf("standing carries %v, want the vote that left", held)
		}
		if s := req.GetStanding(); s.GetGeneration() != 7 || s.GetPhase() != unisinkv1.Phase_PHASE_RUNNING || s.GetNewestBarrier() != 1 {
			t.Errorf("standing: %v", s)
		}
	})
}

func TestP8_AnOverduePrepareSaysNoOnceAndStaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		st.memory.SetHook(slowPrepare(6 * time.Second))
		st.epoch(7, 1, "a")
		v := get(t, "vote", st.voted)
		if v.GetKind() != unisinkv1.VoteKind_VOTE_KIND_NO {
			t.Fatalf("vote %v, want no", v)
		}
		none(t, "second vote", time.Minute, st.voted)
		st.close(7, 0)
		get(t, "halt", st.halted)
	})
}

func TestP17_SurvivorCommitsThroughFinal(t *testing.T) {
	for _, heard := range []uint64{0, 1} {
		t.Run(fmt.Sprintf("heard %d", heard), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := onStage(t)
				st.start(7, 4, false)
				for n := uint64(1); n <= 3; n++ {
					st.epoch(7, n, fmt.Sprint("r", n))
					get(t, "vote", st.voted)
				}
				if _, err := st.run.Branch(t.Context(), "out"); err != nil { // 7.4, never voted for
					t.Fatal(err)
				}
				if heard > 0 {
					st.committed(7, heard)
				}
				time.Sleep(10 * time.Second)
				if n := count(commits(st.store), "roll back"); n > 0 {
					t.Fatalf("%d branches were rolled back before any close", n)
				}
				st.onHalt = func() {
					if n := count(commits(st.store), "roll back"); n > 0 {
						t.Errorf("rolled back before the task had stopped")
					}
				}
				st.close(7, 2)
				get(t, "halt", st.halted)
				synctest.Wait()
				want(t, "after the close", commits(st.store), []string{"commit 7.1", "commit 7.2", "roll back 7.3"})
				want(t, "readers see", st.store.Records(), []string{"r1", "r2"})
				if r := get(t, "report", st.resolved); r.GetGeneration() != 7 || r.GetProvenThrough() == 0 {
					t.Errorf("report %v", r)
				}
				if _, err := st.run.Branch(t.Context(), "out"); !errors.Is(err, participant.ErrClosed) {
					t.Errorf("branch after the close: %v", err)
				}
			})
		})
	}
}

// The close of the old generation was said on a stream that broke: what it decided is known from the
// list of the next restore alone.
func TestP17_ASupersededGenerationTouchesNothingByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 4, false)
		st.epoch(7, 1, "decided")
		v := get(t, "vote", st.voted)
		st.epoch(7, 2, "not decided")
		get(t, "vote", st.voted)
		if _, err := st.run.Branch(t.Context(), "out"); err != nil {
			t.Fatal(err)
		}
		// Time enough for a lane that would do wrong.
		st.memory.SetHook(slowly(participanttest.CallDiscard, 5*time.Second))
		st.hangUp()
		get(t, "attach", st.attached)
		st.welcome()
		st.restore(&unisinkv1.Restore{Generation: 8, Unfinished: []*unisinkv1.Unfinished{{
			Epoch: &unisinkv1.Epoch{Generation: 7, N: 1}, Member: "solo", Resource: "out", Handle: v.GetBranches()[0].GetHandle(),
		}}})
		want(t, "restored", commits(st.store), []string{"commit 7.1", "roll back 7.2"})
		want(t, "readers see", st.store.Records(), []string{"decided"})
	})
}

func TestS2_OnTheWayOutWhatIsPreparedStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 4, false)
		st.epoch(7, 1, "prepared")
		get(t, "vote", st.voted)
		if _, err := st.run.Branch(t.Context(), "out"); err != nil {
			t.Fatal(err)
		}
		st.memory.SetHook(slowly(participanttest.CallDiscard, 5*time.Second))
		st.cancel()
		<-st.done
		want(t, "ended by hand", commits(st.store), nil)
		want(t, "prepared", st.store.Prepared(), []string{"test.orders.0.solo.out.7.1"})
		if l := get(t, "leave", st.left); l.GetGeneration() != 7 || l.GetCause() == "" {
			t.Errorf("leave %v", l)
		}
	})
}

// What was committed less than half a second before would else be listed as unfinished until the next start.
func TestS2_OnTheWayOutWhatIsProvenIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 4, false)
		st.epoch(7, 1, "a")
		get(t, "vote", st.voted)
		st.committed(7, 1)
		synctest.Wait()
		told := -1
		st.onLeave = func() { told = len(st.resolved) }
		st.cancel()
		<-st.done
		get(t, "leave", st.left)
		if told != 1 {
			t.Fatalf("%d reports came before the leave, want 1", told)
		}
		if r := get(t, "report", st.resolved); r.GetProvenThrough() != 1 || r.GetGeneration() != 7 {
			t.Errorf("report %v", r)
		}
	})
}

// A leader that is told ends the stream before its answer arrives. Who attached again then would be
// given a place in the next generation, and take it along.
func TestAMemberThatLeavesDoesNotAttachAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 4, false)
		st.onLeave = func() {
			st.hangUp()
			time.Sleep(900 * time.Millisecond) // the member waits a second for the answer
		}
		st.cancel()
		<-st.done
		get(t, "leave", st.left)
		none(t, "attached on the way out", time.Second, st.attached)
	})
}

// A lane of the old generation and the restore of the next one would finish the same branches side by
// side: the lane in its own order, the restore in the ledger's (P6).
func TestP6_LanesHaveEndedWhenTheNextGenerationOpens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 4, false)
		st.epoch(7, 1, "a")
		v := get(t, "vote", st.voted)
		busy := make(chan struct{})
		var inLane atomic.Bool
		st.memory.SetHook(func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
			switch {
			case call == participanttest.CallOpen && inLane.Load():
				t.Errorf("generation 8 is opened while a lane of 7 commits")
			case call == participanttest.CallCommit && when == participanttest.Before && inLane.CompareAndSwap(false, true):
				close(busy)
				<-ctx.Done()
				st.memory.SetHook(nil)
				return context.Cause(ctx)
			}
			return nil
		})
		st.committed(7, 1)
		<-busy
		st.restore(&unisinkv1.Restore{Generation: 8, Unfinished: []*unisinkv1.Unfinished{{
			Epoch: &unisinkv1.Epoch{Generation: 7, N: 1}, Member: "solo", Resource: "out", Handle: v.GetBranches()[0].GetHandle(),
		}}})
		want(t, "restored", commits(st.store), []string{"commit 7.1"})
	})
}

// The close comes while a Prepare has had its effect and its answer is on the way: the branch is
// prepared, its vote has not left, and nobody will list it before the next restore.
func TestP17_APrepareCutShortByTheCloseIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		st.memory.SetHook(func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
			if call == participanttest.CallPrepare && when == participanttest.After {
				// Time enough for a lane that would look before the handle is known.
				st.memory.SetHook(slowly(participanttest.CallDiscard, time.Second))
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		st.epoch(7, 1, "a")
		synctest.Wait()
		st.close(7, 0)
		get(t, "halt", st.halted)
		time.Sleep(2 * time.Second)
		want(t, "after the close", commits(st.store), []string{"roll back 7.1"})
		none(t, "a vote", time.Second, st.voted)
	})
}

func TestP17_WhatIsDecidedIsFinishedWhileWaitingForRestore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		st.epoch(7, 1, "a")
		get(t, "vote", st.voted)
		st.memory.SetHook(failing(participanttest.CallCommit))
		st.close(7, 1)
		get(t, "halt", st.halted)
		time.Sleep(time.Minute)
		want(t, "while the resource refuses", commits(st.store), nil)
		st.memory.SetHook(nil)
		time.Sleep(10 * time.Second)
		want(t, "when it answers again", commits(st.store), []string{"commit 7.1"})
	})
}

func TestP6_EpochNPlusOneIsCommittedAfterNIsProven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 4, false)
		stuck := make(chan struct{})
		st.memory.SetHook(blockFirstCommit(stuck))
		for n := uint64(1); n <= 3; n++ {
			st.epoch(7, n, fmt.Sprint("r", n))
			get(t, "vote", st.voted)
		}
		st.committed(7, 3)
		time.Sleep(20 * time.Second)
		want(t, "while the first is stuck", commits(st.store), nil)
		close(stuck)
		synctest.Wait()
		want(t, "in order", commits(st.store), []string{"commit 7.1", "commit 7.2", "commit 7.3"})
	})
}

func TestP14_EachSendingMeasuresTheTimeLeftAfterTheNewestStamp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.memory.SetBounded(time.Minute)
		st.start(7, 2, false)
		asked := false
		st.mu.Lock()
		st.onVote = func(*unisinkv1.Vote) (*unisinkv1.VoteResponse, error) {
			if asked {
				return &unisinkv1.VoteResponse{Stamp: st.stamp()}, nil
			}
			asked = true
			return &unisinkv1.VoteResponse{Stamp: &unisinkv1.Stamp{Term: 9, ClockNs: 1}, SendAgain: true}, nil
		}
		st.mu.Unlock()
		st.epoch(7, 1, "a")
		first := get(t, "vote", st.voted)
		if left := first.GetBranches()[0].GetTimeLeftMs(); first.GetStamp().GetTerm() != 5 || left < 59_000 || left > 60_000 {
			t.Fatalf("first vote: stamp %v, %d ms left", first.GetStamp(), left)
		}
		second := get(t, "vote that was asked for", st.voted)
		if second.GetStamp().GetTerm() != 9 {
			t.Fatalf("second vote is measured against %v, the newest stamp is of term 9", second.GetStamp())
		}
		time.Sleep(20 * time.Second)
		st.order(&unisinkv1.Order{Term: 9, Order: &unisinkv1.Order_VoteAgain{VoteAgain: &unisinkv1.VoteAgain{Stamp: &unisinkv1.Stamp{Term: 9, ClockNs: 77}}}})
		third := get(t, "vote asked for by order", st.voted)
		if left := third.GetBranches()[0].GetTimeLeftMs(); third.GetStamp().GetClockNs() != 77 || left > 40_000 || left < 39_000 {
			t.Fatalf("third vote: stamp %v, %d ms left", third.GetStamp(), left)
		}
	})
}

func TestP18_WhatIsProvenIsCarriedByTheNextVoteOrReportedWhenIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		st.epoch(7, 1, "a")
		get(t, "vote", st.voted)
		st.committed(7, 1)
		synctest.Wait()
		st.epoch(7, 2, "b")
		if v := get(t, "vote", st.voted); v.GetProvenThrough() != 1 {
			t.Fatalf("vote for 7.2 carries proven through %d, want 1", v.GetProvenThrough())
		}
		none(t, "a report of what a vote has carried", 2*time.Second, st.resolved)
		begun := time.Now()
		st.committed(7, 2)
		r := get(t, "report", st.resolved)
		if waited := time.Since(begun); r.GetProvenThrough() != 2 || waited < 400*time.Millisecond || waited > 700*time.Millisecond {
			t.Fatalf("report %v after %s", r, waited)
		}
		none(t, "a second report", 5*time.Second, st.resolved)
		st.hangUp()
		if s := get(t, "attach", st.attached).GetStanding(); s.GetProvenThrough() != 2 || s.GetNewestOutcome() != 2 || len(s.GetVotes()) > 0 {
			t.Errorf("standing: %v", s)
		}
	})
}

func TestP18_WithoutRoomProofsAreReportedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 1, false)
		st.epoch(7, 1, "a")
		get(t, "vote", st.voted)
		begun := time.Now()
		st.committed(7, 1)
		get(t, "report", st.resolved)
		if waited := time.Since(begun); waited > 50*time.Millisecond {
			t.Errorf("reported after %s; no vote can come before", waited)
		}
	})
}

func TestOrdersOfALowerTermAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		st.order(&unisinkv1.Order{Term: 4, Order: &unisinkv1.Order_Close{Close: &unisinkv1.Close{Generation: 7, Final: 0, Cause: "an old leader"}}})
		if req := get(t, "attach elsewhere", st.attached); req.GetTerm() != 5 {
			t.Errorf("attached with term %d, want 5", req.GetTerm())
		}
		none(t, "halt", 5*time.Second, st.halted)
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
