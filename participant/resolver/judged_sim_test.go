package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/branchname"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/participant/resolver"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// byPrefix is a resource whose listing shows more than the namespace that was asked for.
type byPrefix struct{ *participanttest.Memory }

func (b byPrefix) List(ctx context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	var all []participant.Listed
	for _, x := range []participant.Namespace{ns, {Name: ns.Name, Incarnation: 2}, {Name: ns.Name + "-eu", Incarnation: 1}} {
		found, err := b.Memory.List(ctx, x)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Row L9. Names that begin alike, a later incarnation, a pipeline that the ledger never knew, and what a living
// pipeline is about to decide: all left alone, sweep after sweep.
func TestL9_WhatIsNotOursToEndIsLeftAlone(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		p := r.start(nil)
		r.until(20*time.Second, "the pipeline runs", func() bool { _, final := r.newest(); return final > 3 })
		g, _ := r.newest()
		p.kill() // and a new process of it lives
		r.start(nil)
		r.until(time.Minute, "it runs again", func() bool { now, final := r.newest(); return now > g && final > 0 })
		g, final := r.newest()
		eu, later, stranger := r.branch(1, 1<<20, "out"), r.branch(1, 1<<20, "out"), r.branch(1, 1, "out")
		eu.Namespace.Name, later.Namespace.Incarnation, stranger.Pipeline = "test-eu", 2, "orders-eu"
		ahead, newer := r.branch(g, final+1_000_000, "out"), r.branch(g+7, 1, "out")
		all := []participant.BranchName{eu, later, stranger, ahead, newer}
		for _, n := range all {
			r.stores["out"].Plant(n, "foreign")
		}
		interval := sweepInterval
		if testing.Short() {
			interval = sweepInterval / 6 // as many sweeps, and fewer epochs between them
		}
		r.resolve(func(c *resolver.Config) {
			c.SweepInterval = interval
			c.Resources[0].Finisher = byPrefix{c.Resources[0].Finisher.(*participanttest.Memory)}
		})
		time.Sleep(3*interval + 10*time.Second)
		there := strings.Join(r.stores["out"].Prepared(), "\n")
		for _, n := range all {
			if !strings.Contains(there, n.String()) {
				t.Errorf("%s was ended; left:\n%s", n, there)
			}
		}
		if _, now := r.newest(); now <= final {
			t.Errorf("the living pipeline stands still at %d", now)
		}
		r.ordered()
	})
}

// A thing that a retired decision may have listed is told, and not touched. Row T3: nothing goes in circles.
func TestT3_WhatIsFoundInDoubtIsToldAndNotTouched(t *testing.T) {
	bubble(t, 1, 20*time.Millisecond, func(t *testing.T, r *rig) {
		p := r.start(nil)
		r.until(time.Minute, "more epochs than are remembered", func() bool { _, final := r.newest(); return final > 150 })
		p.kill()
		r.resolve(nil)
		r.within(lease+time.Second, "everything is finished", r.left)
		time.Sleep(10 * time.Second) // until the first epochs are retired
		g, _ := r.newest()
		r.stores["out"].Plant(r.branch(g, 1, "out"), "restored from a backup")
		r.until(sweepInterval+10*time.Second, "it is told", func() bool { return len(r.told().GetInDoubt()) == 1 })
		if n := len(r.stores["out"].Prepared()); n != 1 {
			t.Fatalf("%d things are prepared, the one in doubt should be", n)
		}
		x := r.told().GetInDoubt()[0]
		if x.GetFound().GetBranch().GetEpoch().GetN() != 1 || !strings.Contains(x.GetWhy(), "set back") || x.GetSinceMs() == 0 {
			t.Errorf("told is %v", x)
		}
	})
}

