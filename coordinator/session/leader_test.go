package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// The sink has voted for an epoch; the source has not. Then the leader falls.
func TestLeaderChangeInMidRoundDecidesWithRepeatedVotesAndRestartsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		robots[0].set(func() { robots[0].mute = true })
		w.within(5*time.Second, "a round with one vote", func() bool { return w.now().Status(scope0).RoundsOpen == 2 })
		before := w.newest().Final
		w.fall()
		robots[0].set(func() { robots[0].mute = false })
		time.Sleep(time.Second) // nobody leads
		w.lead()
		w.within(3*time.Second, "the rounds of the old leader decided", func() bool { return w.newest().Final >= before+2 })
		w.within(5*time.Second, "more epochs", func() bool { return w.newest().Final >= before+6 })
		for _, r := range robots {
			r.set(func() {
				if r.starts != 1 || r.st.GetGeneration() != 1 {
					t.Errorf("%s was started %d times, is in generation %d", r.member, r.starts, r.st.GetGeneration())
				}
			})
		}
		if n := w.log.count("CloseGeneration"); n != 0 {
			t.Errorf("%d closes", n)
		}
		robots[0].die()
		robots[1].die()
		w.atomic()
		w.fall()
	})
}

func TestLeaderChangeOfASoloScopeRestartsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "all")
		robots := w.start("all")
		for range 5 {
			at := w.newest().Final
			w.within(5*time.Second, "two more epochs", func() bool { return w.newest().Final >= at+2 })
			w.fall()
			w.lead()
		}
		if rec := w.newest(); rec.Generation != 1 || !rec.Open {
			t.Errorf("generation %d, open %v; want the first, open", rec.Generation, rec.Open)
		}
		robots[0].die()
		w.atomic()
		w.fall()
	})
}

func TestLeaderChangeWhileRestoringStartsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		source, sink := w.attach(attachRequest("source", "a"), 100), w.attach(attachRequest("sink", "b"), 100)
		source.expect("welcome")
		sink.expect("welcome")
		source.expect("restore 1")
		sink.expect("restore 1")
		if err := source.ready(1); err != nil {
			t.Fatal(err)
		}
		w.fall()
		source.ended("NOT_LEADER")
		sink.ended("NOT_LEADER")
		w.lead()
		// The source has said Ready; the sink restores on and has not been told otherwise.
		ready := attachRequest("source", "a")
		ready.Standing.Generation, ready.Standing.Phase = 1, 3
		restoring := attachRequest("sink", "b")
		restoring.Standing.Generation, restoring.Standing.Phase = 1, 2
		source, sink = w.attach(ready, 100), w.attach(restoring, 100)
		source.expect("welcome")
		sink.expect("welcome")
		if err := sink.ready(1); err != nil {
			t.Fatal(err)
		}
		source.expect("start 1")
		sink.expect("start 1")
		if n := w.log.count("CloseGeneration"); n != 0 {
			t.Errorf("%d closes", n)
		}
		w.fall()
		<-source.done
		<-sink.done
	})
}

// The old leader opened a generation and fell before anybody heard Restore.
func TestNewLeaderRepeatsARestoreThatNobodyHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		w.fall()
		w.admin(ledger.OpenGeneration{Scope: scope0, Fingerprint: "f1", Members: []ledger.MemberInstance{{Member: "sink", Instance: "b"}, {Member: "source", Instance: "a"}}})
		w.lead()
		source, sink := w.attach(attachRequest("source", "a"), 100), w.attach(attachRequest("sink", "b"), 100)
		source.expect("welcome")
		source.expect("restore 1")
		sink.expect("welcome")
		sink.expect("restore 1")
		w.fall()
		<-source.done
		<-sink.done
	})
}

func TestNewLeaderClosesWhenAMemberIsMissingAfterALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		w.fall()
		robots[1].die()
		w.lead()
		began := time.Now()
		w.within(5*time.Second, "closed", func() bool { return !w.newest().Open })
		if took := time.Since(began); took < 2900*time.Millisecond {
			t.Errorf("closed after %s, before a lease had passed", took)
		}
		robots[0].die()
		w.atomic()
		w.fall()
	})
}

func TestNewLeaderClosesWhenAMemberHasLostItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		w.fall()
		robots[1].set(func() {
			robots[1].st.Phase, robots[1].st.Generation = 1, 0
			clear(robots[1].votes)
		})
		w.lead()
		w.within(2*time.Second, "closed", func() bool { return w.newest().Generation > 1 || !w.newest().Open })
		robots[0].die()
		robots[1].die()
		w.fall()
	})
}

// P18: after a failover everything was proven, but the new leader counted it as open.
func TestP18_ProvenThroughOfAStandingMakesRoomForTheNextBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "four epochs", func() bool { return w.newest().Final >= 4 })
		robots[0].set(func() { robots[0].idle = true })
		time.Sleep(2 * time.Second)
		at := w.newest().Final
		w.fall()
		w.lead()
		w.within(time.Second, "both attached", func() bool { return w.now().Status(scope0).WaitingFor == "" })
		robots[0].set(func() { robots[0].idle = false })
		w.within(2*time.Second, "the next epoch", func() bool { return w.newest().Final > at })
		robots[0].die()
		robots[1].die()
		w.atomic()
		w.fall()
	})
}

