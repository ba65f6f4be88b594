package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/checkpoint"
	"github.com/unisink/unisink/processor/state"
)

// errEnough ends a load when all is known.
var errEnough = errors.New("the first part was read")

// Fits says whether the pipeline can go on with the state of a restore point (generation, n), as far as its
// first part tells: the operator's id, what it computes, its key groups. So a change can be refused before
// anything is declared or halted. The other parts are read by the restore alone. Nothing is changed or
// connected to, and it may be called at any time. The error is ErrMisconfigured, or names what can't be read.
func (p *Pipeline) Fits(ctx context.Context, generation, n uint64, parts []participant.StatePart) error {
	op := p.newOperator()
	snap := checkpoint.New(checkpoint.Config{Member: p.settings.member, Operator: p.operatorID, KeyGroups: p.settings.keyGroups})
	r := participant.Restore{RestoreGeneration: generation, RestoreN: n, Parts: parts}
	err := snap.Load(ctx, r, func(meta []byte) (state.Keyed, error) {
		if err := op.restore(meta, nil); err != nil {
			return nil, err
		}
		return nil, errEnough
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return fmt.Errorf("state of operator %q at restore point %d.%d: %w", p.operatorID, generation, n, err)
}
