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
		w.atomic(robots...)
		if n := w.log.count("OpenGeneration"); n != 1 {
			t.Errorf("%d generations were opened, want 1", n)
		}
		w.fall()
	})
}