// P22: a stop was forgotten in a failover; the pipeline ran on, or started again.
func TestP22_StopSurvivesAFailover(t *testing.T) {
	for name, after := range map[string]time.Duration{"P22/at once": 0, "P22/final barrier under way": 150 * time.Millisecond, "P22/decided": 400 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "source", "sink")
				robots := w.start("source", "sink")
				w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
				if after > 0 {
					robots[1].set(func() { robots[1].deaf = true }) // it never says what is proven
				}
				w.desire(ledger.Stopping)
				time.Sleep(after)
				w.fall()
				time.Sleep(500 * time.Millisecond)
				robots[1].set(func() { robots[1].deaf = false })
				w.lead()
				w.within(8*time.Second, "stopped", func() bool { return w.pipeline().Desired == ledger.Stopped })
				<-robots[0].gone
				<-robots[1].gone
				w.atomic()
				if n := w.log.count("OpenGeneration"); n != 1 {
					t.Errorf("%d generations were opened, want 1", n)
				}
				w.fall()
			})
		})
	}
}

// P23: a duplicate process took a member's name in the moment after a failover, when all streams
// were gone.
func TestP23_NewcomerWaitsForALeaseWhenThisLeaderDidNotSeeTheStreamEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		w.fall()
		w.lead()
		began := time.Now()
		twin := w.attach(attachRequest("sink", "twin"), 100)
		if got := describe(twin.next()); got != "waiting for instance sink-1, which holds member sink of scope orders/0, to end or to be silent for its lease of 3s" {
			t.Errorf("the twin hears %q", got)
		}
		w.within(2*time.Second, "the sink attached again", func() bool { return w.now().Status(scope0).Members[1].Attached })
		twin.quiet(10 * time.Second) // the old one lives
		if g := w.newest(); g.Generation != 1 || !g.Open {
			t.Errorf("generation %d, open %v: the twin has ended it", g.Generation, g.Open)
		}
		robots[1].die() // seen by this leader
		twin.expect("welcome")
		if time.Since(began) < 10*time.Second {
			t.Error("too early")
		}
		robots[0].die()
		twin.cut()
		w.fall()
	})
}

func TestP23_DeadMemberIsReplacedAfterALeaseOfTheNewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		w.fall()
		robots[1].die()
		w.lead()
		began := time.Now()
		twin := w.attach(attachRequest("sink", "twin"), 100)
		twin.expect("welcome")
		if took := time.Since(began); took < 2900*time.Millisecond || took > 3200*time.Millisecond {
			t.Errorf("the newcomer had the name after %s, want a lease of 3s", took)
		}
		robots[0].die()
		twin.cut()
		w.fall()
	})
}

func TestDeposedLeaderDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		for range 6 {
			w.fall()
			w.lead()
			time.Sleep(700 * time.Millisecond)
		}
		if rec := w.newest(); rec.Generation != 1 || !rec.Open {
			t.Errorf("generation %d, open %v", rec.Generation, rec.Open)
		}
		w.log.mu.Lock()
		seen := map[string]bool{}
		for _, line := range w.log.applied {
			if strings.HasPrefix(line, "Decide") && !strings.Contains(line, "refused") {
				if seen[line] {
					t.Errorf("twice in the log: %s", line)
				}
				seen[line] = true
			}
		}
		w.log.mu.Unlock()
		robots[0].die()
		robots[1].die()
		w.atomic()
		w.fall()
	})
}

// Of two sources one has seen the final barrier of a drain when the leader falls.
func TestP22_NewLeaderOrdersTheFinalBarrierAgainAsTheDrainItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "source2")
		w.fall()
		w.admin(ledger.OpenGeneration{Scope: scope0, Fingerprint: "f1", Members: []ledger.MemberInstance{{Member: "source", Instance: "a"}, {Member: "source2", Instance: "b"}}})
		w.desire(ledger.Draining)
		w.lead()
		saw, missed := attachRequest("source", "a"), attachRequest("source2", "b")
		for _, r := range []*unisinkv1.AttachRequest{saw, missed} {
			r.Standing.Generation, r.Standing.Phase = 1, unisinkv1.Phase_PHASE_RUNNING
		}
		saw.Standing.NewestBarrier, saw.Standing.NewestBarrierFinal = 1, true
		a := w.attach(saw, 100)
		a.expect("welcome")
		b := w.attach(missed, 100)
		b.expect("welcome")
		b.expect("barrier 1.1 final drain")
		a.cut()
		b.cut()
		w.fall()
	})
}

// The last epoch is decided and proven, but the old leader fell before it wrote the proofs down.
func TestP22_LastProofsAreWrittenBeforeTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		w.fall()
		members := []ledger.MemberInstance{{Member: "sink", Instance: "b"}, {Member: "source", Instance: "a"}}
		w.admin(ledger.OpenGeneration{Scope: scope0, Fingerprint: "f1", Members: members})
		w.desire(ledger.Stopping)
		decide := ledger.Decide{Scope: scope0, Epoch: ledger.Epoch{Generation: 1, N: 1}, Final: true}
		for _, m := range members {
			decide.Votes = append(decide.Votes, wire.Vote(m.Member, m.Instance, yes(m.Member, 1, 1)))
		}
		w.admin(decide)
		w.lead()
		var links []*link
		for _, m := range members {
			req := attachRequest(m.Member, m.Instance)
			req.Standing = &unisinkv1.Standing{
				Generation: 1, Phase: unisinkv1.Phase_PHASE_RUNNING, NewestBarrier: 1, NewestBarrierFinal: true, NewestOutcome: 1, ProvenThrough: 1,
			}
			links = append(links, w.attach(req, 100))
		}
		for _, l := range links {
			l.expect("welcome")
			l.expect("close 1 at 1: stopped: the last epoch is proven")
			l.expect("stop")
			l.cut()
		}
		if n := w.log.count("Resolve"); n != 2 {
			t.Errorf("%d proofs in the log, want 2", n)
		}
		w.fall()
	})
}
