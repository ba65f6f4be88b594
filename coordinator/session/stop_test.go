package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// A stop is complete when everything is proven. The processes that could prove it died in between:
// whoever starts them again must not be left waiting for each other.
func TestP22_AStopIsCompletedByMembersThatComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		for _, r := range robots {
			r.set(func() { r.deaf = true }) // it finishes nothing from here on
		}
		w.within(5*time.Second, "an epoch that is decided and not proven", func() bool {
			var unfinished []ledger.Unfinished
			w.now().c.Log.View(func(m *ledger.Machine) { unfinished, _ = m.ScopeOutstanding(scope0) })
			return len(unfinished) > 0
		})
		w.desire(ledger.Stopping)
		for _, r := range robots {
			r.die()
		}
		w.within(10*time.Second, "the generation's close", func() bool { return !w.newest().Open })
		time.Sleep(5 * time.Second)
		if d := w.pipeline().Desired; d != ledger.Stopping {
			t.Fatalf("with branches unproven and nobody there the pipeline is %s", d)
		}
		back := w.start("source", "sink")
		w.within(20*time.Second, "stopped", func() bool { return w.pipeline().Desired == ledger.Stopped })
		for _, r := range back {
			<-r.gone
		}
		w.atomic()
		w.fall()
	})
}