// A decided branch that its resource has rolled back: the scope halts, and nothing is done again and again.
func TestAHeuristicOutcomeIsToldAndHaltsTheScope(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.stuck(&atomic.Bool{}).kill()
		got, err := r.duties.ListDuties(t.Context(), &unisinkv1.ListDutiesRequest{Resources: []*unisinkv1.ResourceRef{{Kind: participanttest.Kind, Identity: "out"}}})
		if err != nil || len(got.GetDuties()) != 2 {
			t.Fatalf("%v, %v", got, err)
		}
		h := got.GetDuties()[0].GetHandle()
		lost := participant.Handle{Kind: h.GetKind(), Version: h.GetVersion(), Identity: h.GetIdentity(), Name: h.GetName()}
		if _, err := r.stores["out"].Process().Rollback(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		r.resolve(nil)
		r.within(lease+time.Second, "everything else is finished", r.left)
		p, err := r.cl.Pipelines().GetPipeline(t.Context(), &unisinkv1.GetPipelineRequest{Name: pipeline})
		if err != nil || !strings.Contains(p.GetScopes()[0].GetHalted(), "is proven rolled-back") {
			t.Errorf("halted: %q, %v", p.GetScopes()[0].GetHalted(), err)
		}
	})
}

// hands makes an id of a transaction run by hand.
func hands(t *testing.T) string {
	t.Helper()
	id, err := participant.NewTxnID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (r *rig) byHand(txn string) participant.BranchName {
	return participant.BranchName{Namespace: r.branch(1, 1, "").Namespace, Txn: txn, Resource: "out"}
}

// Row L1, P10. What nobody knows is asked for once it was listed twice, as far apart as a client may take.
func TestL1_WorkByHandThatNobodyKnowsIsAskedForAfterItsTime(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.resolve(func(c *resolver.Config) { c.SweepInterval = 7 * time.Second })
		dead, slow := hands(t), hands(t)
		r.stores["out"].Plant(r.byHand(dead), "dead")
		h := r.stores["out"].Plant(r.byHand(slow), "slow")
		time.Sleep(55 * time.Second)
		if out, err := r.cl.Commit(t.Context(), slow, []participant.HandBranch{{Resource: "out", Handle: h}}); err != nil || out != participant.OutcomeCommitted {
			t.Fatalf("the slow client is told %s, %v", out, err)
		}
		r.within(20*time.Second, "both are finished", func() string { return strings.Join(r.stores["out"].Prepared(), "\n") })
		if got := r.stores["out"].Records(); len(got) != 1 || got[0] != "slow" {
			t.Errorf("committed: %v", got)
		}
		if out, err := r.cl.Outcome(t.Context(), dead); err != nil || out != participant.OutcomeAborted {
			t.Errorf("what nobody knew is %s, %v", out, err)
		}
	})
}

// A transaction that was announced, and whose client died: of its two branches one was prepared.
func TestAnAnnouncedTransactionIsAbortedAndProven(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.resolve(nil)
		txn := hands(t)
		if _, err := r.cl.Begin(t.Context(), txn, []string{"out", "dir"}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		r.stores["out"].Plant(r.byHand(txn), "half")
		time.Sleep(5 * time.Second)
		if len(r.stores["out"].Prepared()) != 1 {
			t.Fatal("it was ended before its deadline")
		}
		r.within(10*time.Second, "both branches are proven", r.left)
		got, err := r.cl.Transactions().GetTransaction(t.Context(), &unisinkv1.GetTransactionRequest{Txn: txn})
		if err != nil || !got.GetTransaction().GetResolved() || got.GetTransaction().GetOutcome() != unisinkv1.Outcome_OUTCOME_ABORTED {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// A resource that hangs holds up no other, and the resolver still ends at once.
func TestAResourceThatHangsHoldsUpNoOther(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.stuck(&atomic.Bool{}).kill()
		x := r.resolve(func(c *resolver.Config) {
			c.Resources[0].Finisher.(*participanttest.Memory).SetHook(func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
				if call == participanttest.CallDescribe || when == participanttest.After {
					return nil
				}
				<-ctx.Done()
				return context.Cause(ctx)
			})
		})
		r.until(lease+time.Second, "the other is finished", func() bool { return r.commits("dir") == 2 && len(r.stores["dir"].Prepared()) == 0 })
		r.until(2*time.Minute, "the trouble is told", func() bool { q := r.told(); return len(q.GetTroubles()) > 0 && q.GetTroubles()[0].GetNextTryMs() > 0 })
		begun := time.Now()
		x.stop()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %s to stop", took)
		}
	})
}

