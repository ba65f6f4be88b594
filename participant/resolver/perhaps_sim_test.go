package resolver_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/internal/branchname"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/participant/resolver"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// slot is a name that a process has for itself, as in Kafka: it names no transaction.
func (r *rig) slot() participant.BranchName {
	name := r.branch(1, 3, "out")
	name.Pipeline, name.Member, name.Generation = branchname.HandPipeline, "teller", 1764
	return name
}

// abandon announces a transaction, as a client does that dies then, and waits until it is aborted.
func (r *rig) abandon(resource string) (txn string) {
	r.Helper()
	txn = hands(r.T)
	if _, err := r.cl.Begin(r.Context(), txn, []string{resource}, 2*time.Second); err != nil {
		r.Fatal(err)
	}
	r.until(10*time.Second, "it is aborted", func() bool {
		return r.shown(txn).GetOutcome() == unisinkv1.Outcome_OUTCOME_ABORTED
	})
	return txn
}

// shown is what the coordinator says of a transaction.
func (r *rig) shown(txn string) *unisinkv1.Transaction {
	r.Helper()
	got, err := r.cl.Transactions().GetTransaction(r.Context(), &unisinkv1.GetTransactionRequest{Txn: txn})
	if err != nil {
		r.Fatal(err)
	}
	return got.GetTransaction()
}

// trouble is what the resolver says that its resources wait for.
func (r *rig) trouble() string {
	r.Helper()
	var all []string
	for _, x := range r.told().GetResources() {
		if t := x.GetTrouble(); t != "" {
			all = append(all, t)
		}
	}
	return strings.Join(all, "; ")
}

// Row L1. What was begun longer after a decision than clocks are apart is of another transaction, and holds no proof up. What
// was begun before, or within that margin, may be the branch that was aborted.
func TestL1_WhatWasBegunLongAfterADecisionHoldsNoProofOfItUp(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		early := r.abandon("out")
		time.Sleep(70 * time.Second) // nobody resolves meanwhile
		late := r.abandon("out")
		h := r.stores["out"].Plant(r.slot(), "another's")
		r.resolve(func(c *resolver.Config) { c.SweepInterval = time.Hour })
		r.until(10*time.Second, "what was decided long before is proven", func() bool { return r.shown(early).GetResolved() })
		time.Sleep(30 * time.Second)
		if r.shown(late).GetResolved() {
			t.Error("what was decided a moment before is proven, and may be prepared")
		}
		if _, err := r.stores["out"].Process().Rollback(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		r.until(15*time.Second, "it is proven", func() bool { return r.shown(late).GetResolved() })
	})
}

// Sweeps for other reasons do not look for it each time, and it waits all the same.
func TestWhatAProofWaitsForIsToldAsLongAsItWaits(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.resolve(func(c *resolver.Config) { c.SweepInterval, c.ReportEvery = time.Second, 100*time.Millisecond })
		h := r.stores["out"].Plant(r.slot(), "paid")
		first, second := r.abandon("out"), r.abandon("out")
		r.until(5*time.Second, "it is told", func() bool { return strings.Contains(r.trouble(), "may be its branch") })
		for end := time.Now().Add(25 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // virtual
			if !strings.Contains(r.trouble(), first) {
				t.Fatalf("told is %q, and transaction %s waits", r.trouble(), first)
			}
		}
		for _, txn := range []string{first, second} {
			_, err := r.duties.Force(t.Context(), &unisinkv1.ForceRequest{
				Meta: r.cl.NewMeta(), Branch: &unisinkv1.BranchRef{Txn: txn, Resource: "out"}, Action: unisinkv1.ForceAction_FORCE_ACTION_ACCEPT_LOSS, Why: "looked",
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		r.until(15*time.Second, "nothing waits any more, for a person has accepted it", func() bool { return r.trouble() == "" })
		if _, err := r.stores["out"].Process().Rollback(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	})
}

// mute is a resource that cannot list.
type mute struct{ *participanttest.Memory }

func (m mute) Describe(ctx context.Context) (participant.Description, error) {
	d, err := m.Memory.Describe(ctx)
	d.CanList = false
	return d, err
}

func (mute) List(context.Context, participant.Namespace) ([]participant.Listed, error) {
	return nil, nil
}

// Row L1. An announced branch is prepared where nothing can be listed, and its client dies: that no listing names it proves
// nothing. Only its client, or a person, can tell.
func TestL1_WhatCannotListProvesNothingByAListing(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		var listings atomic.Int64
		r.resolve(func(c *resolver.Config) {
			c.SweepInterval, c.ReportEvery = time.Hour, 100*time.Millisecond
			m := c.Resources[0].Finisher.(*participanttest.Memory)
			c.Resources[0].Finisher = counted{mute{m}, &listings}
		})
		txn := hands(t)
		r.stores["out"].Plant(r.byHand(txn), "half")
		if _, err := r.cl.Begin(t.Context(), txn, []string{"out"}, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if x := r.shown(txn); x.GetOutcome() != unisinkv1.Outcome_OUTCOME_ABORTED || x.GetResolved() {
			t.Fatalf("its branch is prepared, and it is shown as %s, resolved %t", x.GetOutcome(), x.GetResolved())
		}
		if told := r.trouble(); !strings.Contains(told, txn) || !strings.Contains(told, "cannot list") {
			t.Errorf("told is %q", told)
		}
		if n := listings.Load(); n > 20 {
			t.Errorf("listed %d times in a minute", n)
		}
	})
}

// counted counts listings.
type counted struct {
	participant.Finisher
	listings *atomic.Int64
}

func (c counted) List(ctx context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	c.listings.Add(1)
	return c.Finisher.List(ctx, ns)
}

// What a sweep has ended and proven is not looked for once more.
func TestASweepThatHasProvenAnAnnouncedBranchIsNotMadeAgain(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		var listings atomic.Int64
		r.resolve(func(c *resolver.Config) {
			c.SweepInterval = time.Hour
			c.Resources[0].Finisher = counted{c.Resources[0].Finisher, &listings}
		})
		txn := hands(t)
		if _, err := r.cl.Begin(t.Context(), txn, []string{"out"}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		r.stores["out"].Plant(r.byHand(txn), "half")
		time.Sleep(5 * time.Second)
		before := listings.Load()
		r.within(10*time.Second, "it is proven", r.left)
		time.Sleep(5 * time.Second)
		if n := listings.Load() - before; n != 1 {
			t.Errorf("listed %d times, want once", n)
		}
	})
}
