package participant_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/journal"
	"github.com/unisink/unisink/participant/participanttest"
)

// deskService is a service with four functions: it keeps its transactions while processes come and go.
type deskService struct {
	mu      sync.Mutex // guards the rest
	last    int
	lines   map[string][]string
	state   map[string]string // "", "reserved", "confirmed", "cancelled"
	visible []string
	calls   []string
	fail    func(call, id string) error
	lax     bool // a reservation after its cancellation succeeds, against the contract
}

func newDesk() *deskService {
	return &deskService{lines: map[string][]string{}, state: map[string]string{}}
}

func (c *deskService) Begin(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return fmt.Sprintf("t%d", c.last), nil
}

func (c *deskService) write(id, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[id] = append(c.lines[id], line)
}

func (c *deskService) PreCommit(ctx context.Context, id string) error {
	return c.do(ctx, "pre-commit", id, func() error {
		if c.state[id] != "" && c.state[id] != "reserved" && !c.lax {
			return fmt.Errorf("%s is %s: %w", id, c.state[id], participant.ErrLost)
		}
		c.state[id] = "reserved"
		return nil
	})
}

func (c *deskService) Commit(ctx context.Context, id string) error {
	return c.do(ctx, "commit", id, func() error {
		switch c.state[id] {
		case "reserved":
			c.visible = append(c.visible, c.lines[id]...)
			c.state[id] = "confirmed"
		case "confirmed":
		default:
			return fmt.Errorf("%s is %q: %w", id, c.state[id], participant.ErrLost)
		}
		return nil
	})
}

func (c *deskService) Abort(ctx context.Context, id string) error {
	return c.do(ctx, "abort", id, func() error {
		if c.state[id] == "confirmed" {
			return fmt.Errorf("%s is confirmed", id)
		}
		c.state[id] = "cancelled"
		return nil
	})
}

func (c *deskService) do(ctx context.Context, call, id string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	fail := c.fail
	c.mu.Unlock()
	if fail != nil {
		if err := fail(call, id); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call+" "+id)
	return f()
}

func (c *deskService) sees() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.visible)
}

