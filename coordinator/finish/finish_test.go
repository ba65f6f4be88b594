package finish

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/unisink/unisink/coordinator/alloctest"
	"github.com/unisink/unisink/coordinator/ledger"
)

// log is a replicated log of one copy over the real machine.
type log struct {
	mu     sync.Mutex
	m      *ledger.Machine
	down   bool
	slow   time.Duration // each proposal takes so long
	counts map[string]int
}

func newLog(t *testing.T) *log {
	t.Helper()
	l := &log{m: ledger.New(), counts: map[string]int{}}
	l.apply(t, ledger.Init{Namespace: "test", Incarnation: 1})
	return l
}

func (l *log) apply(t *testing.T, b ledger.Body) ledger.Result {
	t.Helper()
	r, err := l.Propose(t.Context(), ledger.Command{Body: b})
	if err != nil || !r.OK() {
		t.Fatalf("%T: %s %v", b, r.Text, err)
	}
	return r
}

func (l *log) Propose(_ context.Context, c ledger.Command) (ledger.Result, error) {
	time.Sleep(l.slow) // in a bubble; not at all elsewhere
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return ledger.Result{}, errors.New("outcome unknown")
	}
	switch c.Body.(type) {
	case ledger.PresumeAbort:
		l.counts["abort"]++
	case ledger.Retire:
		l.counts["retire"]++
	}
	if c.Request == "" {
		c.Request = uuid.NewString()
	}
	c.At = time.Now().UnixMilli()
	r, _ := l.m.Apply(c)
	return r, nil
}

// fail lets proposals fail from now on, or not.
func (l *log) fail(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

func (l *log) View(read func(*ledger.Machine)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	read(l.m)
}

func (l *log) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[what]
}

func (l *log) outcome(id ledger.TxnID) (o ledger.Outcome) {
	l.View(func(m *ledger.Machine) {
		if x, ok := m.Txn(id); ok {
			o = x.Outcome
		}
	})
	return o
}

// run runs a finisher until the test's end.
func run(t *testing.T, c Config) *Finisher {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	f := New(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if f.Ages() != (Ages{}) {
			t.Error("a node that does not lead reports what is in doubt")
		}
	})
	return f
}

func newID(t *testing.T) ledger.TxnID {
	t.Helper()
	// The bubble's clock, which uuid.NewV7 reads too, stands in the year 2000.
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return ledger.TxnID(id.String())
}

func TestAnAnnouncedTransactionIsAbortedAtItsDeadlineAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		id := newID(t)
		l.apply(t, ledger.Announce{Txn: id, Branches: []ledger.HandBranch{{Resource: "a"}}, Deadline: time.Now().Add(5 * time.Second).UnixMilli()})
		f := run(t, Config{Log: l})
		time.Sleep(4500 * time.Millisecond)
		if o := l.outcome(id); o != ledger.Pending {
			t.Fatalf("before its deadline: %d", o)
		}
		if a := f.Ages(); a.Announced != 1 {
			t.Fatalf("ages: %+v", a)
		}
		time.Sleep(2 * time.Second)
		if o := l.outcome(id); o != ledger.Aborted {
			t.Fatalf("after its deadline: %d", o)
		}
		time.Sleep(5 * time.Second)
		if n := l.count("abort"); n != 1 {
			t.Fatalf("aborted %d times", n)
		}
	})
}

func TestADecidedTransactionIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		id := newID(t)
		branch := []ledger.HandBranch{{Resource: "a", Handle: ledger.Handle{Kind: "k", Version: 1, Identity: "i", Alias: "a", Name: "n"}}}
		l.apply(t, ledger.Announce{Txn: id, Branches: []ledger.HandBranch{{Resource: "a"}}, Deadline: time.Now().Add(time.Second).UnixMilli()})
		l.apply(t, ledger.Commit{Txn: id, Branches: branch})
		f := run(t, Config{Log: l})
		time.Sleep(10 * time.Second)
		if n := l.count("abort"); n != 0 {
			t.Fatalf("tried to abort it %d times", n)
		}
		if a := f.Ages(); a.Unfinished != 1 || a.Oldest < 9*time.Second {
			t.Fatalf("an unproven branch is not counted by its age: %+v", a)
		}
	})
}

func TestALogThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		id := newID(t)
		l.apply(t, ledger.Announce{Txn: id, Branches: []ledger.HandBranch{{Resource: "a"}}, Deadline: time.Now().Add(time.Second).UnixMilli()})
		l.fail(true)
		run(t, Config{Log: l})
		time.Sleep(5 * time.Second)
		l.fail(false)
		time.Sleep(2 * time.Second)
		if o := l.outcome(id); o != ledger.Aborted {
			t.Fatalf("after the log came back: %d", o)
		}
	})
}

func TestHistoryIsRetiredInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		run(t, Config{Log: l, RetireEvery: 10 * time.Second})
		time.Sleep(35 * time.Second)
		if n := l.count("retire"); n != 3 {
			t.Fatalf("retired %d times in 35 s", n)
		}
	})
}

// Clients that die together leave deadlines that pass together; a log with slow disks must not
// make the last of them wait for all the others.
func TestManyDeadlinesAtOnceAreAbortedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		deadline := time.Now().Add(time.Second)
		ids := make([]ledger.TxnID, 1000)
		for i := range ids {
			ids[i] = newID(t)
			l.apply(t, ledger.Announce{Txn: ids[i], Branches: []ledger.HandBranch{{Resource: "a"}}, Deadline: deadline.UnixMilli()})
		}
		l.slow = 20 * time.Millisecond
		run(t, Config{Log: l})
		time.Sleep(3 * time.Second)
		for _, id := range ids {
			if o := l.outcome(id); o != ledger.Aborted {
				t.Fatalf("%s is %s two seconds after its deadline", id, o)
			}
		}
	})
}

// A look each second must not copy and sort what waits, which may be hundreds of thousands of transactions.
func TestALookCostsTheSameHoweverMuchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := func(n int) uint64 {
			l := newLog(t)
			far := time.Now().Add(time.Hour).UnixMilli()
			for range n {
				l.apply(t, ledger.Announce{Txn: newID(t), Branches: []ledger.HandBranch{{Resource: "a"}}, Deadline: far})
				id := newID(t)
				l.apply(t, ledger.Commit{Txn: id, Branches: []ledger.HandBranch{{Resource: "a", Handle: ledger.Handle{Kind: "k", Version: 1, Identity: "i", Name: string(id)}}}})
			}
			f := New(Config{Log: l, Logger: slog.New(slog.DiscardHandler)})
			least := alloctest.Least(func() {
				if _, err := f.look(t.Context(), time.Now()); err != nil {
					t.Fatal(err)
				}
			})
			if a := f.Ages(); a.Unfinished != n || a.Announced != n {
				t.Fatalf("ages with %d of each: %+v", n, a)
			}
			return least
		}
		if few, many := cost(50), cost(5000); many > 2*few+alloctest.Slack {
			t.Errorf("a look takes %d bytes with 100 transactions in doubt, %d with 10,000", few, many)
		}
	})
}

// More deadlines pass together than one look takes: the rest does not wait for the next look.
func TestMoreDeadlinesThanOneLookTakesAreAbortedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		deadline := time.Now().Add(time.Second)
		var last ledger.TxnID
		for range atOneLook + 500 {
			last = newID(t)
			l.apply(t, ledger.Announce{Txn: last, Branches: []ledger.HandBranch{{Resource: "a"}}, Deadline: deadline.UnixMilli()})
		}
		run(t, Config{Log: l, Tick: time.Minute})
		time.Sleep(time.Minute + time.Second)
		if o := l.outcome(last); o != ledger.Aborted {
			t.Fatalf("the last of %d is %s after one look", atOneLook+500, o)
		}
		if n := l.count("abort"); n != atOneLook+500 {
			t.Fatalf("%d aborts", n)
		}
	})
}
