package resolver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/unisink/unisink/internal/branchname"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// restored is a group with aborted announcements, whose namespace has the third incarnation; and a resource of it, which holds what
// was prepared under earlier ones.
type restored struct {
	willing
	unisinkv1.ResolutionClient

	mu     sync.Mutex // guards the rest
	duties []*unisinkv1.Duty
	sweeps []*unisinkv1.SweepDuty
	proven []string // transactions
	paid   []string
	report *unisinkv1.ReportRequest

	describes participant.Description
	listed    []participant.Listed
	asked     []string // the namespaces that were listed
	ended     []string // what was committed or rolled back
	fails     error    // of listing an earlier incarnation
}

func (g *restored) ListDuties(context.Context, *unisinkv1.ListDutiesRequest, ...grpc.CallOption) (*unisinkv1.ListDutiesResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	got := &unisinkv1.ListDutiesResponse{Namespace: "test", Incarnation: 3, SweepIntervalMs: 3_600_000, NowMs: time.Now().UnixMilli(), Sweeps: slices.Clone(g.sweeps)}
	for _, d := range g.duties {
		if !slices.Contains(g.proven, d.GetBranch().GetTxn()) {
			got.Duties = append(got.Duties, d)
		}
	}
	return got, nil
}

func (g *restored) Prove(_ context.Context, q *unisinkv1.ProveRequest, _ ...grpc.CallOption) (*unisinkv1.ProveResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proven = append(g.proven, q.GetBranch().GetTxn())
	return &unisinkv1.ProveResponse{}, nil
}

func (g *restored) PaySweep(_ context.Context, q *unisinkv1.PaySweepRequest, _ ...grpc.CallOption) (*unisinkv1.PaySweepResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paid = append(g.paid, q.String())
	return &unisinkv1.PaySweepResponse{}, nil
}

func (g *restored) Report(_ context.Context, q *unisinkv1.ReportRequest, _ ...grpc.CallOption) (*unisinkv1.ReportResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.report = q
	return &unisinkv1.ReportResponse{}, nil
}

func (g *restored) Describe(context.Context) (participant.Description, error) {
	return g.describes, nil
}

func (g *restored) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = append(g.ended, h.Name)
	return g.willing.Commit(ctx, h)
}

func (g *restored) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = append(g.ended, h.Name)
	return g.willing.Rollback(ctx, h)
}

func (g *restored) List(_ context.Context, ns participant.Namespace) (out []participant.Listed, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, ns.String())
	if !g.describes.CanList {
		return nil, fmt.Errorf("list: %w: there is no journal", participant.ErrMisconfigured)
	}
	if g.fails != nil && ns.Incarnation < 3 {
		return nil, g.fails
	}
	for _, x := range g.listed {
		if x.Name.Namespace == ns {
			out = append(out, x)
		}
	}
	return out, nil
}

// abort adds a transaction that was announced, and aborted now.
func (g *restored) abort(txns ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, txn := range txns {
		g.duties = append(g.duties, &unisinkv1.Duty{
			Branch: &unisinkv1.BranchRef{Txn: txn, Resource: "out"}, Outcome: unisinkv1.Outcome_OUTCOME_ABORTED, DecidedAtMs: time.Now().UnixMilli(),
		})
	}
}

// holds sets what the resource lists.
func (g *restored) holds(listed ...participant.Listed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed = listed
}

// seen copies one of the group's lists.
func (g *restored) seen(list *[]string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(*list)
}

// told is what the resource waits for, and which transactions were proven.
func (g *restored) told() (trouble string, proven []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.report.GetResources() {
		trouble += x.GetTrouble()
	}
	return trouble, slices.Sorted(slices.Values(g.proven))
}

