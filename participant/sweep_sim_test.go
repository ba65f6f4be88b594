package participant_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// leave prepares a branch and forgets about it, as a client that dies does.
func leave(t *testing.T, b participant.TxnBranch) participant.HandBranch {
	t.Helper()
	vote, err := b.Branch.Prepare(t.Context())
	if err != nil || vote.Kind != participant.Yes {
		t.Fatalf("prepare: %+v, %v", vote, err)
	}
	return participant.HandBranch{Resource: b.Name, Handle: vote.Handle}
}

func inDoubt(t *testing.T, c *participant.Client) (ids []string) {
	t.Helper()
	list, err := c.Transactions().ListTransactions(t.Context(), &unisinkv1.ListTransactionsRequest{InDoubt: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list.GetTransactions() {
		ids = append(ids, x.GetTxn())
	}
	return ids
}

func TestL1_ASweepAsksOnlyAboutWhatItHasSeenTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 1).Client()
		store := participanttest.NewStore("s")
		dead, slow := newTxn(t), newTxn(t)
		leave(t, handBranch(t, c, store, dead, "s", "dead"))
		living := leave(t, handBranch(t, c, store, slow, "s", "slow"))
		var done participant.Swept
		swept := make(chan error, 1)
		begun := time.Now()
		go func() {
			var err error
			done, err = c.Sweep(t.Context(), map[string]participant.Resource{"s": store.Process()}, 0)
			swept <- err
		}()
		time.Sleep(50 * time.Second) // a client that takes its time, and still less than by_hand_timeout
		if out, err := c.Commit(t.Context(), slow, []participant.HandBranch{living}); err != nil || out != participant.OutcomeCommitted {
			t.Errorf("the slow client was told %s, %v", out, err)
		}
		late := newTxn(t) // prepared before the second listing, and seen there for the first time
		leave(t, handBranch(t, c, store, late, "s", "late"))
		if err := <-swept; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < participant.ByHandTimeout {
			t.Errorf("it took %s", took)
		}
		if done.Committed != 1 || done.RolledBack != 1 || !slices.Equal(done.Aborted, []string{dead}) {
			t.Errorf("swept: %+v", done)
		}
		want(t, "visible", store.Records(), []string{"slow"})
		if left := store.Prepared(); len(left) != 1 || !strings.Contains(left[0], late) {
			t.Errorf("prepared: %q, want that of %s alone", left, late)
		}
		want(t, "in doubt", inDoubt(t, c), nil)
	})
}

// What is decided is finished at once, whoever died where.
func TestL1_ASweepFinishesWhatIsDecided(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 1).Client()
		store := participanttest.NewStore("s")
		resources := map[string]participant.Resource{"s": store.Process()}
		committed, reported, aborted, twice := newTxn(t), newTxn(t), newTxn(t), newTxn(t)
		commit := func(txn string, b participant.HandBranch) participant.HandBranch {
			if out, err := c.Commit(t.Context(), txn, []participant.HandBranch{b}); err != nil || out != participant.OutcomeCommitted {
				t.Fatalf("%s, %v", out, err)
			}
			return b
		}
		commit(committed, leave(t, handBranch(t, c, store, committed, "s", "committed")))
		// Died between the resource's commit and its report: nothing lists it any more.
		b := commit(reported, leave(t, handBranch(t, c, store, reported, "s", "reported")))
		if _, err := resources["s"].Commit(t.Context(), b.Handle); err != nil {
			t.Fatal(err)
		}
		leave(t, handBranch(t, c, store, aborted, "s", "aborted"))
		if _, err := c.Abort(t.Context(), aborted, "test"); err != nil {
			t.Fatal(err)
		}
		// Prepared twice, and committed with the second handle (P7).
		leave(t, handBranch(t, c, store, twice, "s", "first attempt"))
		commit(twice, leave(t, handBranch(t, c, store, twice, "s", "second attempt")))
		begun := time.Now()
		done, err := c.Sweep(t.Context(), resources, 0)
		if err != nil || time.Since(begun) > time.Second {
			t.Fatalf("%v, in %s", err, time.Since(begun))
		}
		if done.Committed != 3 || done.RolledBack != 2 || len(done.Aborted) != 0 {
			t.Errorf("swept: %+v", done)
		}
		got := store.Records()
		slices.Sort(got)
		want(t, "visible", got, []string{"committed", "reported", "second attempt"})
		want(t, "prepared", store.Prepared(), nil)
		want(t, "in doubt", inDoubt(t, c), nil)
	})
}

