package participant_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// spoilt makes the commit of one handle, the first that is asked for, fail with an error until it is mended.
type spoilt struct {
	mu     sync.Mutex
	err    error
	handle string
	tried  int
}

func (s *spoilt) hook(_ context.Context, call participanttest.Call, when participanttest.When, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call != participanttest.CallCommit || when != participanttest.Before || s.err == nil {
		return nil
	}
	if s.handle == "" {
		s.handle = name
	}
	if name != s.handle {
		return nil
	}
	s.tried++
	return s.err
}

func (s *spoilt) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = nil
}

func (s *spoilt) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried
}

func haltedWhy(t *testing.T, client *participant.Client) string {
	t.Helper()
	r, err := client.Pipelines().GetPipeline(t.Context(), &unisinkv1.GetPipelineRequest{Name: pipeline})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetScopes()[0].GetHalted()
}

func resume(t *testing.T, client *participant.Client) {
	t.Helper()
	_, err := client.Pipelines().Resume(t.Context(), &unisinkv1.ResumeRequest{Meta: client.NewMeta(), Scope: &unisinkv1.Scope{Pipeline: pipeline}, Why: "looked"})
	if err != nil {
		t.Fatal(err)
	}
}

func forced(t *testing.T, client *participant.Client, x *unisinkv1.Transaction, b *unisinkv1.TransactionBranch) {
	t.Helper()
	_, err := client.Resolution().Force(t.Context(), &unisinkv1.ForceRequest{
		Meta: client.NewMeta(), Action: unisinkv1.ForceAction_FORCE_ACTION_ACCEPT_LOSS, Why: "looked at the rows",
		Branch: &unisinkv1.BranchRef{Scope: x.GetScope(), Epoch: x.GetEpoch(), Member: b.GetMember(), Resource: b.GetResource()},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// neighbour runs another pipeline beside.
func neighbour(t *testing.T, client *participant.Client, at func(*participant.MemberConfig)) *participanttest.Store {
	t.Helper()
	spec := &unisinkv1.Pipeline{Name: "other", Fingerprint: "f1", Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: 100}, Members: []*unisinkv1.MemberSpec{
		{Name: "all", Source: true, Resources: []*unisinkv1.ResourceSpec{{Name: "out", Kind: "memory"}}},
	}}
	if _, err := client.Pipelines().PutPipeline(t.Context(), &unisinkv1.PutPipelineRequest{Meta: client.NewMeta(), Pipeline: spec}); err != nil {
		t.Fatal(err)
	}
	store := participanttest.NewStore("other")
	(&group{t: t}).run("all", store, func(cfg *participant.MemberConfig) { at(cfg); cfg.Pipeline = "other" })
	return store
}

// needsAPerson waits until the scope is halted over a branch that nobody can tell of, and returns its transaction and the branch.
func needsAPerson(t *testing.T, client *participant.Client) (*unisinkv1.Transaction, *unisinkv1.TransactionBranch) {
	t.Helper()
	within(t, 3*time.Second, "the scope is halted", func() bool { return haltedWhy(t, client) != "" })
	why := haltedWhy(t, client)
	for _, x := range doubts(t, client) {
		for _, b := range x.GetBranches() {
			if b.GetUndeterminable() == "" {
				continue
			}
			if b.GetNext() != "" || b.GetProof() != nil || x.GetResolved() || !strings.Contains(x.GetHeuristic(), "the marker is gone") {
				t.Errorf("shown as %v", x)
			}
			if !strings.Contains(why, "the marker is gone") || !strings.Contains(why, "unisink txn resolve "+x.GetTxn()+" --force accept-loss --branch two/out") {
				t.Errorf("halted: %s", why)
			}
			return x, b
		}
	}
	t.Fatalf("halted: %s; in doubt: %v", why, doubts(t, client))
	return nil, nil
}

var errMarkerGone = fmt.Errorf("the marker is gone: %w", participant.ErrUndeterminable)

// Promise 5, row O10. A resource answers that nobody can tell how a decided branch ended. Its scope alone is halted, the
// branch counts neither as committed nor as rolled back, and what is known is said. Whoever resumes has it looked at again.
func TestO10_ABranchThatNobodyCanTellOfHaltsItsScopeAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, client, stores, workers := doubted(t)
		at := func(cfg *participant.MemberConfig) { cfg.Coordinators, cfg.Dial = c.Addresses(), c.Dial }
		other := neighbour(t, client, at)
		s := &spoilt{err: errMarkerGone}
		workers[1].memory.SetHook(s.hook)
		x, _ := needsAPerson(t, client) // found by a member that runs
		events, cancel := context.WithCancel(t.Context())
		defer cancel()
		watch, err := client.Events().Watch(events, &unisinkv1.WatchRequest{Pipeline: pipeline})
		if err != nil {
			t.Fatal(err)
		}
		for {
			e, err := watch.Recv()
			if err != nil {
				t.Fatalf("no event says that the scope is halted: %v", err)
			}
			if e.GetKind() == unisinkv1.EventKind_EVENT_KIND_HALTED {
				if at := e.GetEpoch(); at.GetGeneration() != x.GetEpoch().GetGeneration() || at.GetN() != x.GetEpoch().GetN() || e.GetMember() != "two" {
					t.Errorf("the event is %v", e)
				}
				break
			}
		}
		cancel()
		within(t, 5*time.Second, "the other pipeline goes on", func() bool { return len(other.Records()) > 20 })
		resume(t, client)
		within(t, 3*time.Second, "it is asked again", func() bool { return haltedWhy(t, client) != "" })
		again, _ := needsAPerson(t, client) // found by one that restores
		if again.GetTxn() != x.GetTxn() {
			t.Errorf("now it is %s, before it was %s", again.GetTxn(), x.GetTxn())
		}
		before := len(other.Records())
		c.Crash(c.Leader()) // what is known outlives a leader
		within(t, 20*time.Second, "another leads", func() bool { return c.Leader() != "" })
		needsAPerson(t, client)
		within(t, 20*time.Second, "the other pipeline goes on", func() bool { return len(other.Records()) > before+20 })
		s.mend() // somebody has put the marker back
		resume(t, client)
		visible := len(stores[0].Records())
		within(t, 5*time.Second, "it goes on", func() bool { return len(stores[0].Records()) > visible+20 })
		for i, name := range []string{"one", "two"} {
			exactlyOnce(t, stores[i], name, 20)
		}
		if r := doubts(t, client); len(r) > 0 && r[0].GetTxn() == x.GetTxn() {
			t.Errorf("it is in doubt though it is proven: %v", r[0])
		}
	})
}

