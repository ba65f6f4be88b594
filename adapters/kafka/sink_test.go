package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

var (
	_ processor.Sink   = (*Sink)(nil)
	_ processor.Writer = (*Branch)(nil)
)

func TestBranchIsSeenAfterItsCommitAndNotBefore(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	var handles []participant.Handle
	for n := uint64(1); n <= 5; n++ {
		h := r.prepared(s, branchName(1, n), 100)
		r.sees(int(n-1) * 100)
		for range 3 { // a repeat changes nothing
			r.commit(s, h, participant.Committed)
		}
		r.sees(int(n) * 100)
		handles = append(handles, h)
	}
	for i, h := range handles {
		if st, err := s.Inspect(t.Context(), h); err != nil || (st != participant.StateCommitted && i > 1) {
			t.Errorf("inspect %d: %d, %v", i, st, err)
		}
	}
	h := r.prepared(s, branchName(1, 6), 100)
	if st, err := s.Inspect(t.Context(), h); err != nil || st != participant.Undecided {
		t.Errorf("inspect a prepared branch: %d, %v; want undecided", st, err)
	}
	for range 3 {
		r.rollback(s, h, participant.RolledBack)
	}
	if st, err := s.Inspect(t.Context(), h); err != nil || st != participant.StateRolledBack {
		t.Errorf("inspect a branch rolled back: %d, %v", st, err)
	}
	r.sees(500)
}

func TestBranchesOverlapUpToMaxPending(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	one, two := r.prepared(s, branchName(1, 1), 10), r.prepared(s, branchName(1, 2), 10)
	three := r.begin(s, branchName(1, 3), 10)
	r.commit(s, one, participant.Committed)
	r.commit(s, two, participant.Committed)
	v, err := three.Prepare(t.Context())
	if err != nil || v.Kind != participant.Yes {
		t.Fatalf("prepare the third: %v, %v", v, err)
	}
	r.commit(s, v.Handle, participant.Committed)
	r.sees(30)
}

func TestHandleIsFinishedByAnotherProcessAfterTheWriterVanished(t *testing.T) {
	r := newRig(t)
	gone := r.opened(1) // never closed before the handle is finished
	yes, no := r.prepared(gone, branchName(1, 1), 10), r.prepared(gone, branchName(1, 2), 10)
	other := r.sink(func(c *SinkConfig) { c.Topic = "" }) // a resolver: not open for anything
	r.commit(other, yes, participant.Committed)
	r.rollback(other, no, participant.RolledBack)
	r.sees(10)
	r.rollback(other, yes, participant.Committed)
	r.commit(other, no, participant.RolledBack)
	r.sees(10)
}

func TestCloseLeavesWhatIsPreparedAndDropsTheRest(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	h := r.prepared(s, branchName(1, 1), 10)
	r.begin(s, branchName(1, 2), 10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other := r.sink()
	listed, err := other.List(t.Context(), opening(1).Namespace)
	if err != nil || len(listed) != 1 || !listed[0].Handle.Same(h) {
		t.Errorf("after Close the cluster holds %v, %v; want the prepared branch alone", listed, err)
	}
	r.commit(other, h, participant.Committed)
	r.sees(10)
}

func TestE1_NothingWrittenIsReadOnlyAndNothingIsSent(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	first, err := s.Begin(t.Context(), branchName(1, 1)) // completes the fence
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.InitProducerID, kmsg.EndTxn, kmsg.TxnOffsetCommit} {
		r.b.Cluster().ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			sent.Add(1)
			return nil, nil, false
		})
	}
	for n := uint64(2); n <= 10; n++ {
		b, err := s.Begin(t.Context(), branchName(1, n))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			v, err := b.Prepare(t.Context())
			if err != nil || v.Kind != participant.ReadOnly {
				t.Fatalf("prepare: %v, %v; want read-only", v, err)
			}
		}
	}
	if sent.Load() != 0 {
		t.Errorf("%d requests were sent for empty branches", sent.Load())
	}
	h := r.prepared(s, branchName(1, 11), 1) // and the slots still work
	r.commit(s, h, participant.Committed)
	r.sees(1)
}