func TestAHandleOfANewerVersionWaitsForANewerResolver(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.resolve(nil)
		h := participant.Handle{Kind: participanttest.Kind, Version: 2, Identity: "out", Alias: "out", Name: "of-the-future"}
		txn := hands(t)
		if _, err := r.cl.Commit(t.Context(), txn, []participant.HandBranch{{Resource: "out", Handle: h}}); err != nil {
			t.Fatal(err)
		}
		r.until(20*time.Second, "it is told", func() bool { return len(r.told().GetTroubles()) == 1 })
		if x := r.told().GetTroubles()[0]; !strings.HasPrefix(x.GetTrouble(), "waiting for a newer resolver: ") || !strings.Contains(x.GetTrouble(), "a person must act") || x.GetBranch().GetTxn() != txn {
			t.Errorf("told is %v", x)
		}
	})
}

// Row L9. A coordinator of an earlier build has decided what a client handed in: the handle of a branch that a pipeline has
// prepared, and that nobody has decided.
func TestL9_AHandleOfSomebodyElseIsNotFinished(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.resolve(nil)
		theirs := r.stores["out"].Plant(r.branch(1, 900, "out"), "undecided")
		txn := hands(t)
		r.Decide(ledger.Commit{Txn: ledger.TxnID(txn), Branches: []ledger.HandBranch{{Resource: "out", Handle: ledger.Handle{
			Kind: theirs.Kind, Version: theirs.Version, Identity: theirs.Identity, Alias: theirs.Alias, Name: theirs.Name,
		}}}})
		r.until(20*time.Second, "it is told", func() bool { return len(r.told().GetTroubles()) == 1 })
		if x := r.told().GetTroubles()[0]; !strings.Contains(x.GetTrouble(), "names another branch than its own") || x.GetBranch().GetTxn() != txn {
			t.Errorf("told is %v", x)
		}
		if got := r.stores["out"].Records(); len(got) != 0 {
			t.Errorf("committed: %v", got)
		}
		once, err := resolver.New(resolver.Config{Client: r.cl, Resources: []resolver.Resource{{Name: "out", Finisher: r.stores["out"].Process()}}})
		if err != nil {
			t.Fatal(err)
		}
		done, err := once.Finish(t.Context(), txn)
		if err != nil || len(done) != 1 || !errors.Is(done[0].Err, participant.ErrBug) || len(r.stores["out"].Records()) != 0 {
			t.Errorf("finished by hand: %v, %v", done, err)
		}
	})
}

// What is prepared by hand under names that a process has for itself, as in Kafka, is its transaction's own.
func TestWhatIsPreparedByHandUnderAProcessesOwnNamesIsFinished(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.resolve(nil)
		name := r.branch(1, 3, "out")
		name.Pipeline, name.Member, name.Generation = "_hand", "teller", 1764
		txn := hands(t)
		h := r.stores["out"].Plant(name, "paid")
		if _, err := r.cl.Commit(t.Context(), txn, []participant.HandBranch{{Resource: "out", Handle: h}}); err != nil {
			t.Fatal(err)
		}
		r.until(20*time.Second, "it is finished", func() bool { return len(r.stores["out"].Records()) == 1 })
		if told := r.told().GetTroubles(); len(told) != 0 {
			t.Errorf("told is %v", told)
		}
	})
}

// Row L1. A client announces a branch, prepares it under a name that its process has for itself, as in Kafka, and dies. The
// transaction is aborted; that a listing does not name it proves nothing as long as what it may be is there.
func TestL1_WhatMayBeThereUnderAProcessesOwnNameIsNotProven(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		txn, listings := hands(t), atomic.Int64{}
		r.resolve(func(c *resolver.Config) {
			c.SweepInterval = time.Hour
			c.Resources[0].Finisher.(*participanttest.Memory).SetHook(func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
				if call == participanttest.CallList && when == participanttest.Before {
					listings.Add(1)
				}
				return nil
			})
		})
		if _, err := r.cl.Begin(t.Context(), txn, []string{"out"}, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		name := r.branch(1, 3, "out")
		name.Pipeline, name.Member, name.Generation = branchname.HandPipeline, "teller", 1764
		h := r.stores["out"].Plant(name, "paid")
		open := func() bool {
			got, err := r.cl.Transactions().GetTransaction(t.Context(), &unisinkv1.GetTransactionRequest{Txn: txn})
			if err != nil {
				t.Fatal(err)
			}
			return got.GetTransaction().GetBranches()[0].GetProof() == nil
		}
		time.Sleep(time.Minute)
		if !open() {
			t.Fatal("it is proven rolled back, and what may be its branch is prepared")
		}
		if n := listings.Load(); n < 2 || n > 20 {
			t.Errorf("listed %d times in a minute", n)
		}
		told := ""
		for _, x := range r.told().GetResources() {
			told += x.GetTrouble()
		}
		if !strings.Contains(told, txn) || !strings.Contains(told, "may be its branch") {
			t.Errorf("told is %q", told)
		}
		if _, err := r.stores["out"].Process().Rollback(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		r.until(15*time.Second, "it is proven", func() bool { return !open() })
	})
}