// Those that nobody can finish, whatever their number, do not keep a sweep from the ones behind them.
func TestL1_ASweepGoesBehindThoseThatItCannotFinish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 1).Client()
		store := participanttest.NewStore("s")
		mine := store.Process()
		commit := func(txn string, b participant.HandBranch) {
			if out, err := c.Commit(t.Context(), txn, []participant.HandBranch{b}); err != nil || out != participant.OutcomeCommitted {
				t.Fatalf("%s, %v", out, err)
			}
		}
		elsewhere := participant.Handle{Kind: "memory", Version: 1, Identity: "elsewhere", Alias: "x", Name: "n"}
		for range 1001 { // more than one page
			commit(newTxn(t), participant.HandBranch{Resource: "x", Handle: elsewhere})
		}
		time.Sleep(time.Second) // so that its id comes last
		last := newTxn(t)
		b := leave(t, handBranch(t, c, store, last, "s", "last"))
		commit(last, b)
		if _, err := mine.Commit(t.Context(), b.Handle); err != nil { // and died before it reported that
			t.Fatal(err)
		}
		if done, err := c.Sweep(t.Context(), map[string]participant.Resource{"s": mine}, 0); err != nil || done.Committed != 1 {
			t.Errorf("swept: %+v, %v; want the last one", done, err)
		}
	})
}

// A client announces and dies: before it prepares, or after. At the deadline both are aborted, and
// from then on the next sweep leaves nothing, in the resource or in the ledger.
func TestL1_AnAnnouncedTransactionIsAbortedAtItsDeadlineAndFinished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3).Client()
		store := participanttest.NewStore("s")
		resources := map[string]participant.Resource{"s": store.Process()}
		prepared, never := newTxn(t), newTxn(t)
		for _, txn := range []string{prepared, never} {
			if _, err := c.Begin(t.Context(), txn, []string{"s"}, 30*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		b := handBranch(t, c, store, prepared, "s", "r")
		leave(t, b)
		done, err := c.Sweep(t.Context(), resources, time.Second)
		if err != nil || done.Undecided != 1 || done.RolledBack != 0 || len(inDoubt(t, c)) != 2 {
			t.Fatalf("before the deadline: %+v, %v", done, err)
		}
		time.Sleep(32 * time.Second)
		if done, err = c.Sweep(t.Context(), resources, time.Second); err != nil || done.RolledBack != 1 || done.Undecided != 0 {
			t.Fatalf("after the deadline: %+v, %v", done, err)
		}
		want(t, "prepared", store.Prepared(), nil)
		want(t, "in doubt", inDoubt(t, c), nil)
		// The client was only slow: it is told the same as everybody.
		out, err := c.RunTxn(t.Context(), prepared, []participant.TxnBranch{b})
		if err != nil || out != participant.OutcomeAborted {
			t.Errorf("the slow client was told %s, %v", out, err)
		}
		want(t, "visible", store.Records(), nil)
	})
}

// A client announces, prepares under a name that its process has for itself, as in Kafka, and dies. That no listing names the
// transaction proves nothing while what it may be is there; what was begun long after the decision is another's.
func TestL1_ASweepProvesNothingWhileWhatMayBeTheBranchIsPrepared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 1).Client()
		store, early, late := participanttest.NewStore("s"), newTxn(t), newTxn(t)
		resources := map[string]participant.Resource{"s": store.Process()}
		ns, err := c.Namespace(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		abandon := func(txn string) {
			if _, err := c.Begin(t.Context(), txn, []string{"s"}, time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
		}
		abandon(early)
		time.Sleep(70 * time.Second)
		abandon(late)
		o := participant.HandOpening(ns, "teller", "s")
		h := store.Plant(participant.BranchName{Namespace: ns, Pipeline: "_hand", Member: o.Member, Resource: "s", Generation: o.Generation, N: 3}, "paid")
		done, err := c.Sweep(t.Context(), resources, time.Second)
		if !errors.Is(err, participant.ErrUnfinished) || !strings.Contains(err.Error(), late) || strings.Contains(err.Error(), early) || done.RolledBack != 0 {
			t.Errorf("swept: %+v, %v", done, err)
		}
		want(t, "in doubt", inDoubt(t, c), []string{late})
		if _, err := resources["s"].Rollback(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		if done, err := c.Sweep(t.Context(), resources, time.Second); err != nil {
			t.Errorf("swept: %+v, %v", done, err)
		}
		want(t, "in doubt", inDoubt(t, c), nil)
	})
}