func TestE3_FailedProduceIsNoWithTheRecordsPlace(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	b := r.begin(s, branchName(1, 1), 100)
	r.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "totals", Err: kerr.MessageTooLarge, Count: 1})
	err := b.Write(t.Context(), []stream.Record{{Value: []byte("x"), Topic: "orders", Partition: 2, Offset: 77}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a no stays no
		v, err := b.Prepare(t.Context())
		if err != nil || v.Kind != participant.No {
			t.Fatalf("prepare: %v, %v; want no", v, err)
		}
		if !errors.Is(v.Reason, kerr.MessageTooLarge) || !strings.Contains(v.Reason.Error(), "record ") || !strings.Contains(v.Reason.Error(), "totals/") {
			t.Errorf("the reason does not say which record failed where: %v", v.Reason)
		}
	}
	if err := b.Discard(t.Context()); err != nil {
		t.Errorf("discard after no: %v", err)
	}
	h := r.prepared(s, branchName(1, 2), 10) // the slot is good again
	r.commit(s, h, participant.Committed)
	r.sees(10)
}

func TestE3_RecordTooLargeNamesWhereItWasRead(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	b := r.begin(s, branchName(1, 1), 1)
	if err := b.Write(t.Context(), []stream.Record{{Value: make([]byte, 3<<20), Topic: "orders", Partition: 2, Offset: 77}}); err != nil {
		t.Fatal(err)
	}
	v, err := b.Prepare(t.Context())
	if err != nil || v.Kind != participant.No || !strings.Contains(v.Reason.Error(), "record 1 of the branch, read from orders/2 at 77,") {
		t.Errorf("prepare: %v, %v", v, err)
	}
	r.sees(0)
}

func TestI1_SlotIsNotReusedBeforeItsBranchIsResolved(t *testing.T) {
	outcome := func(t *testing.T, reuse bool) int {
		r := newRig(t)
		s := r.opened(1)
		s.reuseUnresolved = reuse
		var handles []participant.Handle
		for n := uint64(1); n <= 3; n++ {
			handles = append(handles, r.prepared(s, branchName(1, n), 10))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if b, err := s.Begin(ctx, branchName(1, 4)); err == nil {
			if err := b.(*Branch).Write(t.Context(), numbered(1)); err != nil {
				t.Fatal(err)
			}
		} else if reuse || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("begin: %v", err)
		}
		for _, h := range handles {
			if _, err := s.Commit(t.Context(), h); err != nil {
				t.Log(err)
			}
		}
		return len(r.visible())
	}
	t.Run("I1/a fourth branch waits", func(t *testing.T) {
		if got := outcome(t, false); got != 30 {
			t.Errorf("readers see %d of 30 committed records", got)
		}
	})
	t.Run("I1/without the guard a decided branch is lost", func(t *testing.T) {
		if got := outcome(t, true); got == 30 {
			t.Error("the guard guards nothing: the slot was reused and no record was lost")
		}
	})
}

func TestBeginGoesOnWhenAnotherProcessFinishedTheBranch(t *testing.T) {
	r := newRig(t)
	s, other := r.opened(1), r.sink()
	var handles []participant.Handle
	for n := uint64(1); n <= 3; n++ {
		handles = append(handles, r.prepared(s, branchName(1, n), 10))
	}
	for _, h := range handles {
		r.commit(other, h, participant.Committed)
	}
	h := r.prepared(s, branchName(1, 4), 10) // waits, asks, goes on
	r.commit(s, h, participant.Committed)
	r.sees(40)
}

