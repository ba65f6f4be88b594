package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

func TestSourceAndSinkDecideEpochsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "five epochs", func() bool { return w.newest().Final >= 5 })
		source := robots[0].heard()
		for i, want := range []string{"welcome", "restore 1 from nothing, 0 unfinished, 0 debts", "start 1", "barrier 1.1", "committed 1.1", "barrier 1.2"} {
			if source[i] != want {
				t.Errorf("order %d to the source is %q, want %q", i, source[i], want)
			}
		}
		for _, o := range robots[1].heard() {
			if o == "barrier 1.1" {
				t.Error("the sink was ordered a barrier; only sources are")
			}
		}
		st := w.now().Status(scope0)
		if !st.Leads || st.WaitingFor != "" || len(st.Members) != 2 || st.Members[0].Phase != "running" || st.Members[0].LeaseLeft <= 0 {
			t.Errorf("status: %+v", st)
		}
		w.desire(ledger.Stopping)
		w.within(5*time.Second, "stopped", func() bool { return w.pipeline().Desired == ledger.Stopped })
		for _, r := range robots {
			<-r.gone
			if last := r.heard(); last[len(last)-1] != "stop" {
				t.Errorf("%s: last order is %q, want stop", r.member, last[len(last)-1])
			}
		}
		w.atomic()
		if n := w.log.count("OpenGeneration"); n != 1 {
			t.Errorf("%d generations were opened, want 1", n)
		}
		w.fall()
	})
}

func TestSoloScopeDecidesByItsOwnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "all")
		robots := w.start("all")
		w.within(5*time.Second, "five epochs", func() bool { return w.newest().Final >= 5 })
		for _, o := range robots[0].heard() {
			if o == "barrier 1.1" {
				t.Error("a scope with one member was ordered a barrier")
			}
		}
		w.desire(ledger.Stopping)
		w.within(5*time.Second, "stopped", func() bool { return w.pipeline().Desired == ledger.Stopped })
		<-robots[0].gone
		w.atomic()
		w.fall()
	})
}

func TestRestartCommitsWhatWasDecidedAndPaysDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		old := robots[1]
		old.set(func() { old.deaf = true })
		w.within(5*time.Second, "an epoch that the sink has not proven", func() bool {
			u := 0
			w.log.view(func(m *ledger.Machine) { l, _ := m.ScopeOutstanding(scope0); u = len(l) })
			return u > 0
		})
		old.die()
		next := &robot{w: w, member: "sink", instance: "sink-2"}
		next.run()
		robots[0].set(func() { robots[0].down = []*robot{next} })
		w.within(5*time.Second, "the next generation to decide", func() bool { return w.newest().Generation == 2 && w.newest().Final >= 2 })
		w.log.view(func(m *ledger.Machine) {
			u, d := m.ScopeOutstanding(scope0)
			for _, x := range u {
				if x.Epoch.Generation == 1 {
					t.Errorf("branch %s of %s is not proven", x.Branch, x.Epoch)
				}
			}
			if len(d) > 0 {
				t.Errorf("debts left: %v", d)
			}
		})
		if rec := w.newest(); rec.Cause == "" {
			t.Errorf("generation 2 has no cause")
		}
		robots[0].die()
		next.die()
		w.atomic()
		w.fall()
	})
}

func TestDrainReachesItsEndThroughARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "an epoch", func() bool { return w.newest().Final >= 1 })
		robots[1].die()
		w.desire(ledger.Draining)
		next := &robot{w: w, member: "sink", instance: "sink-2"}
		next.run()
		robots[0].set(func() { robots[0].down = []*robot{next} })
		w.within(10*time.Second, "stopped", func() bool { return w.pipeline().Desired == ledger.Stopped })
		<-robots[0].gone
		<-next.gone
		drained := false
		for _, o := range robots[0].heard() {
			drained = drained || o == "barrier 2.1 final drain"
		}
		if !drained {
			t.Errorf("no final barrier of the drain: %q", robots[0].heard())
		}
		w.atomic()
		w.fall()
	})
}
