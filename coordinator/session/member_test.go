package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func TestMemberSilentForItsLeaseEndsTheGenerationAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := w.attach(attachRequest("source", "a"), 100), w.attach(attachRequest("sink", "b"), 100)
		source.renew(ctx, false)
		began := time.Now() // the sink never renews
		source.expect("welcome")
		source.expect("restore 1")
		source.expect("close 1 at 0: member sink (instance b) was silent for its lease of 3s")
		if took := time.Since(began); took < 2900*time.Millisecond || took > 3200*time.Millisecond {
			t.Errorf("closed after %s, want the lease of 3s", took)
		}
		sink.ended(grpcerr.LeaseLost)
		// It attaches again and is part of the next generation.
		again := attachRequest("sink", "b")
		again.Standing.Generation, again.Standing.Phase = 1, unisinkv1.Phase_PHASE_RESTORING
		sink = w.attach(again, 100)
		sink.expect("welcome")
		sink.expect("close 1 at 0")
		sink.expect("restore 2")
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestMemberThatVotesIsNotSilentThoughItDoesNotRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		robots[1].set(func() { robots[1].curt = true }) // the sink
		time.Sleep(10 * time.Second)                    // of the bubble
		if g := w.newest(); g.Generation != 1 || !g.Open {
			t.Errorf("generation %d, open %v: %s", g.Generation, g.Open, g.Cause)
		}
		robots[1].set(func() { robots[1].mute = true })
		w.within(4*time.Second, "the end of one that says nothing at all", func() bool { return w.newest().Generation != 1 || !w.newest().Open })
		w.fall()
	})
}

func TestALeaderThatSleptDoesNotTakeItsMembersForSilent(t *testing.T) {
	now := time.Now()
	s := &scope{members: map[string]*member{"a": {instance: "1", lease: now.Add(-time.Second)}, "gone": {}}}
	s.seen.pipeline.Settings.Lease = 3000
	s.overslept(100*time.Millisecond, now)
	if got := s.members["a"].lease; !got.Equal(now.Add(-900 * time.Millisecond)) {
		t.Errorf("a moment late: the lease ends %s from now", got.Sub(now))
	}
	s.overslept(1500*time.Millisecond, now) // half of the lease: renewals may wait unread
	if got := s.members["a"].lease; !got.Equal(now.Add(time.Second)) {
		t.Errorf("a long time late: the lease ends %s from now", got.Sub(now))
	}
	if !s.members["gone"].lease.IsZero() {
		t.Error("a name that nobody holds has a lease")
	}
}

func TestNewcomerTakesOverAtOnceWhenTheStreamWasSeenToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		time.Sleep(2 * time.Second) // of the bubble: what ends younger is delayed (P24)
		final := w.newest().Final
		robots[1].die()
		began := time.Now()
		next := w.attach(attachRequest("sink", "sink-2"), 100)
		next.expect("welcome")
		next.expect("restore 2")
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the newcomer waited %s", took)
		}
		if w.happened(eventlog.MemberLost)[0].Member != "sink" {
			t.Error("no event names the member that was lost")
		}
		if rec := w.newest(); !strings.Contains(rec.Cause, "sink was replaced") {
			t.Errorf("generation 2 was opened because: %s", rec.Cause)
		}
		_, err := w.now().Resolved(t.Context(), &unisinkv1.ResolvedRequest{
			Scope: next.req.GetScope(), Member: "sink", Instance: "sink-2", Generation: 1, ProvenThrough: final,
		})
		if reason, _ := grpcerr.Reason(err); reason != grpcerr.Fenced {
			t.Errorf("a claim for a generation that the process was not in: %v", err)
		}
		robots[0].die()
		next.cut()
		w.fall()
	})
}