func TestI3_HandlePinsTheVersionClass(t *testing.T) {
	for name, opts := range map[string][]kfake.Opt{
		"transaction version 2": nil,
		"transaction version 1": {kfake.MaxVersions(kversion.V3_8_0())},
	} {
		t.Run("I3/"+name, func(t *testing.T) {
			r := newRig(t, opts...)
			want := int16(classNew)
			if opts != nil {
				want = classOld
			}
			var wrong atomic.Int64
			r.b.Cluster().ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
				r.b.Cluster().KeepControl()
				if req.GetVersion() != want {
					wrong.Add(1)
				}
				return nil, nil, false
			})
			s, other := r.opened(1), r.sink()
			for n := uint64(1); n <= 6; n++ {
				h := r.prepared(s, branchName(1, n), 10)
				b, err := decode(h)
				if err != nil || int16(b.Class) != want {
					t.Fatalf("handle of class %d, %v; want %d", b.Class, err, want)
				}
				r.commit(other, h, participant.Committed)
				r.commit(s, h, participant.Committed)
			}
			r.sees(60)
			if wrong.Load() != 0 {
				t.Errorf("%d EndTxn requests of another version than %d", wrong.Load(), want)
			}
		})
	}
}

func TestL9_NamesAreParsedAndNotMatchedByPrefix(t *testing.T) {
	r := newRig(t)
	mine := r.opened(1)
	h := r.prepared(mine, branchName(1, 1), 5)
	for _, change := range []func(*participant.Opening){
		func(o *participant.Opening) { o.Namespace.Name = "test-eu" },
		func(o *participant.Opening) { o.Namespace.Incarnation = 2 },
		func(o *participant.Opening) { o.Scope = "orders-eu/0" },
		func(o *participant.Opening) { o.Scope = "orders/01" },
	} {
		o := opening(1)
		change(&o)
		s := r.sink()
		if err := s.Open(t.Context(), o); err != nil {
			if o.Scope != "orders/01" {
				t.Fatal(err)
			}
			continue
		}
		name, err := scoped(o)
		if err != nil {
			t.Fatal(err)
		}
		name.N = 1
		r.prepared(s, name, 5)
	}
	listed, err := mine.List(t.Context(), opening(1).Namespace)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range listed {
		names = append(names, l.Name.String())
	}
	slices.Sort(names)
	want := []string{"test.orders-eu.0.all.totals.1.0", "test.orders.0.all.totals.1.0"}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("listed (-want +got):\n%s", d)
	}
	// A newer generation of "orders" leaves "orders-eu" alone.
	next := r.opened(2)
	r.commit(next, h, participant.Committed)
	b := r.begin(next, branchName(2, 1), 1)
	if err := b.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := r.a.ListTransactions(t.Context(), opening(1).Namespace, "Ongoing"); err != nil || len(left) != 1 || left[0].Name.Pipeline != "orders-eu" {
		t.Errorf("still open: %v, %v; want that of orders-eu", left, err)
	}
}

func TestO1_FencedAnswerAfterARealCommitIsProvenByTheWitness(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	h := r.prepared(s, branchName(1, 1), 10)
	r.commit(s, h, participant.Committed)
	for _, answer := range []*kerr.Error{kerr.ProducerFenced, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState, kerr.TransactionalIDNotFound} {
		r.answer(1, answer)
		r.commit(s, h, participant.Committed)
	}
	// Also when the coordinator has forgotten the outcome for good.
	b, err := decode(h)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := s.client(classNew)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := initialise(t.Context(), cl, b.TxnID); err != nil {
		t.Fatal(err)
	}
	r.commit(s, h, participant.Committed)
	r.rollback(s, h, participant.Committed)
	// And when the log has lost the marker too: the witness is all that is left.
	for i := range b.Topics {
		for j := range b.Topics[i].Parts {
			b.Topics[i].Parts[j] = b.Topics[i].Parts[j][:1]
		}
	}
	blind, err := b.encode("totals")
	if err != nil {
		t.Fatal(err)
	}
	r.commit(s, blind, participant.Committed)
	r.sees(10)
}