func TestASweepTellsWhatItCouldNotFinish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 1).Client()
		good, bad := participanttest.NewStore("good"), participanttest.NewStore("bad")
		txn := newTxn(t)
		hand := []participant.HandBranch{
			leave(t, handBranch(t, c, good, txn, "good", "r")), leave(t, handBranch(t, c, bad, txn, "bad", "r")),
		}
		if _, err := c.Commit(t.Context(), txn, hand); err != nil {
			t.Fatal(err)
		}
		sick := bad.Process()
		sick.SetHook(func(_ context.Context, call participanttest.Call, _ participanttest.When, _ string) error {
			if call == participanttest.CallCommit {
				return errors.New("disk full")
			}
			return nil
		})
		resources := map[string]participant.Resource{"good": good.Process(), "bad": sick}
		done, err := c.Sweep(t.Context(), resources, time.Second)
		if done.Committed != 1 || !errors.Is(err, participant.ErrUnfinished) || !strings.Contains(err.Error(), "disk full") || !strings.Contains(err.Error(), "in bad") {
			t.Fatalf("%+v, %v", done, err)
		}
		want(t, "in doubt", inDoubt(t, c), []string{txn})
		sick.SetHook(nil)
		if done, err = c.Sweep(t.Context(), resources, time.Second); err != nil || done.Committed != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		want(t, "in doubt", inDoubt(t, c), nil)

		// A resource that lost what was decided is told as what it is.
		txn = newTxn(t)
		b := leave(t, handBranch(t, c, bad, txn, "bad", "r"))
		if _, err := c.Commit(t.Context(), txn, []participant.HandBranch{b}); err != nil {
			t.Fatal(err)
		}
		if _, err := bad.Process().Rollback(t.Context(), b.Handle); err != nil {
			t.Fatal(err)
		}
		if _, err = c.Sweep(t.Context(), resources, time.Second); !errors.Is(err, participant.ErrHeuristic) {
			t.Errorf("a heuristic: %v", err)
		}
	})
}

// A process that comes back with the id of a transaction that was decided finishes that one, and
// writes nothing a second time.
func TestO5_ARepeatOfADecidedTransactionFinishesIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 1).Client()
		store, txn := participanttest.NewStore("s"), newTxn(t)
		b := leave(t, handBranch(t, c, store, txn, "s", "r"))
		if _, err := c.Commit(t.Context(), txn, []participant.HandBranch{b}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			again := handBranch(t, c, store, txn, "s", "r")
			if out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{again}); err != nil || out != participant.OutcomeCommitted {
				t.Fatalf("outcome %s, %v", out, err)
			}
		}
		want(t, "visible", store.Records(), []string{"r"})
		time.Sleep(time.Second) // the proof is reported behind the caller's back
		want(t, "in doubt", inDoubt(t, c), nil)

		// Nobody wrote anything: that is decided too, and stays so.
		txn = newTxn(t)
		for _, ask := range []func() (participant.Outcome, error){
			func() (participant.Outcome, error) {
				return c.RunTxn(t.Context(), txn, []participant.TxnBranch{handBranch(t, c, store, txn, "s")})
			},
			func() (participant.Outcome, error) { return c.Outcome(t.Context(), txn) },
		} {
			if out, err := ask(); err != nil || out != participant.OutcomeCommitted {
				t.Errorf("an empty transaction: %s, %v", out, err)
			}
		}
	})
}

// Nobody looked for hours, and the floor has risen past the id: there is no verdict to be had, and
// no commit either, so what is prepared is dead.
func TestP10_WhatLiesBelowTheFloorIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 1).Client()
		store := participanttest.NewStore("s")
		run, swept, done := newTxn(t), newTxn(t), newTxn(t)
		b := handBranch(t, c, store, run, "s", "run again")
		leave(t, b)
		leave(t, handBranch(t, c, store, swept, "s", "swept"))
		finished := handBranch(t, c, store, done, "s", "done")
		if out, err := c.RunTxn(t.Context(), done, []participant.TxnBranch{finished}); err != nil || out != participant.OutcomeCommitted {
			t.Fatalf("%s, %v", out, err)
		}
		time.Sleep(2 * time.Hour)
		// Committed, proven and forgotten: no verdict is told, and nothing is changed.
		for _, x := range []struct {
			txn string
			b   participant.TxnBranch
		}{{run, b}, {done, finished}} {
			out, err := c.RunTxn(t.Context(), x.txn, []participant.TxnBranch{x.b})
			if !errors.Is(err, participant.ErrTooOld) || errors.Is(err, participant.ErrHeuristic) || out.String() != "unknown" {
				t.Errorf("outcome %s, %v", out, err)
			}
		}
		if left := store.Prepared(); len(left) != 1 {
			t.Errorf("prepared: %q", left)
		}
		got, err := c.Sweep(t.Context(), map[string]participant.Resource{"s": store.Process()}, 0)
		if err != nil || got.RolledBack != 1 || len(got.Aborted) != 0 {
			t.Errorf("swept: %+v, %v", got, err)
		}
		want(t, "visible", store.Records(), []string{"done"})
		want(t, "prepared", store.Prepared(), nil)
	})
}
