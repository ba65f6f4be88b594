package barrier

import (
	"fmt"

	"github.com/unisink/unisink/processor/stream"
)

// Injector decides which barriers a source puts into its stream when it is ordered to. Every epoch's
// barrier is injected once, in order, however often it is ordered and by however many leaders; a
// source that missed orders injects what is missing back to back.
type Injector struct {
	generation uint64
	last       uint64
	final      bool
}

// NewInjector makes an injector for a generation, none of whose barriers was injected.
func NewInjector(generation uint64) *Injector { return &Injector{generation: generation} }

// Last is the newest epoch whose barrier was injected, and whether it was the final one.
func (i *Injector) Last() (n uint64, final bool) { return i.last, i.final }

// Order takes an order and returns the barriers to inject now, in order; none for a repeat or an
// order of an older generation. Only the last of them is final.
func (i *Injector) Order(b stream.Barrier) ([]stream.Barrier, error) {
	switch {
	case b.Generation < i.generation:
		return nil, nil
	case b.Generation > i.generation:
		return nil, fmt.Errorf("%w: barrier %d.%d is ordered from a source of generation %d", ErrOrder, b.Generation, b.N, i.generation)
	case b.N == 0:
		return nil, fmt.Errorf("%w: epochs begin at 1", ErrOrder)
	case b.N <= i.last:
		if b.N == i.last && b.Final && !i.final {
			return nil, fmt.Errorf("%w: %d.%d was injected, and is now ordered as the final one", ErrOrder, b.Generation, b.N)
		}
		return nil, nil
	case i.final:
		return nil, fmt.Errorf("%w: barrier %d.%d is ordered after the final one, %d", ErrOrder, b.Generation, b.N, i.last)
	}
	out := make([]stream.Barrier, 0, b.N-i.last)
	for n := i.last + 1; n < b.N; n++ {
		out = append(out, stream.Barrier{Generation: b.Generation, N: n})
	}
	i.last, i.final = b.N, b.Final
	return append(out, b), nil
}
