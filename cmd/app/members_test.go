package app_test

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// TestMembersChangeWhileTheGroupDecides: processes, three to five and back to three, the leader among
// those that go; every transaction that was answered is known to all in the end.
func TestMembersChangeWhileTheGroupDecides(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	root := t.TempDir()
	var nodes []*served
	for _, id := range []string{"n1", "n2", "n3", "n4", "n5"} {
		n := newServed(t, root, id)
		n.start(t, "unisink")
		nodes = append(nodes, n)
	}
	groupOf(t, nodes[:3]...).bootstrap(t, nodes[:3]...) // asked of one that will be a member
	g := groupOf(t, nodes...)

	ctx, stop := context.WithCancel(g.ctx)
	defer stop()
	var mu sync.Mutex // guards answered and failed
	var answered []string
	var failed error
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				id, err := participant.NewTxnID()
				committed := false
				if err == nil {
					committed, err = decide(g, id)
				}
				mu.Lock()
				if committed {
					answered = append(answered, id)
				}
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	say := func(args ...string) {
		t.Helper()
		args = append([]string{"cluster"}, args...)
		for _, n := range nodes {
			args = append(args, "-c", n.client)
		}
		if text, err := exec.Command("unisink", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, text)
		}
	}
	say("add", "n4", nodes[3].client)
	say("add", "n5", nodes[4].client)
	leader := leading(t, g, nodes)
	say("transfer")
	if err := leader.cmd.Wait(); err != nil {
		t.Errorf("the leader that handed over: %v: %s", err, leader.said.String())
	}
	leader.cmd = nil
	say("remove", leader.id)
	left := without(nodes, leader)
	next := leading(t, groupOf(t, left...), left)
	for _, n := range left {
		if n != next {
			say("remove", n.id)
			left = without(left, n)
			_ = n.cmd.Process.Kill() // it may have ended by itself
			_ = n.cmd.Wait()         // with whatever code
			n.cmd = nil
			break
		}
	}
	time.AfterFunc(time.Second, stop)
	load.Wait()
	if failed != nil {
		t.Errorf("a decision was not made: %v", failed)
	}
	if len(answered) < 20 {
		t.Errorf("%d decisions are no load", len(answered))
	}
	t.Logf("%d decisions while five members came and went", len(answered))
	agree(t, left...)
	groupOf(t, left...).holds(t, answered...)
}

// decide commits one transaction, and reports whether it is: one whose answer was lost may be aborted
// by the question.
func decide(g group, id string) (committed bool, err error) {
	out, err := g.Commit(g.ctx, id, []participant.HandBranch{{Resource: "left", Handle: participant.Handle{
		Kind: "memory", Version: 1, Identity: "left", Alias: "left", Name: "n." + id,
	}}})
	for errors.Is(err, participant.ErrOutcomeUnknown) && g.ctx.Err() == nil {
		out, err = g.Outcome(g.ctx, id)
	}
	return err == nil && out == participant.OutcomeCommitted, err
}

func leading(t *testing.T, g group, nodes []*served) *served {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); pause(50 * time.Millisecond) {
		st, err := g.Cluster().Status(g.ctx, &unisinkv1.StatusRequest{})
		if err != nil {
			continue
		}
		for _, n := range nodes {
			if n.id == st.GetLeader() {
				return n
			}
		}
	}
	t.Fatal("nobody leads")
	return nil
}

func without(nodes []*served, gone *served) []*served {
	var left []*served
	for _, n := range nodes {
		if n != gone {
			left = append(left, n)
		}
	}
	return left
}