func TestSecondProcessWaitsForTheLivingOneOrIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		hasty := attachRequest("sink", "hasty")
		hasty.NoWait = true
		l := w.attach(hasty, 10)
		l.ended(grpcerr.MemberAlive)
		if _, meta := grpcerr.Reason(l.err); meta[grpcerr.MetaInstance] != "sink-1" {
			t.Errorf("the refusal names %v", meta)
		}
		// One that has a past was replaced: it must not write on.
		zombie := attachRequest("sink", "zombie")
		zombie.Standing.Generation, zombie.Standing.Phase = 1, unisinkv1.Phase_PHASE_RUNNING
		l = w.attach(zombie, 10)
		l.expect("fenced")
		l.ended(grpcerr.Fenced)
		patient := w.attach(attachRequest("sink", "patient"), 10)
		patient.quiet(5 * time.Second)
		if g := w.newest(); g.Generation != 1 {
			t.Errorf("generation %d", g.Generation)
		}
		robots[1].die()
		patient.expect("welcome")
		patient.expect("restore 2")
		robots[0].die()
		patient.cut()
		w.fall()
	})
}

func TestConnectionThatIsCutAndComesBackRestartsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		sink.cut()
		source.quiet(2 * time.Second)
		back := attachRequest("sink", "b")
		back.Standing.Generation, back.Standing.Phase = 1, unisinkv1.Phase_PHASE_RUNNING
		sink = w.attach(back, 100)
		sink.expect("welcome")
		source.quiet(5 * time.Second)
		if g := w.newest(); !g.Open || g.Generation != 1 {
			t.Errorf("generation %d, open %v", g.Generation, g.Open)
		}
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

// running attaches source "a" and sink "b" and brings them to generation 1, started.
func running(ctx context.Context, w *world) (source, sink *link) {
	w.t.Helper()
	source, sink = w.attach(attachRequest("source", "a"), 100), w.attach(attachRequest("sink", "b"), 100)
	source.expect("welcome")
	sink.expect("welcome")
	source.expect("restore 1")
	sink.expect("restore 1")
	source.renew(ctx, false)
	sink.renew(ctx, false)
	for _, l := range []*link{source, sink} {
		if err := l.ready(1); err != nil {
			w.t.Fatal(err)
		}
	}
	source.expect("start 1")
	sink.expect("start 1")
	return source, sink
}

func TestMemberThatDoesNotReadItsOrdersLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := w.attach(attachRequest("source", "a"), 100), w.attach(attachRequest("sink", "b"), 1)
		source.renew(ctx, false)
		sink.renew(ctx, false)
		source.expect("welcome")
		source.expect("restore 1")
		source.expect("close 1 at 0: member sink (instance b) has not read its orders for a lease of 3s")
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestP23_StreamThatTheLeaderEndedSaysNothingOfTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		for range maxQueue + 200 { // nobody reads so many orders in no time
			w.now().Retired([]ledger.Retired{{Scope: scope0, Member: "sink", Part: "p"}})
			synctest.Wait()
		}
		for len(sink.out) > 0 {
			<-sink.out
		}
		sink.ended(grpcerr.Slow)
		twin := w.attach(attachRequest("sink", "twin"), 100)
		twin.quiet(2 * time.Second)
		if g := w.newest(); g.Generation != 1 || !g.Open {
			t.Errorf("generation %d, open %v: the twin has ended it", g.Generation, g.Open)
		}
		cancel()
		source.cut()
		twin.cut()
		w.fall()
	})
}

func TestLeaveClosesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		for range 2 { // a repeat is harmless
			if _, err := w.now().Leave(ctx, &unisinkv1.LeaveRequest{Scope: sink.req.GetScope(), Member: "sink", Instance: "b", Cause: "shut down"}); err != nil {
				t.Fatal(err)
			}
		}
		sink.ended("")
		source.expect("close 1 at 0: member sink (instance b) left: shut down")
		cancel()
		source.cut()
		w.fall()
	})
}

func TestNothingIsRolledBackBeforeTheCloseIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		applied := make(chan struct{})
		w.log.mu.Lock()
		w.log.hold["CloseGeneration"] = applied
		w.log.mu.Unlock()
		no := &unisinkv1.Vote{Epoch: &unisinkv1.Epoch{Generation: 1, N: 1}, Kind: unisinkv1.VoteKind_VOTE_KIND_NO, Reason: "disk full"}
		if _, err := sink.voteFor(no); err != nil {
			t.Fatal(err)
		}
		source.quiet(time.Second)
		sink.quiet(time.Second)
		close(applied)
		source.expect("close 1 at 0: member sink votes no for epoch orders/0@1.1: disk full")
		sink.expect("close 1 at 0")
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

