package participant_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

// handBranch is a branch of a transaction run by hand, begun and written to.
func handBranch(t *testing.T, c *participant.Client, store *participanttest.Store, txn, name string, records ...string) participant.TxnBranch {
	t.Helper()
	ns, err := c.Namespace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := store.Process()
	b, err := m.Begin(t.Context(), participant.BranchName{Namespace: ns, Txn: txn, Resource: name})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := b.(*participanttest.MemoryBranch).Write(r); err != nil {
			t.Fatal(err)
		}
	}
	return participant.TxnBranch{Name: name, Resource: m, Branch: b}
}

func newTxn(t *testing.T) string {
	t.Helper()
	id, err := participant.NewTxnID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestATransactionByHandCommitsEverywhereOrNowhere(t *testing.T) {
	c := newClient(t)
	t.Run("committed", func(t *testing.T) {
		orders, stock, txn := participanttest.NewStore("orders"), participanttest.NewStore("stock"), newTxn(t)
		out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{
			handBranch(t, c, orders, txn, "orders", "o1"), handBranch(t, c, stock, txn, "stock", "s1"), handBranch(t, c, stock, txn, "empty"),
		})
		if err != nil || out != participant.OutcomeCommitted {
			t.Fatalf("outcome %s, %v", out, err)
		}
		want(t, "orders", orders.Records(), []string{"o1"})
		want(t, "stock", stock.Records(), []string{"s1"})
		if out, err := c.Outcome(t.Context(), txn); err != nil || out != participant.OutcomeCommitted {
			t.Errorf("asked again: %s, %v", out, err)
		}
		if out, err := c.Abort(t.Context(), txn, "too late"); err != nil || out != participant.OutcomeCommitted {
			t.Errorf("abort after the decision: %s, %v", out, err)
		}
	})
	t.Run("one branch says no", func(t *testing.T) {
		orders, stock, txn := participanttest.NewStore("orders"), participanttest.NewStore("stock"), newTxn(t)
		bad := handBranch(t, c, stock, txn, "stock", "s1")
		bad.Resource.(*participanttest.Memory).SetHook(func(_ context.Context, call participanttest.Call, _ participanttest.When, _ string) error {
			if call == participanttest.CallPrepare {
				return participant.ErrMisconfigured
			}
			return nil
		})
		out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{handBranch(t, c, orders, txn, "orders", "o1"), bad})
		if out != participant.OutcomeAborted || !errors.Is(err, participant.ErrMisconfigured) {
			t.Fatalf("outcome %s, %v", out, err)
		}
		want(t, "orders", orders.Records(), nil)
		want(t, "left", append(orders.Prepared(), stock.Prepared()...), nil)
	})
	t.Run("O5/prepared once more after a lost answer", func(t *testing.T) {
		orders, txn := participanttest.NewStore("orders"), newTxn(t)
		b := handBranch(t, c, orders, txn, "orders", "o1")
		b.Resource.(*participanttest.Memory).SetHook(failOnceAfter(participanttest.CallPrepare, participanttest.CallCommit))
		if out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{b}); err != nil || out != participant.OutcomeCommitted {
			t.Fatalf("outcome %s, %v", out, err)
		}
		want(t, "orders", orders.Records(), []string{"o1"})
	})
	t.Run("aborted by the question, before the commit", func(t *testing.T) {
		orders, txn := participanttest.NewStore("orders"), newTxn(t)
		b := handBranch(t, c, orders, txn, "orders", "o1")
		if out, err := c.Outcome(t.Context(), txn); err != nil || out != participant.OutcomeAborted {
			t.Fatalf("an unknown transaction: %s, %v", out, err)
		}
		if out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{b}); err != nil || out != participant.OutcomeAborted {
			t.Fatalf("outcome %s, %v", out, err)
		}
		want(t, "orders", orders.Records(), nil)
		want(t, "left", orders.Prepared(), nil)
	})
	t.Run("announced, then committed", func(t *testing.T) {
		orders, txn := participanttest.NewStore("orders"), newTxn(t)
		deadline, err := c.Begin(t.Context(), txn, []string{"orders"}, time.Minute)
		if left := time.Until(deadline); err != nil || left < 30*time.Second || left > 2*time.Minute {
			t.Fatalf("deadline in %s, %v", left, err)
		}
		if out, err := c.Outcome(t.Context(), txn); err != nil || out != participant.OutcomePending {
			t.Fatalf("announced: %s, %v", out, err)
		}
		if out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{handBranch(t, c, orders, txn, "orders", "o1")}); err != nil || out != participant.OutcomeCommitted {
			t.Fatalf("outcome %s, %v", out, err)
		}
	})
	t.Run("a resource that drops what was decided is heuristic", func(t *testing.T) {
		orders, txn := participanttest.NewStore("orders"), newTxn(t)
		b := handBranch(t, c, orders, txn, "orders", "o1")
		thief := orders.Process()
		b.Resource.(*participanttest.Memory).SetHook(func(ctx context.Context, call participanttest.Call, when participanttest.When, name string) error {
			if call != participanttest.CallCommit || when != participanttest.Before {
				return nil
			}
			_, err := thief.Rollback(ctx, participant.Handle{Kind: participanttest.Kind, Version: 1, Identity: "orders", Name: name})
			return err
		})
		out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{b})
		if out != participant.OutcomeCommitted || !errors.Is(err, participant.ErrHeuristic) {
			t.Fatalf("outcome %s, %v", out, err)
		}
	})
}