// run resolves, in virtual time, as long as f does. It returns the lines of the log.
func (g *restored) run(t *testing.T, f func(t *testing.T, r *Resolver)) (log []string) {
	t.Helper()
	if g.describes.Kind == "" {
		g.describes = participant.Description{Kind: "memory", Identity: "mine", CanList: true}
	}
	var text bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		cl, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{"nobody:1"}}) // it is not asked
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Client: cl, ReportEvery: time.Second, Resources: []Resource{{Name: "out", Finisher: g}}, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		if err != nil {
			t.Fatal(err)
		}
		r.calls = g
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		f(t, r)
		cancel()
		if err := errors.Join(<-done, cl.Close()); err != nil {
			t.Error(err)
		}
	})
	return strings.Split(text.String(), "\n")
}

// prepared is a branch by hand, or with no transaction one under a process's own name, under an incarnation.
func prepared(incarnation uint64, txn string, since time.Time) participant.Listed {
	n := participant.BranchName{Namespace: participant.Namespace{Name: "test", Incarnation: incarnation}, Resource: "out", Txn: txn}
	if txn == "" {
		n.Pipeline, n.Member, n.Generation, n.N = branchname.HandPipeline, "teller", 1764, 3
	}
	return participant.Listed{Name: n, Handle: participant.Handle{Kind: "memory", Version: 1, Identity: "mine", Name: n.String()}, Since: since}
}

// Row L1. A backup was restored since a transaction was announced: its branch may be prepared under the namespace's earlier
// incarnation. That nothing is listed under the newest one proves nothing then, and what is there is left to a person.
func TestL1_WhatWasPreparedBeforeARestoreHoldsTheProofUp(t *testing.T) {
	g := &restored{}
	g.run(t, func(t *testing.T, r *Resolver) {
		time.Sleep(5 * time.Second)
		asked := g.seen(&g.asked)
		if slices.ContainsFunc(asked, func(ns string) bool { return ns != "test~3" }) || len(asked) == 0 {
			t.Errorf("listed were %q, and there is nothing to prove", asked)
		}
		first, second := prepared(1, "t1", time.Now()), prepared(2, "t2", time.Now())
		g.holds(first, second)
		g.abort("t1", "t2", "t3")
		time.Sleep(30 * time.Second)
		trouble, proven := g.told()
		if !slices.Equal(proven, []string{"t3"}) {
			t.Errorf("proven are %q, want the one of which nothing is prepared", proven)
		}
		if !strings.Contains(trouble, first.Name.String()) || !strings.Contains(trouble, "txn resolve t1 --force accept-loss --branch out") {
			t.Errorf("told is %q", trouble)
		}
		done, err := r.Finish(t.Context(), "t2")
		if err != nil || len(done) != 1 || done[0].Err == nil || !strings.Contains(done[0].Err.Error(), second.Name.String()) {
			t.Errorf("finished by hand: %+v, %v", done, err)
		}
		if ended := g.seen(&g.ended); len(ended) > 0 {
			t.Errorf("ended are %q, of which nobody has decided", ended)
		}
		g.holds(second) // a person has ended the first
		time.Sleep(15 * time.Second)
		if _, proven := g.told(); !slices.Equal(proven, []string{"t1", "t3"}) {
			t.Errorf("proven are %q once a person has ended one", proven)
		}
	})
}

// The same of what does not name its transaction, as in Kafka; what was begun long after the decision is another's.
func TestL1_WhatAProcessPreparedBeforeARestoreHoldsTheProofUp(t *testing.T) {
	g := &restored{}
	g.run(t, func(t *testing.T, _ *Resolver) {
		g.abort("t1")
		slot := prepared(2, "", time.Now().Add(70*time.Second))
		g.holds(slot)
		time.Sleep(5 * time.Second)
		if _, proven := g.told(); !slices.Equal(proven, []string{"t1"}) {
			t.Errorf("proven are %q, want what was decided long before the other was begun", proven)
		}
		slot = prepared(2, "", time.Now())
		g.holds(slot)
		g.abort("t2")
		time.Sleep(30 * time.Second)
		if trouble, proven := g.told(); !slices.Equal(proven, []string{"t1"}) || !strings.Contains(trouble, slot.Name.String()) {
			t.Errorf("proven are %q, told is %q", proven, trouble)
		}
	})
}

