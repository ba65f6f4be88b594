package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// P24: a poison record made restarts, debts and ids at full speed.
func TestP24_BackOffIsKeptAndToldAndEndsInAHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		for _, r := range robots {
			r.set(func() { r.mute = true }) // no epoch is ever voted for: prepare times out
		}
		began := time.Now()
		w.within(5*time.Minute, "halted", func() bool { h := ""; w.log.view(func(m *ledger.Machine) { h = m.Halted(scope0) }); return h != "" })
		if n := w.log.count("OpenGeneration"); n > 40 {
			t.Errorf("%d openings were proposed in %s", n, time.Since(began))
		}
		var waits string
		w.within(5*time.Second, "the halt told", func() bool {
			robots[1].set(func() { waits = robots[1].waits })
			return strings.Contains(waits, "halted: 10 generations in a row decided nothing")
		})
		if st := w.now().Status(scope0); !strings.Contains(st.WaitingFor, "to be resumed by an operator") {
			t.Errorf("status: %q", st.WaitingFor)
		}
		opened := w.log.count("OpenGeneration")
		time.Sleep(time.Minute)
		if n := w.log.count("OpenGeneration"); n != opened {
			t.Error("a halted scope was opened, or tried to be")
		}
		for _, r := range robots {
			r.set(func() { r.mute = false })
		}
		w.admin(ledger.Resume{Scope: scope0, Why: "the record is gone"})
		w.within(5*time.Second, "an epoch", func() bool { return w.newest().Final > 0 })
		robots[0].die()
		robots[1].die()
		w.atomic()
		w.fall()
	})
}

func TestP24_WaitingSaysWhenTheNextStartIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		w.admin(ledger.CloseGeneration{Scope: scope0, Generation: 1, Cause: "by hand"})
		source.expect("close 1")
		for got := ""; !strings.Contains(got, "the next start at"); {
			got = describe(source.next())
			if strings.HasPrefix(got, "restore") {
				t.Fatal("restored without back-off")
			}
		}
		at := time.Now()
		source.expect("restore 2")
		if took := time.Since(at); took < 150*time.Millisecond {
			t.Errorf("the next generation came after %s, want 200ms", took)
		}
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

// A leader's clock is ahead, so that the next start is far away by it, and is set right before that.
func TestP24_AClockThatIsSetRightDelaysNoStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		w.log.set(2 * time.Minute)
		w.admin(ledger.CloseGeneration{Scope: scope0, Generation: 1, Cause: "by hand"})
		source.expect("close 1")
		for got := ""; !strings.Contains(got, "the next start at"); {
			got = describe(source.next())
		}
		w.log.set(0)
		at := time.Now()
		source.expect("restore 2")
		if took := time.Since(at); took > 5*time.Second {
			t.Errorf("the next generation came after %s", took)
		}
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestUnknownOutcomeOfADecisionIsSettledByTheLog(t *testing.T) {
	for name, applied := range map[string]bool{"applied": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "source", "sink")
				robots := w.start("source", "sink")
				w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
				w.log.mu.Lock()
				var n atomic.Int64
				w.log.fault = func(c ledger.Command) (error, bool) {
					if n.Add(1)%3 == 0 && c.Actor != "test" {
						return errUnknown, applied
					}
					return nil, false
				}
				w.log.mu.Unlock()
				at := w.newest().Final
				w.within(20*time.Second, "ten more epochs", func() bool { return w.newest().Final >= at+10 })
				w.desire(ledger.Stopping)
				w.within(20*time.Second, "stopped", func() bool { return w.pipeline().Desired == ledger.Stopped })
				<-robots[0].gone
				<-robots[1].gone
				if rec := w.newest(); rec.Generation != 1 {
					t.Errorf("generation %d: an unknown outcome ended the first", rec.Generation)
				}
				w.atomic()
				w.fall()
			})
		})
	}
}

func TestSoloCallerWhoseDeadlinePassedLearnsTheDecisionByAskingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "all")
		ctx, cancel := context.WithCancel(t.Context())
		l := w.attach(attachRequest("all", "a"), 100)
		l.renew(ctx, true)
		l.expect("welcome")
		l.expect("restore 1")
		if err := l.ready(1); err != nil {
			t.Fatal(err)
		}
		if s := l.expect("start 1").GetStart(); !s.GetSolo() || s.GetMaxPending() != 2 || s.GetInlineLimit() != 64<<10 {
			t.Errorf("start: %v", s)
		}
		applied := make(chan struct{})
		w.log.mu.Lock()
		w.log.hold["Decide"] = applied
		w.log.mu.Unlock()
		req := &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{Scope: l.req.GetScope(), Member: "all", Instance: "a", Vote: yes("all", 1, 1)}}
		short, stop := context.WithTimeout(ctx, time.Second)
		if _, err := w.now().Decide(short, req); err == nil {
			t.Fatal("decided while the log was held")
		}
		stop()
		close(applied)
		for range 2 {
			resp, err := w.now().Decide(ctx, req)
			if err != nil || resp.GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
				t.Fatalf("asked again: %v, %v", resp, err)
			}
		}
		// One that waits when the generation is closed hears how it ended, and so does one that comes later.
		w.log.mu.Lock()
		w.log.hold["Decide"] = make(chan struct{})
		w.log.mu.Unlock()
		req.Vote.Vote = yes("all", 1, 2)
		time.AfterFunc(time.Second, func() {
			w.admin(ledger.CloseGeneration{Scope: scope0, Generation: 1, Cause: "by hand"})
		})
		for range 2 {
			short, stop := context.WithTimeout(ctx, 5*time.Second)
			resp, err := w.now().Decide(short, req)
			stop()
			if err != nil || resp.GetOutcome() != unisinkv1.Outcome_OUTCOME_ABORTED || resp.GetFinal() != 1 || resp.GetCause() != "by hand" {
				t.Errorf("after the close: %v, %v", resp, err)
			}
		}
		cancel()
		l.cut()
		w.fall()
	})
}

func TestVoteMeasuredByAnotherTermIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		v := yes("sink", 1, 1)
		left := int64(60_000)
		v.Branches[0].TimeLeftMs = &left
		v.Stamp = &unisinkv1.Stamp{Term: 77, ClockNs: 1}
		resp, err := sink.voteFor(v)
		if err != nil || !resp.GetSendAgain() || resp.GetStamp().GetTerm() != 1 {
			t.Fatalf("%v, %v", resp, err)
		}
		v.Stamp = resp.GetStamp()
		if resp, err = sink.voteFor(v); err != nil || resp.GetSendAgain() {
			t.Fatalf("%v, %v", resp, err)
		}
		if _, err := source.voteFor(yes("source", 1, 1)); err != nil {
			t.Fatal(err)
		}
		sink.expect("committed 1.1")
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestHeuristicProofHaltsAndEndsTheGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		for _, l := range []*link{source, sink} {
			if _, err := l.voteFor(yes(l.req.GetMember(), 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		sink.expect("committed 1.1")
		_, err := w.now().Resolved(ctx, &unisinkv1.ResolvedRequest{
			Scope: sink.req.GetScope(), Member: "sink", Instance: "b", Generation: 1,
			Proofs: []*unisinkv1.BranchProof{{
				Epoch: &unisinkv1.Epoch{Generation: 1, N: 1}, Member: "sink", Resource: "out",
				Proof: &unisinkv1.Proof{Verdict: unisinkv1.Verdict_VERDICT_ROLLED_BACK, Evidence: "the broker timed it out"},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		sink.expect("close 1 at 1: branch sink/out of epoch 1.1")
		source.expect("committed 1.1")
		source.expect("close 1 at 1")
		source.quiet(10 * time.Second)
		if st := w.now().Status(scope0); !strings.Contains(st.WaitingFor, "it is halted: branch sink/out") {
			t.Errorf("status: %q", st.WaitingFor)
		}
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestMisconfiguredMemberHaltsTheScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		no := &unisinkv1.Vote{
			Epoch: &unisinkv1.Epoch{Generation: 1, N: 1}, Kind: unisinkv1.VoteKind_VOTE_KIND_NO,
			Reason: "topic has no leader", ReasonClass: unisinkv1.ErrorClass_ERROR_CLASS_MISCONFIGURED,
		}
		if _, err := sink.voteFor(no); err != nil {
			t.Fatal(err)
		}
		source.expect("close 1")
		source.quiet(5 * time.Second)
		halted := ""
		w.log.view(func(m *ledger.Machine) { halted = m.Halted(scope0) })
		if halted != "topic has no leader" {
			t.Errorf("halted: %q", halted)
		}
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestMemberThatCannotRestoreEndsTheGenerationBeforeAnybodyStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := w.attach(attachRequest("source", "a"), 100), w.attach(attachRequest("sink", "b"), 100)
		source.renew(ctx, false)
		sink.renew(ctx, false)
		source.expect("welcome")
		source.expect("restore 1")
		if err := source.ready(1); err != nil {
			t.Fatal(err)
		}
		lost := &unisinkv1.Vote{
			Epoch: &unisinkv1.Epoch{Generation: 1, N: 1}, Kind: unisinkv1.VoteKind_VOTE_KIND_LOST,
			Reason: "no rights in the directory", ReasonClass: unisinkv1.ErrorClass_ERROR_CLASS_MISCONFIGURED,
		}
		var n atomic.Int64
		w.log.mu.Lock()
		w.log.fault = func(ledger.Command) (error, bool) { // the close is lost twice
			if n.Add(1) <= 2 {
				return errUnknown, false
			}
			return nil, false
		}
		w.log.mu.Unlock()
		for range 2 { // a repeat is harmless
			if _, err := sink.voteFor(lost); err != nil {
				t.Fatal(err)
			}
		}
		source.expect("close 1 at 0: member sink could not restore: no rights in the directory")
		halted := ""
		w.log.view(func(m *ledger.Machine) { halted = m.Halted(scope0) })
		if halted != "no rights in the directory" {
			t.Errorf("halted: %q", halted)
		}
		if n := w.log.count("CloseGeneration"); n != 1 {
			t.Errorf("%d closes", n)
		}
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestDecisionThatTheLogNeverTakesEndsTheGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		w.log.mu.Lock()
		w.log.fault = func(c ledger.Command) (error, bool) {
			if _, ok := c.Body.(ledger.Decide); ok {
				return errors.New("too large"), false
			}
			return nil, false
		}
		w.log.mu.Unlock()
		for _, l := range []*link{source, sink} {
			if _, err := l.voteFor(yes(l.req.GetMember(), 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		sink.expect("close 1 at 0: epoch 1.1 cannot be proposed: too large")
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestStoppedPipelineWaitsForItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		w.desire(ledger.Stopped)
		source, sink := w.attach(attachRequest("source", "a"), 100), w.attach(attachRequest("sink", "b"), 100)
		source.expect("welcome")
		if got := describe(source.next()); got != "waiting for pipeline orders to be started; it is stopped: `unisink pipeline start orders` lets it run" {
			t.Errorf("got %q", got)
		}
		w.desire(ledger.Running)
		source.expect("restore 1")
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestStopWithoutAnOpenGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		w.desire(ledger.Stopping) // nobody has ever attached
		w.within(3*time.Second, "stopped", func() bool { return w.pipeline().Desired == ledger.Stopped })
		w.fall()
	})
}

func TestChangedSpecificationIsTakenOverWhenAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		sink.cut()
		changed := attachRequest("sink", "c")
		changed.Fingerprint, changed.AllowChangedSpecification = "f2", true
		sink = w.attach(changed, 100)
		sink.expect("welcome")
		source.expect("close 1")
		source.expect("fenced: member source runs specification \"f1\", pipeline orders has \"f2\"")
		source.ended(grpcerr.ChangedSpecification)
		if p := w.pipeline(); p.Fingerprint != "f2" {
			t.Errorf("the pipeline has %q", p.Fingerprint)
		}
		cancel()
		sink.cut()
		w.fall()
	})
}

func TestFromScratchCountsOnceForAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "all")
		robots := w.start("all")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		robots[0].die()
		req := attachRequest("all", "fresh")
		req.FromScratch = true
		ctx, cancel := context.WithCancel(t.Context())
		l := w.attach(req, 100)
		l.renew(ctx, false)
		l.expect("welcome")
		l.expect("restore 2 from nothing")
		if err := l.ready(2); err != nil {
			t.Fatal(err)
		}
		l.expect("start 2")
		v := yes("all", 2, 1)
		if _, err := w.now().Decide(ctx, &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{Scope: l.req.GetScope(), Member: "all", Instance: "fresh", Vote: v}}); err != nil {
			t.Fatal(err)
		}
		w.admin(ledger.CloseGeneration{Scope: scope0, Generation: 2, Cause: "by hand"})
		l.expect("committed 2.1")
		l.expect("close 2 at 1")
		l.expect("restore 3 from 2.1")
		cancel()
		l.cut()
		w.fall()
	})
}

func TestDeletedPipelineTurnsItsMembersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		l := w.attach(attachRequest("sink", "b"), 100)
		l.expect("welcome")
		w.admin(ledger.DeletePipeline{Name: pipelineName, Revision: w.pipeline().Revision})
		l.expect("fenced: there is no pipeline")
		l.ended(grpcerr.NotFound)
		w.fall()
	})
}

func TestRetiredPartsAreHandedToTheirMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := running(ctx, w)
		w.now().Retired([]ledger.Retired{{Scope: scope0, Member: "sink", Part: "p1"}, {Scope: scope0, Member: "sink", Part: "p2"}})
		sink.expect("retired p1,p2")
		source.quiet(time.Second)
		cancel()
		source.cut()
		sink.cut()
		w.fall()
	})
}

func TestEventsTellALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		robots[1].die()
		w.within(5*time.Second, "closed", func() bool { return !w.newest().Open })
		for _, k := range []eventlog.Kind{
			eventlog.MemberAttached, eventlog.GenerationStarted, eventlog.Barrier, eventlog.Vote, eventlog.MemberLost,
		} {
			if evs := w.happened(k); len(evs) == 0 || evs[0].Term != 1 || evs[0].Scope != scope0 || evs[0].At.IsZero() {
				t.Errorf("%s: %+v", k, evs)
			}
		}
		robots[0].die()
		w.fall()
	})
}

func TestInlineLimitLeavesRoomForHandles(t *testing.T) {
	p := func(members, resources int) (p ledger.Pipeline) {
		for range members {
			p.Members = append(p.Members, ledger.MemberSpec{Resources: make([]ledger.ResourceSpec, resources)})
		}
		return p
	}
	var got []uint32
	for _, c := range [][2]int{{1, 1}, {2, 2}, {10, 1}, {40, 1}} {
		got = append(got, inlineLimit(p(c[0], c[1]), c[0]))
	}
	if want := []uint32{64 << 10, 64 << 10, (512<<10 - 160<<10) / 10, 0}; !slices.Equal(got, want) {
		t.Errorf("limits %v, want %v", got, want)
	}
}