// A resource that cannot be reached at first is tried on, and told of.
func TestAResourceThatIsNotReachedIsTriedOn(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.stuck(&atomic.Bool{}).kill()
		away := &atomic.Bool{}
		away.Store(true)
		r.resolve(func(c *resolver.Config) {
			c.Resources[0].Finisher.(*participanttest.Memory).SetHook(func(context.Context, participanttest.Call, participanttest.When, string) error {
				if away.Load() {
					return fmt.Errorf("no route to host")
				}
				return nil
			})
		})
		r.until(20*time.Second, "it is told", func() bool {
			for _, x := range r.told().GetResources() {
				if strings.Contains(x.GetTrouble(), "no route to host") {
					return true
				}
			}
			return false
		})
		away.Store(false)
		r.within(31*time.Second, "everything is finished once it is there", r.left)
		r.ordered()
	})
}

func TestNewReportsEveryMistakeAtOnce(t *testing.T) {
	_, err := resolver.New(resolver.Config{Poll: -1, Name: strings.Repeat("r", 129), Version: strings.Repeat("v", 130), Resources: []resolver.Resource{{Name: "x"}, {Name: "x"}}})
	for _, want := range []string{"no client", "poll is -1ns", `resource 1 ("x") has no finisher`, "the name has 129 bytes, at most 128", "the version has 130 bytes, at most 128", `two resources have the name "x"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// undetermined is a resource that cannot tell how one branch ended.
type undetermined struct {
	*participanttest.Memory
	handle string
}

func (u undetermined) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	if h.Name == u.handle {
		return participant.Proof{}, fmt.Errorf("the marker is gone: %w", participant.ErrUndeterminable)
	}
	return u.Memory.Commit(ctx, h)
}

// Promise 5, row O10. A resolver finds a branch that nobody can tell of: the scope halts, the branch counts neither as
// committed nor as rolled back, and other resources are finished.
func TestO10_WhatAResolverCannotTellHaltsTheScope(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.stuck(&atomic.Bool{}).kill()
		got, err := r.duties.ListDuties(t.Context(), &unisinkv1.ListDutiesRequest{Resources: []*unisinkv1.ResourceRef{{Kind: participanttest.Kind, Identity: "out"}}})
		if err != nil || len(got.GetDuties()) != 2 {
			t.Fatalf("%v, %v", got, err)
		}
		r.resolve(func(c *resolver.Config) {
			for i, x := range c.Resources {
				c.Resources[i].Finisher = undetermined{x.Finisher.(*participanttest.Memory), got.GetDuties()[0].GetHandle().GetName()}
			}
		})
		r.within(lease+time.Second, "the other resource is finished", func() string {
			if n := r.commits("dir"); n < 2 {
				return fmt.Sprintf("%d commits", n)
			}
			return ""
		})
		time.Sleep(time.Minute)
		p, err := r.cl.Pipelines().GetPipeline(t.Context(), &unisinkv1.GetPipelineRequest{Name: pipeline})
		if err != nil || !strings.Contains(p.GetScopes()[0].GetHalted(), "is undeterminable: ") {
			t.Errorf("halted: %q, %v", p.GetScopes()[0].GetHalted(), err)
		}
		if n := r.commits("out"); n != 0 {
			t.Errorf("%d branches were committed behind one that nobody can tell of", n)
		}
		if left := r.left(); strings.Count(left, "duty ") != 2 {
			t.Errorf("left: %s", left)
		}
	})
}
