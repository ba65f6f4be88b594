package participant_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func TestBarriersComeInOrderWithoutGapsEachOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 8, false)
		st.barrier(7, 1, false)
		st.barrier(7, 3, false) // 2 was ordered by a leader that is gone
		synctest.Wait()
		if n := len(st.barriers); n != 3 {
			t.Fatalf("%d barriers after 1 and 3 were ordered, want 3", n)
		}
		st.barrier(7, 2, false)
		st.barrier(7, 3, false)
		st.barrier(6, 4, false)
		st.barrier(7, 4, true)
		st.barrier(7, 5, false)
		synctest.Wait()
		var got []string
		for len(st.barriers) > 0 {
			b := <-st.barriers
			got = append(got, fmt.Sprintf("%d.%d %t", b.Generation, b.N, b.Final))
		}
		want(t, "barriers", got, []string{"7.1 false", "7.2 false", "7.3 false", "7.4 true"})
	})
}

func TestVoteTakesEachBarrierOnceAndRefusesASkippedOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 4, false)
		st.epoch(7, 1, "a")
		get(t, "vote", st.voted)
		vote := func(g, n uint64) error {
			return st.run.Vote(t.Context(), participant.Barrier{Generation: g, N: n}, participant.Contribution{})
		}
		if err := vote(7, 1); err != nil {
			t.Errorf("the same barrier again: %v", err)
		}
		if err := vote(7, 3); !errors.Is(err, participant.ErrBug) {
			t.Errorf("a skipped barrier: %v", err)
		}
		if err := vote(6, 2); !errors.Is(err, participant.ErrBug) {
			t.Errorf("a barrier of another generation: %v", err)
		}
		none(t, "a vote for nothing", time.Second, st.voted)
	})
}

func TestTheDecisionOfAScopeOfOneIsAskedForUntilItIsThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		answers := []*unisinkv1.DecideResponse{
			{Outcome: unisinkv1.Outcome_OUTCOME_PENDING},
			{Outcome: unisinkv1.Outcome_OUTCOME_PENDING, SendAgain: true},
			nil, // lost
			{Outcome: unisinkv1.Outcome_OUTCOME_COMMITTED},
			{Outcome: unisinkv1.Outcome_OUTCOME_ABORTED, Final: 1, Cause: "closed"},
		}
		st.onDecide = func(*unisinkv1.Vote) (*unisinkv1.DecideResponse, error) {
			a := answers[0]
			answers = answers[1:]
			if a == nil {
				return nil, status.Error(codes.DeadlineExceeded, "too slow")
			}
			return a, nil
		}
		st.start(7, 2, true)
		write := func(r string) {
			b, err := st.run.Branch(t.Context(), "out")
			if err != nil {
				t.Fatal(err)
			}
			_ = b.(*participanttest.MemoryBranch).Write(r)
			st.run.HasWork()
		}
		write("a")
		b := get(t, "barrier of its own", st.barriers)
		if b.N != 1 || b.Final {
			t.Fatalf("barrier %+v", b)
		}
		if err := st.run.Vote(t.Context(), b, participant.Contribution{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		want(t, "after the decision", commits(st.store), []string{"commit 7.1"})
		none(t, "a barrier without work", time.Minute, st.barriers)
		write("b")
		b = get(t, "barrier", st.barriers)
		if err := st.run.Vote(t.Context(), b, participant.Contribution{}); err != nil {
			t.Fatal(err)
		}
		get(t, "halt", st.halted)
		synctest.Wait()
		want(t, "after the abort", commits(st.store), []string{"commit 7.1", "roll back 7.2"})
	})
}

func TestAFinalBarrierThatCrossesAnOwnOneIsMadeTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.onDecide = func(*unisinkv1.Vote) (*unisinkv1.DecideResponse, error) {
			return &unisinkv1.DecideResponse{Outcome: unisinkv1.Outcome_OUTCOME_COMMITTED}, nil
		}
		st.start(7, 2, true)
		st.run.HasWork()
		first := get(t, "own barrier", st.barriers)
		st.barrier(7, 1, true)
		last := get(t, "final barrier", st.barriers)
		if first.N != 1 || first.Final || last.N != 2 || !last.Final {
			t.Errorf("barriers %+v, %+v", first, last)
		}
		st.barrier(7, 2, true)
		none(t, "another barrier", time.Second, st.barriers)
	})
}
