package processor

import (
	"errors"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/processortest"
)

// Two groups have one store and a pipeline of one name: the second is refused before it reads, writes or deletes there.
func TestF1_ARestoreTouchesNoStateOfAnotherGroup(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r, dir := stored(t, src)
	r.restart()
	r.must(dir.Put(r.ctx, "test.0.main.window.0.1.1", []byte("of the first")))
	r.must(dir.Put(r.ctx, "test.0.~group", []byte("first")))
	restore, _, err := r.scope.Open(r.ctx)
	r.must(err)
	restore.Namespace.Name = "second"
	if err := newTask(r.build(), "test", 0, nil).Restore(r.ctx, restore); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("restored, %v; want misconfigured", err)
	}
	if got := list(r, dir); len(got) != 1 {
		t.Errorf("%v is left", got)
	}
	restore.Namespace.Name = "first"
	r.must(newTask(r.build(), "test", 0, nil).Restore(r.ctx, restore))
}