// The same, and a person accepts it.
func TestO10_WhatNobodyCanTellIsAcceptedByAPerson(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, client, stores, workers := doubted(t)
		s := &spoilt{err: errMarkerGone}
		workers[1].memory.SetHook(s.hook)
		x, b := needsAPerson(t, client)
		forced(t, client, x, b)
		if why := haltedWhy(t, client); why == "" {
			t.Error("to force a branch has resumed the scope")
		}
		resume(t, client)
		visible := len(stores[0].Records())
		within(t, 3*time.Second, "it goes on", func() bool { return len(stores[0].Records()) > visible+10 })
		tried := s.tries()
		quiet := time.Minute
		if testing.Short() {
			quiet = 10 * time.Second // a branch that is not finished is tried each second, and each epoch is work for the detector
		}
		time.Sleep(quiet)
		if now := s.tries(); now != tried {
			t.Errorf("what a person has decided was tried %d times more", now-tried)
		}
		exactlyOnce(t, stores[0], "one", 20)
	})
}

// A branch that its member tries in vain is forced: the member notices at once, whether it runs or restores, and the
// pipeline goes on without anybody restarting a process.
func TestAMemberNoticesThatABranchWasForced(t *testing.T) {
	for _, restoring := range []bool{false, true} {
		t.Run(fmt.Sprintf("restoring %v", restoring), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, client, stores, workers := doubted(t)
				s := &spoilt{err: errors.New("refused")}
				workers[1].memory.SetHook(s.hook)
				within(t, 5*time.Second, "it is tried in vain", func() bool { return s.tries() > 2 })
				var x *unisinkv1.Transaction
				within(t, 10*time.Second, "it alone is unfinished", func() bool {
					for _, d := range doubts(t, client) {
						if d.GetOutcome() == unisinkv1.Outcome_OUTCOME_COMMITTED {
							x = d
							return true
						}
					}
					return false
				})
				if restoring {
					abortOpen(t, client)
					within(t, 20*time.Second, "it restores", func() bool { return restoringNow(t, client) })
				}
				time.Sleep(10 * time.Second)
				visible := len(stores[0].Records())
				for _, b := range x.GetBranches() {
					if b.GetMember() == "two" {
						forced(t, client, x, b)
					}
				}
				within(t, 2*time.Second, "it goes on", func() bool { return len(stores[0].Records()) > visible+10 })
			})
		})
	}
}

