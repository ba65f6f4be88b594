package resolver_test

import (
	"testing"
	"time"
)

// Row L1. The pauses of a resolver grow while no coordinator answers. What is owed does not wait them out when one does.
func TestL1_WhatIsOwedIsFinishedAsSoonAsACoordinatorAnswersAgain(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		p := r.start(nil)
		r.until(20*time.Second, "the pipeline runs", func() bool { _, final := r.newest(); return final > 3 })
		r.resolve(nil)
		r.until(20*time.Second, "the resolver reports", func() bool { return r.told() != nil })
		id := r.IDs()[0]
		r.Crash(id)
		prepared := func() int { return len(r.stores["out"].Prepared()) + len(r.stores["dir"].Prepared()) }
		r.until(20*time.Second, "work is prepared that nobody can decide", func() bool { return prepared() > 0 })
		p.kill()
		time.Sleep(7*time.Minute + 3*time.Second)
		if prepared() == 0 {
			t.Fatal("it was ended without a coordinator")
		}
		r.Restart(id)
		r.until(20*time.Second, "the node leads", func() bool { return r.Leader() != "" })
		r.within(lease+2*time.Second, "nothing is left", r.left) // a second of it for the poll and the two listings
	})
}
