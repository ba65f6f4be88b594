package resolver_test

import (
	"context"
	"errors"
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

// An operator looks without touching anything, sweeps, and finishes, with no resolver running.
func TestL1_LookSweepAndFinishByHand(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		p := r.start(killedAt(point{participanttest.CallCommit, participanttest.Before, 6}))
		r.until(20*time.Second, "the process came to its end", p.isDead)
		time.Sleep(lease + time.Second)
		ns := participant.Namespace{Name: "test", Incarnation: 1}
		r.stores["out"].Plant(participant.BranchName{Namespace: ns, Pipeline: pipeline, Member: "all", Resource: "out", Generation: 1, N: 900}, "never decided")
		r.stores["out"].Plant(participant.BranchName{Namespace: participant.Namespace{Name: "theirs", Incarnation: 1}, Pipeline: pipeline, Member: "all", Resource: "out", Generation: 1, N: 1}, "another group's")
		var resources []resolver.Resource
		for name, s := range r.stores {
			resources = append(resources, resolver.Resource{Name: name, Finisher: s.Process()})
		}
		x, err := resolver.New(resolver.Config{Client: r.cl, Resources: resources})
		if err != nil {
			t.Fatal(err)
		}
		count := func(sweep bool) (n map[unisinkv1.Sentence]int, ended int) {
			t.Helper()
			found, err := x.Look(t.Context(), sweep)
			if err != nil {
				t.Fatal(err)
			}
			n = map[unisinkv1.Sentence]int{}
			for _, f := range found {
				n[f.Sentence]++
				if f.Why == "" || f.Resource == "" || f.Err != nil {
					t.Errorf("found %+v", f)
				}
				if f.Ended {
					ended++
				}
			}
			return n, ended
		}
		dead, commit := unisinkv1.Sentence_SENTENCE_ROLL_BACK, unisinkv1.Sentence_SENTENCE_COMMIT
		for range 2 { // the second finds the same: looking changes nothing
			if n, ended := count(false); n[dead] == 0 || n[commit] == 0 || ended != 0 {
				t.Fatalf("looked: %v, %d ended", n, ended)
			}
		}
		n, ended := count(true)
		if ended != n[dead] || ended == 0 {
			t.Errorf("swept: %v, %d ended", n, ended)
		}
		done, err := x.Finish(t.Context(), "orders/0@99.1")
		if err != nil || len(done) != 0 {
			t.Errorf("finished of a transaction that is not: %v, %v", done, err)
		}
		if done, err = x.Finish(t.Context(), ""); err != nil || len(done) == 0 {
			t.Fatalf("finished: %v, %v", done, err)
		}
		for range 5 { // what waited for an earlier one comes next
			for _, f := range done {
				if f.Err == nil && f.Proof.Verdict != participant.Committed {
					t.Errorf("%v is proven %+v", f.Branch, f.Proof)
				}
			}
			if done, err = x.Finish(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		if len(done) != 0 {
			t.Errorf("left: %v", done)
		}
		if n, _ := count(false); len(n) != 0 {
			t.Errorf("at the end: %v", n)
		}
		if left := r.stores["out"].Prepared(); len(left) != 1 || !strings.HasPrefix(left[0], "theirs.") {
			t.Errorf("prepared at the end: %q, want another group's alone", left)
		}
		if debts := owed(t, r); debts == 0 {
			t.Error("a listing by hand paid debts: it does not look twice")
		}
		r.ordered()
	})
}

// unlisted is a resource that cannot list.
type unlisted struct{ participant.Finisher }

func (u unlisted) Describe(ctx context.Context) (participant.Description, error) {
	d, err := u.Finisher.Describe(ctx)
	d.CanList = false
	return d, err
}

// By hand, too, an aborted transaction ends that was announced: what was prepared of it is rolled back, and of the rest a listing
// proves that nothing is left, unless something there may be it. What is in no resource of that name is told of.
func TestL1_WhatWasAnnouncedAndAbortedIsEndedByHand(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		txn := hands(t)
		if _, err := r.cl.Begin(t.Context(), txn, []string{"out", "dir", "blind", "away"}, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		half := r.byHand(txn)
		half.Resource = "dir"
		r.stores["dir"].Plant(half, "half")
		own := r.branch(1, 3, "out")
		own.Pipeline, own.Member, own.Generation = branchname.HandPipeline, "teller", 1764
		h := r.stores["out"].Plant(own, "perhaps")
		time.Sleep(5 * time.Second)
		var resources []resolver.Resource
		for _, name := range []string{"out", "dir"} {
			resources = append(resources, resolver.Resource{Name: name, Text: "memory " + name, Finisher: r.stores[name].Process()})
		}
		resources = append(resources, resolver.Resource{Name: "blind", Text: "memory blind", Finisher: unlisted{participanttest.NewStore("blind").Process()}})
		x, err := resolver.New(resolver.Config{Client: r.cl, Resources: resources})
		if err != nil {
			t.Fatal(err)
		}
		finish := func() map[string]string {
			t.Helper()
			done, err := x.Finish(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			said := map[string]string{}
			for _, f := range done {
				if said[f.Branch.GetResource()] = f.Proof.Evidence; f.Err != nil {
					said[f.Branch.GetResource()] = f.Err.Error()
				}
				if f.Err == nil && f.Proof.Verdict != participant.RolledBack || (f.Resource == "") != (f.Branch.GetResource() == "away") {
					t.Errorf("finished: %+v", f)
				}
			}
			return said
		}
		if said := finish(); len(said) != 4 || said["dir"] == "" || !strings.Contains(said["blind"], "cannot list") || !strings.Contains(said["out"], own.String()+", which does not name its transaction") ||
			!strings.Contains(said["away"], "none of the resources that answered has the name away") {
			t.Errorf("said %q", said)
		}
		if left := r.stores["dir"].Prepared(); len(left) > 0 {
			t.Errorf("left is %q", left)
		}
		if _, err := r.stores["out"].Process().Rollback(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		if said := finish(); len(said) != 3 || said["out"] != "nothing of it is listed after it was aborted" {
			t.Errorf("once that has ended: %q", said)
		}
		if said := finish(); len(said) != 2 || said["away"] == "" || said["blind"] == "" {
			t.Errorf("left: %q, want the branches in a resource that is not there and in one that cannot list", said)
		}
	})
}

// owed counts the sweep debts that are left.
func owed(t *testing.T, r *rig) int {
	t.Helper()
	d, err := r.duties.ListDuties(t.Context(), &unisinkv1.ListDutiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return len(d.GetSweeps())
}

// One resource that hangs, whatever it is asked, has its own time alone: the others are looked at and finished, and
// the error says which one did not answer.
func TestAResourceThatHangsTakesNoTimeFromOthersByHand(t *testing.T) {
	for _, hung := range []participanttest.Call{participanttest.CallDescribe, participanttest.CallList, participanttest.CallCommit} {
		bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
			r.stuck(&atomic.Bool{}).kill()
			time.Sleep(lease + time.Second)
			ns := participant.Namespace{Name: "test", Incarnation: 1}
			r.stores["dir"].Plant(participant.BranchName{Namespace: ns, Pipeline: pipeline, Member: "all", Resource: "dir", Generation: 1, N: 900}, "never decided")
			out := r.stores["out"].Process()
			out.SetHook(func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
				if call != hung || when == participanttest.After {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
			x, err := resolver.New(resolver.Config{Client: r.cl, Resources: []resolver.Resource{
				{Name: "out", Finisher: out, Text: "memory out"}, {Name: "dir", Finisher: r.stores["dir"].Process()},
			}})
			if err != nil {
				t.Fatal(err)
			}
			limited := func() context.Context {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				t.Cleanup(cancel)
				return ctx
			}
			found, lookErr := x.Look(limited(), true)
			ended := 0
			for _, f := range found {
				if f.Ended {
					ended++
				}
			}
			if ended != 1 {
				t.Errorf("%v hangs: %d things were rolled back in the other resource, want 1", hung, ended)
			}
			done, finishErr := x.Finish(limited(), "")
			if n := len(r.stores["dir"].Prepared()); n != 0 {
				t.Errorf("%v hangs: %d things are left in the other resource: %v", hung, n, done)
			}
			all := errors.Join(lookErr, finishErr)
			for _, f := range done {
				all = errors.Join(all, f.Err)
			}
			if all == nil || !strings.Contains(all.Error(), "memory out did not answer within ") || strings.Contains(all.Error(), "context deadline") || !errors.Is(all, context.DeadlineExceeded) {
				t.Errorf("%v hangs: %v", hung, all)
			}
		})
	}
}