func TestATimeOutIsUnknownNeverAborted(t *testing.T) {
	addr, stop, err := startCoordinator()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var line cable
	c, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{addr}, Patience: time.Second, Dial: line.dial})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	store, txn := participanttest.NewStore("s"), newTxn(t)
	b := handBranch(t, c, store, txn, "s", "r")
	b.Resource.(*participanttest.Memory).SetHook(func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
		if call == participanttest.CallPrepare && when == participanttest.After {
			line.cut()
		}
		return nil
	})
	out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{b})
	if out == participant.OutcomeAborted || !errors.Is(err, participant.ErrOutcomeUnknown) || !errors.Is(err, participant.ErrUnreachable) {
		t.Fatalf("outcome %s, %v; want unknown", out, err)
	}
	if !strings.Contains(err.Error(), addr) {
		t.Errorf("%q does not say who was asked", err)
	}
	if len(store.Prepared()) != 1 {
		t.Error("a branch was rolled back without a decision")
	}
	b.Resource.(*participanttest.Memory).SetHook(nil)
	line.heal()
	if out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{b}); err != nil || out != participant.OutcomeCommitted {
		t.Fatalf("run again: %s, %v", out, err)
	}
	want(t, "s", store.Records(), []string{"r"})
}

// cable is a network that can be line.
type cable struct {
	mu    sync.Mutex // guards the rest
	down  bool
	conns []net.Conn
}

func (w *cable) dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, errors.New("no route")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

func (w *cable) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, c := range w.conns {
		_ = c.Close() // it may be closed already
	}
	w.conns = nil
}

func (w *cable) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

func TestEveryMistakeInAConfigurationIsReportedAtOnce(t *testing.T) {
	_, err := participant.NewMember(participant.MemberConfig{
		Coordinators: []string{"nohost"}, Pipeline: "a.b", Member: "", Resources: map[string]participant.Resource{"-x": nil},
		Inputs: map[string]participant.Description{"-x": {}},
	}, nil)
	if err == nil {
		t.Fatal("a hopeless configuration was accepted")
	}
	for _, part := range []string{"nohost", `"a.b"`, "member name is empty", `"-x"`, "is nil", "two names", "task is nil"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
	if _, err := participant.NewClient(participant.ClientConfig{}); err == nil {
		t.Error("a client without addresses was accepted")
	}
}

// failOnceAfter loses the first answer of each call named.
func failOnceAfter(calls ...participanttest.Call) participanttest.Hook {
	seen := map[participanttest.Call]bool{}
	return serial(func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
		for _, c := range calls {
			if c == call && when == participanttest.After && !seen[c] {
				seen[c] = true
				return errors.New("answer lost")
			}
		}
		return nil
	})
}