// A listing of an earlier incarnation that fails shows nothing, by hand and without.
func TestAnEarlierIncarnationThatIsNotListedProvesNothing(t *testing.T) {
	g := &restored{fails: errors.New("broker away")}
	g.run(t, func(t *testing.T, r *Resolver) {
		g.abort("t1")
		time.Sleep(30 * time.Second)
		if trouble, proven := g.told(); len(proven) > 0 || !strings.Contains(trouble, "broker away") {
			t.Errorf("proven are %q, told is %q", proven, trouble)
		}
		if done, err := r.Finish(t.Context(), ""); err != nil || len(done) != 1 || done[0].Err == nil || !strings.Contains(done[0].Err.Error(), "broker away") {
			t.Errorf("finished by hand: %+v, %v", done, err)
		}
	})
}

// A resource of four functions without a journal cannot list, and says so when it is asked to. It is not asked: that is said when it
// is reached, and is no trouble. Nor does anybody look there, so no debt is paid.
func TestWhatCannotListIsNotAskedToAndPaysNoDebts(t *testing.T) {
	g := &restored{describes: participant.Description{Kind: "memory", Identity: "mine"}}
	g.sweeps = []*unisinkv1.SweepDuty{{
		Scope: &unisinkv1.Scope{Pipeline: "orders"}, Generation: 1, Member: "all", Resource: "out", Identity: &unisinkv1.ResourceRef{Kind: "memory", Identity: "mine"},
	}}
	log := g.run(t, func(t *testing.T, r *Resolver) {
		time.Sleep(10 * time.Minute)
		if trouble, _ := g.told(); trouble != "" || len(g.seen(&g.asked)) > 0 {
			t.Errorf("told is %q; it was asked to list %q", trouble, g.seen(&g.asked))
		}
		if paid := g.seen(&g.paid); len(paid) > 0 {
			t.Errorf("paid are %q, and nobody has looked", paid)
		}
		g.abort("t1")
		if done, err := r.Finish(t.Context(), ""); err != nil || len(done) != 1 || done[0].Err == nil || !strings.Contains(done[0].Err.Error(), "cannot list") {
			t.Errorf("finished by hand: %+v, %v", done, err)
		}
	})
	said := 0
	for _, line := range log {
		if strings.Contains(line, "level=ERROR") {
			t.Errorf("logged %s", line)
		}
		if strings.Contains(line, "the resource cannot list") && !strings.Contains(line, "not proven yet") {
			said++
		}
	}
	if said != 1 {
		t.Errorf("that it cannot list was said %d times:\n%s", said, strings.Join(log, "\n"))
	}
}

// What a proof waits for is said in the log when it is found and when it changes, and else once a minute.
func TestWhatAProofWaitsForIsLoggedSlowly(t *testing.T) {
	g := &restored{}
	warned := func(log []string) (n int) {
		for _, line := range log {
			if strings.Contains(line, "not proven yet") {
				n++
			}
		}
		return n
	}
	log := g.run(t, func(t *testing.T, _ *Resolver) {
		g.holds(prepared(2, "", time.Now()))
		g.abort("t2")
		time.Sleep(10*time.Minute + 5*time.Second)
	})
	if n := warned(log); n < 9 || n > 11 {
		t.Errorf("warned %d times in ten minutes", n)
	}
	g = &restored{}
	log = g.run(t, func(t *testing.T, _ *Resolver) {
		slot := prepared(2, "", time.Now())
		g.holds(slot)
		g.abort("t2")
		time.Sleep(5 * time.Second)
		g.abort("t1") // the older one is told first
		time.Sleep(15 * time.Second)
	})
	if n := warned(log); n != 2 {
		t.Errorf("warned %d times of two things:\n%s", n, strings.Join(log, "\n"))
	}
}
