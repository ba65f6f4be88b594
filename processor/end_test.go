package processor

import (
	"testing"

	"github.com/unisink/unisink/processor/processortest"
)

// Before the epoch that holds the source's end is decided a restart may have to read it all again, so that alone makes it
// safe to drain.
func TestTheEpochThatHoldsTheEndOfTheSourceIsKnown(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	is := func(when string, want *EndIn) {
		t.Helper()
		r.task.show()
		s := r.task.p.Status()
		if (s.EndIn == nil) != (want == nil) || want != nil && *s.EndIn != *want {
			t.Errorf("%s: it ends in %+v, want %+v", when, s.EndIn, want)
		}
	}
	r.restart()
	src.Append("0", record("1", "a", 100, 1))
	src.End()
	for r.poll() {
	}
	is("read and not voted for", nil)
	r.barrier(false)
	is("voted for", &EndIn{r.task.gen, 1})
	r.restart() // never decided
	is("a new generation", nil)
	for r.poll() {
	}
	r.epoch()
	is("decided", &EndIn{r.task.gen, 1})
	r.epoch()
	is("later", &EndIn{r.task.gen, 1})
	r.restart()
	is("restored", nil)
	for r.poll() {
	}
	is("nothing new", &EndIn{r.task.gen, 0})
}