// abortOpen closes the open generation as an operator does.
func abortOpen(t *testing.T, client *participant.Client) {
	t.Helper()
	r, err := client.Pipelines().GetPipeline(t.Context(), &unisinkv1.GetPipelineRequest{Name: pipeline})
	if err != nil {
		t.Fatal(err)
	}
	sc := r.GetScopes()[0]
	if _, err := abort(t, client, fmt.Sprintf("%s/0@%d.%d", pipeline, sc.GetGeneration(), sc.GetFinal()+1), "to see it restore"); err != nil {
		t.Fatal(err)
	}
}

func restoringNow(t *testing.T, client *participant.Client) bool {
	t.Helper()
	r, err := client.Pipelines().GetPipeline(t.Context(), &unisinkv1.GetPipelineRequest{Name: pipeline})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(r.GetScopes()[0].GetMembers(), func(m *unisinkv1.MemberStatus) bool {
		return m.GetName() == "two" && m.GetPhase() == "restoring"
	})
}

// Of a transaction by hand that nobody can tell of, its client hears so at once, and so does everybody who asks.
func TestO10_ATransactionByHandThatNobodyCanTellOf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, client, _, _ := doubted(t)
		s := &spoilt{err: errMarkerGone}
		store := participanttest.NewStore("hand")
		m := store.Process()
		m.SetHook(s.hook)
		id, err := participant.NewTxnID()
		if err != nil {
			t.Fatal(err)
		}
		ns, err := client.Namespace(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Begin(t.Context(), participant.BranchName{Namespace: ns, Txn: id, Resource: "out"})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.(*participanttest.MemoryBranch).Write("a"); err != nil {
			t.Fatal(err)
		}
		branches := []participant.TxnBranch{{Name: "out", Resource: m, Branch: b}}
		out, err := client.RunTxn(t.Context(), id, branches)
		if out != participant.OutcomeCommitted || !errors.Is(err, participant.ErrUndeterminable) || !errors.Is(err, participant.ErrUnfinished) {
			t.Fatalf("%s, %v", out, err)
		}
		show := func() *unisinkv1.Transaction {
			r, err := client.Transactions().GetTransaction(t.Context(), &unisinkv1.GetTransactionRequest{Txn: id})
			if err != nil {
				t.Fatal(err)
			}
			return r.GetTransaction()
		}
		if x := show(); x.GetBranches()[0].GetUndeterminable() == "" || x.GetHeuristic() == "" || x.GetResolved() {
			t.Errorf("shown as %v", x)
		}
		if _, err := client.Sweep(t.Context(), map[string]participant.Resource{"out": m}, time.Minute); !errors.Is(err, participant.ErrUndeterminable) {
			t.Errorf("sweep: %v", err)
		}
		if why := haltedWhy(t, client); why != "" {
			t.Errorf("a pipeline is halted: %s", why)
		}
		s.mend()
		if out, err := client.RunTxn(t.Context(), id, branches); out != participant.OutcomeCommitted || err != nil {
			t.Fatalf("%s, %v", out, err)
		}
		within(t, 5*time.Second, "its proof is told", func() bool { return show().GetResolved() })
		if x := show(); x.GetHeuristic() != "" || x.GetBranches()[0].GetUndeterminable() != "" {
			t.Errorf("shown as %v", x)
		}
	})
}

// An id that cannot be one is bad input, not something that was not found.
func TestAMalformedTransactionIDIsRefusedInOneSentence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, client, _, _ := doubted(t)
		for _, id := range []string{"", "nonsense", "orders/0@7", "orders/x@7.1", "0192A0C0-0000-7000-8000-000000000000"} {
			_, err := client.Transactions().GetTransaction(t.Context(), &unisinkv1.GetTransactionRequest{Txn: id})
			if err == nil || !strings.Contains(err.Error(), "is no transaction; an epoch's is written like orders/0@7.12") {
				t.Errorf("%q: %v", id, err)
			}
		}
	})
}