func TestO1_FencedAnswerAfterARealAbortIsNotTakenForACommit(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	h := r.prepared(s, branchName(1, 1), 10)
	b, err := decode(h)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := s.client(classNew)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := initialise(t.Context(), cl, b.TxnID); err != nil { // somebody else with the same id
		t.Fatal(err)
	}
	r.commit(s, h, participant.RolledBack) // proven by the marker in the log
	r.sees(0)
	// Without any trace the branch stays in doubt.
	for i := range b.Topics {
		for j := range b.Topics[i].Parts {
			b.Topics[i].Parts[j] = b.Topics[i].Parts[j][:1]
		}
	}
	blind, err := b.encode("totals")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := s.Commit(t.Context(), blind); !errors.Is(err, participant.ErrUndeterminable) || !strings.Contains(err.Error(), "in doubt") {
		t.Errorf("commit without a trace: %v, %v; want in doubt, for good", p, err)
	}
	// A log that no broker knows of may be there again.
	b.Topics = append(b.Topics, span{Topic: "elsewhere", Parts: [][]int64{{0, 0}}})
	away, err := b.encode("totals")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := s.Commit(t.Context(), away); err == nil || errors.Is(err, participant.ErrUndeterminable) {
		t.Errorf("commit with a log that is away: %v, %v; want it asked again", p, err)
	}
	if st, err := s.Inspect(t.Context(), blind); err != nil || st != participant.Unknown {
		t.Errorf("inspect without a trace: %d, %v; want unknown", st, err)
	}
}

func TestO5_LostAnswerIsAskedAgainWithTheSameHandle(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	h := r.prepared(s, branchName(1, 1), 10)
	// The commit happens; its answer is lost, and the connection with it.
	r.b.Cluster().ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("connection lost"), true
	})
	r.commit(s, h, participant.Committed)
	r.commit(s, h, participant.Committed)
	r.sees(10)
}

func TestConcurrentTransactionsIsAskedUntilDefinite(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	h := r.prepared(s, branchName(1, 1), 10)
	hits := r.answer(7, kerr.ConcurrentTransactions)
	r.commit(s, h, participant.Committed)
	if hits.Load() != 7 {
		t.Errorf("asked %d times before the answer was definite", hits.Load())
	}
	r.sees(10)
}

func TestCoordinatorsMoveWhileBranchesAreFinished(t *testing.T) {
	r := newRig(t, kfake.NumBrokers(3))
	s := r.opened(1)
	for n := uint64(1); n <= 6; n++ {
		h := r.prepared(s, branchName(1, n), 10)
		r.b.Cluster().RehashCoordinators()
		r.b.Cluster().ShufflePartitionLeaders()
		r.commit(s, h, participant.Committed)
	}
	r.sees(60)
}

func TestT2_TimeoutAboveTheBrokersNamesBothSettings(t *testing.T) {
	r := newRig(t)
	s := r.sink(func(c *SinkConfig) { c.TransactionTimeout = time.Hour })
	err := s.Open(t.Context(), opening(1))
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "transaction timeout is 1h0m0s") || !strings.Contains(err.Error(), "15m0s (transaction.max.timeout.ms)") {
		t.Errorf("open: %v", err)
	}
}

// A Begin whose answer was lost is called again. The branch that nobody got must not keep a slot.
func TestABeginThatIsRepeatedKeepsNoSlot(t *testing.T) {
	r := newRig(t)
	s := r.sink()
	if err := s.Open(t.Context(), opening(1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 6 { // more often than there are slots
		if _, err := s.Begin(ctx, branchName(1, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever has a branch's turn when its sink is closed may take longer to leave than Close wants to wait: no
// client is open when it returns all the same.
func TestCloseLeavesNoClientThatIsStillInUse(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	b := r.begin(s, r.name(1, 1), 3)
	_, leave, err := b.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as after dropWait
	go func() {
		defer close(closed)
		s.current().end(ctx)
	}()
	select {
	case <-closed:
		t.Fatal("it ended while the branch was in use")
	case <-time.After(50 * time.Millisecond):
	}
	leave()
	<-closed
	b.t.mu.Lock()
	defer b.t.mu.Unlock()
	if b.slot.client != nil {
		t.Error("its client is open")
	}
}