// P17: a survivor rolled back a decided epoch whose Committed it had not heard when its
// generation was closed.
func TestP17_CloseCarriesFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		sink.cut() // it does not hear the decision, and comes back after the close
		for _, l := range []*link{source, sink} {
			if _, err := l.voteFor(yes(l.req.GetMember(), 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		source.expect("committed 1.1")
		lost := &unisinkv1.Vote{Epoch: &unisinkv1.Epoch{Generation: 1, N: 2}, Kind: unisinkv1.VoteKind_VOTE_KIND_LOST, Reason: "gone"}
		if _, err := source.voteFor(lost); err != nil {
			t.Fatal(err)
		}
		source.expect("close 1 at 1")
		back := attachRequest("sink", "b")
		back.Standing.Generation, back.Standing.Phase = 1, unisinkv1.Phase_PHASE_RUNNING
		back.Standing.Votes = []*unisinkv1.Vote{yes("sink", 1, 1)}
		sink = w.attach(back, 100)
		sink.expect("welcome")
		sink.expect("close 1 at 1")
		if o := sink.expect("restore 2 from 1.1, 2 unfinished"[:len("restore 2 from 1.1")]); len(o.GetRestore().GetUnfinished()) != 1 {
			t.Errorf("restore lists %v", o.GetRestore().GetUnfinished())
		}
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestAnswersOfStrangersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		scope := sink.req.GetScope()
		reason := func(what string, err error, want string) {
			t.Helper()
			if got, _ := grpcerr.Reason(err); got != want {
				t.Errorf("%s: %v, want reason %s", what, err, want)
			}
		}
		m := w.now()
		_, err := m.Vote(ctx, &unisinkv1.VoteRequest{Scope: scope, Member: "sink", Instance: "twin", Vote: yes("sink", 1, 1)})
		reason("vote of another instance", err, grpcerr.Fenced)
		_, err = m.Decide(ctx, &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{Scope: scope, Member: "sink", Instance: "twin", Vote: yes("sink", 1, 1)}})
		reason("decide of another instance", err, grpcerr.Fenced)
		_, err = m.Decide(ctx, &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{Scope: scope, Member: "sink", Instance: "b", Vote: yes("sink", 1, 1)}})
		reason("decide in a scope of two", err, grpcerr.Invalid)
		_, err = m.Ready(ctx, &unisinkv1.ReadyRequest{Scope: scope, Member: "sink", Instance: "twin", Generation: 1})
		reason("ready of another instance", err, grpcerr.Fenced)
		_, err = m.Renew(ctx, &unisinkv1.RenewRequest{Scope: scope, Member: "sink", Instance: "twin"})
		reason("renew of another instance", err, grpcerr.Fenced)
		_, err = m.Resolved(ctx, &unisinkv1.ResolvedRequest{Scope: scope, Member: "sink", Instance: "twin", Generation: 1, ProvenThrough: 1})
		reason("proof of another instance", err, grpcerr.Fenced)
		_, err = m.Vote(ctx, &unisinkv1.VoteRequest{Scope: scope, Member: "sink", Instance: "b", Vote: yes("sink", 9, 1)})
		reason("vote of an unknown generation", err, grpcerr.Invalid)
		_, err = m.Vote(ctx, &unisinkv1.VoteRequest{Scope: scope, Member: "sink", Instance: "b", Vote: &unisinkv1.Vote{}})
		reason("empty vote", err, grpcerr.Invalid)
		_, err = m.Renew(ctx, &unisinkv1.RenewRequest{Scope: &unisinkv1.Scope{Pipeline: "no/name"}})
		reason("bad name", err, grpcerr.Invalid)
		_, err = m.Renew(ctx, &unisinkv1.RenewRequest{Scope: scope, Member: "nobody", Instance: "b"})
		reason("renew of nobody", err, grpcerr.LeaseLost)

		w.admin(ledger.CloseGeneration{Scope: scope0, Generation: 1, Cause: "by hand"})
		sink.expect("close 1 at 0: by hand")
		sink.expect("restore 2")
		_, err = m.Vote(ctx, &unisinkv1.VoteRequest{Scope: scope, Member: "sink", Instance: "b", Vote: yes("sink", 1, 1)})
		reason("vote of a closed generation", err, grpcerr.Closed)
		if _, meta := grpcerr.Reason(err); meta[grpcerr.MetaGeneration] != "1" || meta[grpcerr.MetaFinal] != "0" {
			t.Errorf("the refusal says %v", meta)
		}
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestVoteOfAClosedGenerationBringsTheCloseOrderAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		source.cut() // so that no next generation opens
		w.admin(ledger.CloseGeneration{Scope: scope0, Generation: 1, Cause: "by hand"})
		sink.expect("close 1 at 0: by hand")
		if _, err := sink.voteFor(yes("sink", 1, 1)); err == nil {
			t.Fatal("the vote was taken")
		}
		sink.expect("close 1 at 0: by hand")
		cancel()
		sink.cut()
		w.fall()
	})
}

func TestAttachIsRefusedWithWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		for name, c := range map[string]struct {
			change func(*unisinkv1.AttachRequest)
			reason string
		}{
			"unknown pipeline":  {func(r *unisinkv1.AttachRequest) { r.Scope.Pipeline = "other" }, grpcerr.NotFound},
			"unknown shard":     {func(r *unisinkv1.AttachRequest) { r.Scope.Shard = 7 }, grpcerr.NotFound},
			"undeclared member": {func(r *unisinkv1.AttachRequest) { r.Member = "other" }, grpcerr.NotFound},
			"bad name":          {func(r *unisinkv1.AttachRequest) { r.Member = "a.b" }, grpcerr.Invalid},
			"no instance":       {func(r *unisinkv1.AttachRequest) { r.Instance = "" }, grpcerr.Invalid},
			"other resources":   {func(r *unisinkv1.AttachRequest) { r.Resources[0].Kind = "kafka" }, grpcerr.Invalid},
			"undeclared resource": {func(r *unisinkv1.AttachRequest) {
				r.Resources = append(r.Resources, &unisinkv1.ResourceInfo{Name: "in", Kind: "memory"}, &unisinkv1.ResourceInfo{Name: "more", Kind: "memory", HasBranches: true})
			}, grpcerr.Invalid},
			"no resources":       {func(r *unisinkv1.AttachRequest) { r.Resources = nil }, grpcerr.Invalid},
			"other fingerprint":  {func(r *unisinkv1.AttachRequest) { r.Fingerprint = "f2" }, grpcerr.ChangedSpecification},
			"newer term obeyed":  {func(r *unisinkv1.AttachRequest) { r.Term = 99 }, grpcerr.NotLeader},
			"generation unknown": {func(r *unisinkv1.AttachRequest) { r.Standing.Generation, r.Standing.Phase = 9, 4 }, grpcerr.Fenced},
		} {
			req := attachRequest("sink", "b")
			c.change(req)
			l := w.attach(req, 10)
			<-l.done
			if got, _ := grpcerr.Reason(l.err); got != c.reason {
				t.Errorf("%s: %v, want reason %s", name, l.err, c.reason)
			}
		}
		leader := w.now()
		w.fall()
		l := w.attach(attachRequest("sink", "b"), 10)
		l.ended(grpcerr.NotLeader)
		if st := leader.Status(scope0); st.Leads {
			t.Error("a node that does not lead says it does")
		}
	})
}

func TestIdleScopesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		l := w.attach(attachRequest("sink", "b"), 10)
		l.expect("welcome")
		l.cut()
		time.Sleep(4 * time.Second)
		w.now().reign.mu.Lock()
		n := len(w.now().reign.scopes)
		w.now().reign.mu.Unlock()
		if n != 0 {
			t.Errorf("%d scopes are kept, nobody is attached", n)
		}
		w.fall()
	})
}

func TestMemberThatLostItsStateAfterTheStartEndsTheGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		sink.cut()
		sink = w.attach(attachRequest("sink", "b"), 100) // the same process, and knows nothing
		source.expect("close 1 at 0: member sink (instance b) attached in generation 0, idle, and can no longer be part of generation 1")
		source.expect("restore 2")
		sink.expect("welcome")
		sink.expect("close 1 at 0")
		sink.expect("restore 2")
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}