// reserved are the transactions that hold something.
func (c *deskService) reserved() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for id, s := range c.state {
		if s == "reserved" {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func twoPhase(t testing.TB, c *deskService, path string, change ...func(*participant.TwoPhaseConfig[string])) *participant.TwoPhaseResource[string] {
	t.Helper()
	cfg := participant.TwoPhaseConfig[string]{Kind: "counter", Identity: "c1", Journal: journal.At(path)}
	for _, f := range change {
		f(&cfg)
	}
	r, err := participant.NewTwoPhase(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func deskLine(t testing.TB, c *deskService, b participant.Branch, line string) {
	t.Helper()
	id, err := participant.TransactionOf[string](context.Background(), b)
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	c.write(id, line)
}

func TestFourFunctionsConform(t *testing.T) {
	branches := 0 // as many as the kit takes
	if testing.Short() {
		branches = 200 // what is counted is memory; a hundred side by side have a check of their own
	}
	participanttest.Run(t, participanttest.Kit{Branches: branches, New: func(t testing.TB) participanttest.Target {
		c, path := newDesk(), filepath.Join(t.TempDir(), "journal")
		return participanttest.Target{
			Process: func(t testing.TB) participant.Resource { return twoPhase(t, c, path) },
			Write:   func(t testing.TB, b participant.Branch, record string) { deskLine(t, c, b, record) },
			Read:    func(testing.TB) []string { return c.sees() },
		}
	}})
}

func TestFourFunctionsSettingsAreRefusedAtOnce(t *testing.T) {
	_, err := participant.NewTwoPhase[string](nil, participant.TwoPhaseConfig[string]{HoldsFor: -1})
	if !errors.Is(err, participant.ErrMisconfigured) {
		t.Fatalf("%v", err)
	}
	t.Log(err)
}

// under is the branch of epoch (generation, n).
func under(generation, n uint64) participant.BranchName {
	return participant.BranchName{
		Namespace: participant.Namespace{Name: "kit", Incarnation: 1}, Pipeline: "p", Member: "m", Resource: "desk",
		Generation: generation, N: n,
	}
}

func openDesk(t testing.TB, r participant.Resource, generation uint64) {
	t.Helper()
	o := participant.Opening{Namespace: under(1, 1).Namespace, Scope: "p/0", Member: "m", Resource: "desk", Generation: generation, MaxPending: 2}
	if err := r.Open(t.Context(), o); err != nil {
		t.Fatalf("open generation %d: %v", generation, err)
	}
}

func beginDesk(t testing.TB, d *deskService, r participant.Resource, name participant.BranchName, lines ...string) participant.Branch {
	t.Helper()
	b, err := r.Begin(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		deskLine(t, d, b, l)
	}
	return b
}

func voteOf(t testing.TB, b participant.Branch) participant.Vote {
	t.Helper()
	v, err := b.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Rows L1, L3. A process is gone with a T that it has written under and not prepared, and with one that it
// has prepared and whose vote nobody heard: both are found and aborted by whoever takes its place.
func TestL1_WhatADeadProcessBeganIsFoundAndAborted(t *testing.T) {
	d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
	dead := twoPhase(t, d, path)
	openDesk(t, dead, 1)
	voteOf(t, beginDesk(t, d, dead, under(1, 1), "prepared"))
	beginDesk(t, d, dead, under(1, 2), "begun") // and nothing more is heard of it

	next := twoPhase(t, d, path)
	openDesk(t, next, 2)
	found, err := next.List(t.Context(), under(1, 1).Namespace)
	if err != nil || len(found) != 2 {
		t.Fatalf("%d found, %v; want both", len(found), err)
	}
	for _, l := range found {
		if p, err := next.Rollback(t.Context(), l.Handle); err != nil || p.Verdict != participant.RolledBack || !p.Asserted {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	if d.state["t1"] != "cancelled" || d.state["t2"] != "cancelled" {
		t.Fatalf("left in the service: %v", d.state)
	}
	if found, err := next.List(t.Context(), under(1, 1).Namespace); err != nil || len(found) != 0 {
		t.Fatalf("listed after the rollback: %v, %v", found, err)
	}
}

// Row P13. A process is taken for dead while it calls PreCommit: its T is aborted, and then the call gets
// through all the same, in a service that should not let it. It says no, and leaves nothing.
func TestP13_AReservationThatComesAfterItsRollbackIsCancelled(t *testing.T) {
	d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
	d.lax = true
	slow, sweeper := twoPhase(t, d, path), twoPhase(t, d, path)
	openDesk(t, slow, 1)
	b := beginDesk(t, d, slow, under(1, 1), "late")
	d.fail = func(call, _ string) error {
		if call != "pre-commit" {
			return nil
		}
		found, err := sweeper.List(t.Context(), under(1, 1).Namespace)
		if err != nil || len(found) != 1 {
			t.Errorf("list while it is being prepared: %v, %v", found, err)
			return nil
		}
		_, err = sweeper.Rollback(t.Context(), found[0].Handle)
		return err
	}
	v := voteOf(t, b)
	if v.Kind != participant.No || !errors.Is(v.Reason, participant.ErrLost) {
		t.Errorf("the vote is %d (%v), want no: lost", v.Kind, v.Reason)
	}
	if left := d.reserved(); len(left) > 0 {
		t.Errorf("%v stay reserved for ever", left)
	}
}

// Row O5. The answer to a commit is lost: it is asked again, and written once.
func TestO5_ACommitWhoseAnswerWasLostIsRepeated(t *testing.T) {
	d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
	r := twoPhase(t, d, path)
	openDesk(t, r, 1)
	h := voteOf(t, beginDesk(t, d, r, under(1, 1), "a")).Handle
	d.fail = func(call, id string) error {
		d.fail = nil
		if err := d.Commit(t.Context(), id); err != nil {
			t.Error(err)
		}
		return errors.New("connection reset")
	}
	if p, err := r.Commit(t.Context(), h); err == nil {
		t.Fatalf("a lost answer proves %+v", p)
	}
	if s, err := r.Inspect(t.Context(), h); err != nil || s != participant.Undecided {
		t.Fatalf("inspect: %d, %v", s, err)
	}
	p, err := twoPhase(t, d, path).Commit(t.Context(), h)
	if err != nil || p.Verdict != participant.Committed || !p.Asserted {
		t.Fatalf("%+v, %v", p, err)
	}
	if got := d.sees(); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("readers see %q", got)
	}
}

// Row O4. A service that has dropped what was decided says so; that is a proof, not a reason to ask for ever.
func TestO4_AServiceThatHasDroppedADecidedTransactionProvesIt(t *testing.T) {
	d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
	r := twoPhase(t, d, path)
	openDesk(t, r, 1)
	h := voteOf(t, beginDesk(t, d, r, under(1, 1), "a")).Handle
	d.state["t1"] = "expired"
	for range 2 {
		p, err := r.Commit(t.Context(), h)
		if err != nil || p.Verdict != participant.RolledBack {
			t.Fatalf("%+v, %v", p, err)
		}
	}
}

func TestWhatAServiceHoldsForATimeHasADeadlineFromItsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
		r := twoPhase(t, d, path, func(c *participant.TwoPhaseConfig[string]) { c.HoldsFor = time.Hour })
		openDesk(t, r, 1)
		b := beginDesk(t, d, r, under(1, 1), "a")
		began := time.Now()
		time.Sleep(time.Minute)
		if v := voteOf(t, b); !v.Deadline.Equal(began.Add(time.Hour)) {
			t.Fatalf("the deadline is %s after the begin, want an hour", v.Deadline.Sub(began))
		}
		if what, err := r.Describe(t.Context()); err != nil || !what.Bounded {
			t.Fatalf("%+v, %v", what, err)
		}
	})
}

func TestWithoutAJournalDecidedWorkIsFinishedAndNothingElse(t *testing.T) {
	d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
	r := twoPhase(t, d, path)
	openDesk(t, r, 1)
	h := voteOf(t, beginDesk(t, d, r, under(1, 1), "a")).Handle
	bare := twoPhase(t, d, "", func(c *participant.TwoPhaseConfig[string]) { c.Journal = nil })
	if what, err := bare.Describe(t.Context()); err != nil || what.CanList {
		t.Errorf("it claims to list: %+v, %v", what, err)
	}
	if err := bare.Open(t.Context(), participant.Opening{}); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("open: %v", err)
	}
	if _, err := bare.List(t.Context(), under(1, 1).Namespace); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("list: %v", err)
	}
	if p, err := bare.Commit(t.Context(), h); err != nil || p.Verdict != participant.Committed {
		t.Errorf("commit: %+v, %v", p, err)
	}
	if got := d.sees(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("readers see %q", got)
	}
}

// The journal does not grow with the epochs: how they ended is kept for a while only.
func TestTheJournalForgetsOldOutcomesAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
		r := twoPhase(t, d, path)
		openDesk(t, r, 1)
		var last participant.Handle
		for n := range uint64(5) {
			last = voteOf(t, beginDesk(t, d, r, under(1, n+1), "a")).Handle
			if _, err := r.Commit(t.Context(), last); err != nil {
				t.Fatal(err)
			}
		}
		kept := voteOf(t, beginDesk(t, d, r, under(1, 6), "b")).Handle
		time.Sleep(time.Hour)
		if _, err := r.List(t.Context(), under(1, 1).Namespace); err != nil {
			t.Fatal(err)
		}
		left, err := journal.At(path).Entries(t.Context(), "t/")
		if err != nil || len(left) != 1 || left["t/"+kept.Name] == nil {
			t.Fatalf("the journal has %d entries (%v), want the prepared one alone", len(left), err)
		}
		// A repeat later than that is the service's to bear.
		if p, err := r.Commit(t.Context(), last); err != nil || p.Verdict != participant.Committed {
			t.Fatalf("%+v, %v", p, err)
		}
	})
}

