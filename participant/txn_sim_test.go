package participant_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Nobody should hold locks in a resource for a transaction that can't be decided.
func TestP10_NothingIsPreparedThatCouldNotBeCommitted(t *testing.T) {
	bubble(t, nothingIsPrepared)
}

func nothingIsPrepared(t *testing.T) {
	c := coordinatortest.Start(t, 1).Client()
	time.Sleep(10 * time.Second) // the floor rises
	ahead := idAt(t, time.Now().Add(5*time.Minute))
	old := idAt(t, time.Now().Add(-24*time.Hour))
	for name, x := range map[string]struct {
		txn, says string
		want      error
	}{
		"no id":                    {"42", `"42" is no id of a transaction run by hand; NewTxnID makes one`, participant.ErrRefused},
		"an id of another version": {"5c8a1f0e-8f0a-4c1e-9d0e-0123456789ab", "is no id of a transaction run by hand", participant.ErrRefused},
		"in capitals":              {strings.ToUpper(newTxn(t)), "is no id of a transaction run by hand", participant.ErrRefused},
		"ahead of its time":        {ahead, "ahead of the coordinator: check the client's clock", participant.ErrRefused},
		"of the day before":        {old, "is older than what the ledger remembers", participant.ErrTooOld},
	} {
		store := participanttest.NewStore("s")
		b := handBranch(t, c, store, x.txn, "s", "r")
		out, err := c.RunTxn(t.Context(), x.txn, []participant.TxnBranch{b})
		if !errors.Is(err, x.want) || out.String() != "unknown" || !strings.Contains(err.Error(), x.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: outcome %s, %v", name, out, err)
		}
		want(t, name+": what happened in the resource", store.Trail(), nil)
	}
	{ // two branches of one resource
		store, txn := participanttest.NewStore("s"), newTxn(t)
		b := handBranch(t, c, store, txn, "s", "r")
		if _, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{b, b}); !errors.Is(err, participant.ErrRefused) {
			t.Error(err)
		}
		want(t, "two branches: what happened in the resource", store.Trail(), nil)
	}
	{ // nobody answers
		store, txn := participanttest.NewStore("s"), newTxn(t)
		b := handBranch(t, c, store, txn, "s", "r")
		lonely, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{"127.0.0.1:1"}, Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("refused") }, Patience: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lonely.Close() }()
		if _, err := lonely.RunTxn(t.Context(), txn, []participant.TxnBranch{b}); !errors.Is(err, participant.ErrOutcomeUnknown) || !errors.Is(err, participant.ErrUnreachable) {
			t.Error(err)
		}
		want(t, "nobody answers: what happened in the resource", store.Trail(), nil)
	}
}

// idAt is the id that a client draws whose clock shows that time.
func idAt(t *testing.T, at time.Time) string {
	t.Helper()
	id := uuid.MustParse(newTxn(t))
	ms := uint64(at.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	return id.String()
}

// A process that asks about a thousand transactions that nobody knows, each question of which
// writes, is slowed down, and no answer of others with it. The SDK waits for its turn.
func TestQuestionsAboutUnknownTransactionsAreLimited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := coordinatortest.Start(t, 3)
		c := cluster.Client()
		known := newTxn(t)
		if out, err := c.Commit(t.Context(), known, nil); err != nil || out != participant.OutcomeCommitted {
			t.Fatalf("outcome %s, %v", out, err)
		}
		begun := time.Now()
		ask := func(raw bool, id string) error {
			if !raw {
				_, err := c.Outcome(t.Context(), id)
				return err
			}
			_, err := c.Transactions().Outcome(t.Context(), &unisinkv1.OutcomeRequest{Meta: c.NewMeta(), Txn: id})
			return err
		}
		refused := 0
		for range 150 {
			err := ask(true, newTxn(t))
			if wait, told := grpcerr.RetryAfter(err); told {
				refused++
				if wait <= 0 || wait > time.Minute || status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "ask again in") {
					t.Fatalf("told to wait %s: %v", wait, err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); refused < 40 || refused > 50 || took > time.Second {
			t.Fatalf("%d of 150 questions were refused, in %s; the first hundred are free", refused, took)
		}
		for range 500 { // what is known costs nothing, and is answered
			if out, err := c.Outcome(t.Context(), known); err != nil || out != participant.OutcomeCommitted {
				t.Fatalf("a known one: %s, %v", out, err)
			}
		}
		if _, err := c.Commit(t.Context(), newTxn(t), nil); err != nil {
			t.Fatalf("a commit beside the questions: %v", err)
		}
		begun = time.Now()
		var group errgroup.Group
		for range 100 {
			id := newTxn(t)
			group.Go(func() error { return ask(false, id) })
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 9*time.Second || took > 20*time.Second {
			t.Errorf("a hundred questions at ten a second took %s", took)
		}
		list, err := c.Transactions().ListTransactions(t.Context(), &unisinkv1.ListTransactionsRequest{Limit: 1000})
		if n := len(list.GetTransactions()); err != nil || n != 2+100+100+50-refused {
			t.Errorf("%d records, %v; %d refused", n, err, refused)
		}
		limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for range 3 {
			err = errors.Join(err, func() error { _, err := c.Outcome(limited, newTxn(t)); return err }())
		}
		if !errors.Is(err, participant.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "ask again in") {
			t.Errorf("whose time is over before its turn: %v", err)
		}
	})
}

// A clock that was ahead and is set right: the ids drawn after it are usable at once.
func TestP10_AnIDCarriesTheTimeOfNowAndNotOfAnEarlierOne(t *testing.T) {
	real := newTxn(t) // a bubble's clock stands decades before
	bubble(t, func(t *testing.T) {
		id := uuid.MustParse(newTxn(t))
		sec, nsec := id.Time().UnixTime()
		if drawn := time.Unix(sec, nsec); id.Version() != 7 || time.Since(drawn) > time.Second || time.Until(drawn) > 0 {
			t.Errorf("%s is of %s, now it is %s; before, %s was drawn", id, drawn, time.Now(), real)
		}
	})
}

// Row S5. The caller's patience ends while a resource answers what only a person can mend: what it answered is said.
func TestS5_WhatIsUnfinishedByHandSaysWhatTheResourceAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 1).Client()
		store, txn := participanttest.NewStore("s"), newTxn(t)
		b := handBranch(t, c, store, txn, "s", "r")
		s := &spoilt{err: fmt.Errorf("the table is gone: %w", participant.ErrMisconfigured)}
		b.Resource.(*participanttest.Memory).SetHook(s.hook)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		out, err := c.RunTxn(ctx, txn, []participant.TxnBranch{b})
		if out != participant.OutcomeCommitted || !errors.Is(err, participant.ErrUnfinished) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s, %v", out, err)
		}
		if !strings.Contains(err.Error(), "the table is gone") {
			t.Errorf("it does not say why: %v", err)
		}
	})
}
