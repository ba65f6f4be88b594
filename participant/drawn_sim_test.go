package participant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

func drawn(t *testing.T, c *participant.Client) string {
	t.Helper()
	id, err := c.NewTxnID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A client that draws its ids itself asks about the first, and about each while nobody answers: then
// nothing is prepared that could not be decided.
func TestP10_NothingIsPreparedOnceTheCoordinatorIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := coordinatortest.Start(t, 1)
		c := cluster.Client()
		for range 3 {
			commit(t, c, drawn(t, c))
		}
		var ids []string
		var branches []participant.TxnBranch
		stores := []*participanttest.Store{participanttest.NewStore("0"), participanttest.NewStore("1"), participanttest.NewStore("2")}
		for i, s := range stores {
			ids = append(ids, drawn(t, c))
			branches = append(branches, handBranch(t, c, s, ids[i], "a", "1"))
		}
		run := func(i int) (participant.Outcome, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return c.RunTxn(ctx, ids[i], branches[i:i+1])
		}
		cluster.Crash("n1")
		for i := range ids {
			if out, err := run(i); !errors.Is(err, participant.ErrOutcomeUnknown) || out == participant.OutcomeAborted {
				t.Errorf("transaction %d: %s, %v", i, out, err)
			}
		}
		// The first was told unused without being asked about. It waits for its decision; the others were not begun.
		for i, s := range stores {
			if got := len(s.Prepared()) > 0; got != (i == 0) {
				t.Errorf("transaction %d is prepared: %v", i, s.Trail())
			}
		}
		cluster.Restart("n1")
		cluster.Leader()
		for i, s := range stores {
			if out, err := run(i); err != nil || out != participant.OutcomeCommitted {
				t.Errorf("transaction %d once more: %s, %v", i, out, err)
			}
			want(t, "visible", s.Records(), []string{"1"})
		}
	})
}

// An id that was handed on after all: whoever comes second finishes what the first one got decided, and
// commits nothing of its own.
func TestAnIDThatAnotherClientHasUsedCommitsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := coordinatortest.Start(t, 3)
		one, two := cluster.Client(), cluster.Client()
		commit(t, one, drawn(t, one))
		committed, aborted := drawn(t, one), drawn(t, one)
		commit(t, two, committed)
		if out, err := two.Outcome(t.Context(), aborted); err != nil || out != participant.OutcomeAborted {
			t.Fatalf("the question: %s, %v", out, err)
		}
		mine := participanttest.NewStore("mine")
		out, err := one.RunTxn(t.Context(), committed, []participant.TxnBranch{handBranch(t, one, mine, committed, "mine", "1")})
		if out != participant.OutcomeCommitted || !errors.Is(err, participant.ErrUnfinished) { // with branches that are not given here
			t.Errorf("committed by the other: %s, %v", out, err)
		}
		if out, err := one.RunTxn(t.Context(), aborted, []participant.TxnBranch{handBranch(t, one, mine, aborted, "mine", "1")}); out != participant.OutcomeAborted {
			t.Errorf("aborted by the other: %s, %v", out, err)
		}
		want(t, "visible", mine.Records(), nil)
		want(t, "prepared", mine.Prepared(), nil)
	})
}

// A repeat asks, and prepares nothing.
func TestARepeatOfADrawnIDPreparesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 1).Client()
		commit(t, c, drawn(t, c))
		txn, store := drawn(t, c), participanttest.NewStore("s")
		for range 2 { // the second time by a program that has begun anew
			b := handBranch(t, c, store, txn, "s", "1")
			if out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{b}); err != nil || out != participant.OutcomeCommitted {
				t.Errorf("%s, %v", out, err)
			}
		}
		if n := count(store.Trail(), "prepare"); n != 1 {
			t.Errorf("prepared %d times: %q", n, store.Trail())
		}
	})
}