// A resolver's file with the right journal and the wrong account: what the one has begun would be aborted in the other,
// which has never heard of it, and count as rolled back.
func TestAJournalIsOneServicesAlone(t *testing.T) {
	c, path := newDesk(), filepath.Join(t.TempDir(), "journal")
	r := twoPhase(t, c, path)
	openDesk(t, r, 1)
	b, err := r.Begin(t.Context(), under(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	deskLine(t, c, b, "one")
	v, err := b.Prepare(t.Context())
	if err != nil || v.Kind != participant.Yes {
		t.Fatalf("vote %d, %v", v.Kind, err)
	}
	for what, change := range map[string]func(*participant.TwoPhaseConfig[string]){
		"another account": func(c *participant.TwoPhaseConfig[string]) { c.Identity = "c2" },
		"another kind":    func(c *participant.TwoPhaseConfig[string]) { c.Kind = "till" },
	} {
		other := twoPhase(t, newDesk(), path, change)
		if listed, err := other.List(t.Context(), under(1, 1).Namespace); !errors.Is(err, participant.ErrMisconfigured) {
			t.Errorf("%s: listed %d, %v; want misconfigured", what, len(listed), err)
		}
		o := participant.Opening{Namespace: under(1, 1).Namespace, Scope: "p/0", Member: "m", Resource: "desk", Generation: 2}
		if err := other.Open(t.Context(), o); !errors.Is(err, participant.ErrMisconfigured) {
			t.Errorf("%s: opened, %v; want misconfigured", what, err)
		}
	}
	if p, err := twoPhase(t, c, path).Commit(t.Context(), v.Handle); err != nil || p.Verdict != participant.Committed {
		t.Errorf("commit: %v, %v", p.Verdict, err)
	}
}
