package processor

import (
	"testing"

	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// noting is a source that notes a drain in its positions.
type noting struct{ *processortest.Source }

func (noting) Drained(p stream.Position) stream.Position {
	p.Opaque = []byte("drained")
	return p
}

func TestADrainIsNotedInThePositions(t *testing.T) {
	for _, drain := range []bool{false, true} {
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, func(r *rig) *Pipeline {
			p := sums(t)(r)
			p.source = noting{src}
			return p
		}, "one", "two")
		r.restart()
		src.Append("0", record("1", "a", 100, 1))
		r.poll()
		r.barrier(drain)
		r.decide()
		_, _, c := r.scope.Last()
		if got := string(c.Positions[0].Opaque) == "drained"; got != drain {
			t.Errorf("drained %v, and the position says %v", drain, got)
		}
	}
}
