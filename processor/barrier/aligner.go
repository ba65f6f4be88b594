package barrier

import (
	"errors"
	"fmt"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/processor/stream"
)

// ErrOrder says that a barrier came out of order: the stream before it is broken.
var ErrOrder = errors.New("barrier out of order")

// Aligner holds back the inputs of a stage that are ahead, until the barrier of the same epoch has come
// from all of them. What came from an input before its barrier belongs to the epoch, what comes after
// does not; so an input must not be read while it is Blocked.
type Aligner struct {
	generation uint64
	// n is the epoch that is being aligned: the last one that was aligned, and 1.
	n       uint64
	arrived []bool
	waiting int
	current stream.Barrier
	ended   []bool
	final   bool
}

// NewAligner makes an aligner over inputs many inputs, for a generation whose first epoch is 1.
func NewAligner(inputs int, generation uint64) *Aligner {
	return &Aligner{generation: generation, n: 1, arrived: make([]bool, inputs), ended: make([]bool, inputs), waiting: inputs}
}

// Blocked reports whether an input has delivered the barrier that others still owe. After the final
// barrier every input is blocked.
func (a *Aligner) Blocked(input int) bool { return a.final || a.arrived[input] }

// Arrive takes a barrier from an input. Aligned: it was the last one missing; the stage must
// now snapshot, pass the returned barrier on, and may read all inputs again. Barriers of older
// generations are not for this stage and are dropped without an error.
func (a *Aligner) Arrive(input int, b stream.Barrier) (out stream.Barrier, aligned bool, err error) {
	switch {
	case b.Generation < a.generation:
		return stream.Barrier{}, false, nil
	case b.Generation > a.generation:
		return stream.Barrier{}, false, fmt.Errorf("%w: input %d delivers generation %d to a stage of generation %d", ErrOrder, input, b.Generation, a.generation)
	case a.Blocked(input) || a.ended[input]:
		return stream.Barrier{}, false, fmt.Errorf("%w: input %d delivers %d.%d while it is blocked or ended", ErrOrder, input, b.Generation, b.N)
	case b.N != a.n && !mutant.On("barrier/in-order"):
		return stream.Barrier{}, false, fmt.Errorf("%w: input %d delivers %d.%d, and %d.%d is next", ErrOrder, input, b.Generation, b.N, a.generation, a.n)
	case a.current.N == b.N && (a.current.Final != b.Final || a.current.Drain != b.Drain):
		return stream.Barrier{}, false, fmt.Errorf("%w: the inputs do not agree whether %d.%d is final", ErrOrder, b.Generation, b.N)
	}
	a.current = b
	a.arrived[input] = true
	a.waiting--
	out, aligned = a.complete()
	return out, aligned, nil
}

// End says that an input has ended and will deliver nothing more, barriers included. If the others
// have all delivered theirs, that aligns them.
func (a *Aligner) End(input int) (out stream.Barrier, aligned bool) {
	if a.ended[input] {
		return stream.Barrier{}, false
	}
	a.ended[input] = true
	if a.arrived[input] {
		return stream.Barrier{}, false
	}
	a.waiting--
	return a.complete()
}

// complete passes the barrier on when nobody owes it. Without any barrier there is nothing to pass.
func (a *Aligner) complete() (stream.Barrier, bool) {
	if a.waiting > 0 && !mutant.On("barrier/every-input") || a.current.N != a.n {
		return stream.Barrier{}, false
	}
	out := a.current
	a.n++
	a.final = out.Final
	for i := range a.arrived {
		a.arrived[i] = false
		if !a.ended[i] {
			a.waiting++
		}
	}
	return out, true
}
