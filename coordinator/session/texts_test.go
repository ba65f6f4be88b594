package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// What a process has called its resources is shown for as long as this leader leads, though the process is gone and
// nothing is left to do in its scope: it is then that people ask what lies where.
func TestResourcesKeepTheirNamesWhenTheirProcessIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		text := func(member string) string {
			for _, m := range w.now().Status(scope0).Members {
				if m.Name == member {
					return m.Texts["out"]
				}
			}
			return "no member"
		}
		call := func(member, what string) *link {
			req := attachRequest(member, member+"-"+what)
			req.Resources[0].Text = what
			return w.attach(req, 100)
		}
		kept := func() int {
			r, err := w.now().current()
			if err != nil {
				t.Fatal(err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.texts)
		}
		sink := call("sink", "the old place")
		sink.expect("welcome")
		sink.cut()
		time.Sleep(time.Minute) // its lease is over, and the actor has ended
		if kept() != 1 {
			t.Fatalf("the texts of %d scopes are kept, want one: its actor has not ended", kept())
		}
		if got := text("sink"); got != "the old place" {
			t.Errorf("the sink is called %q", got)
		}
		source := call("source", "the well")
		source.expect("welcome")
		source.cut()
		time.Sleep(time.Minute)
		if a, b := text("source"), text("sink"); a != "the well" || b != "the old place" {
			t.Errorf("they are called %q and %q", a, b)
		}
		again := call("sink", "the new place")
		again.expect("welcome")
		if got := text("sink"); got != "the new place" {
			t.Errorf("its newest process is not heard: %q", got)
		}
		again.cut()
		time.Sleep(time.Minute)

		w.admin(ledger.SetDesired{Pipeline: pipelineName, From: ledger.Running, To: ledger.Stopped})
		w.admin(ledger.DeletePipeline{Name: pipelineName, Revision: w.pipeline().Revision})
		time.Sleep(time.Minute)
		if kept() != 0 {
			t.Errorf("the texts of %d scopes are kept, and there is no pipeline", kept())
		}
		w.fall()
	})
}
