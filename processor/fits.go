package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/checkpoint"
	"github.com/unisink/unisink/processor/state"
)

// GoesOn says whether the pipeline's source is configured for the positions of a restore point (generation, n): a
// source that was renamed is not, nor one from which something was taken out that had been read. So it can
// be refused before anything is declared or halted; the restore judges again. Nothing is changed or
// connected to, and it may be called at any time. The error is ErrMisconfigured.
func (p *Pipeline) GoesOn(generation, n uint64, positions []participant.Position) error {
	knows, _ := p.source.(interface{ Knows(split string) error })
	for _, at := range positions {
		if at.Resource != p.sourceName {
			return fmt.Errorf("restore point %d.%d: %w", generation, n, otherSource(at.Resource, p.sourceName))
		}
		if knows == nil {
			continue
		}
		if err := knows.Knows(at.Split); err != nil {
			return fmt.Errorf("restore point %d.%d has a position of source %q that it would not go on from: %w: %w; put it back, or start from scratch",
				generation, n, p.sourceName, participant.ErrMisconfigured, err)
		}
	}
	return nil
}

func otherSource(was, is string) error {
	return fmt.Errorf("%w: it has positions of source %q, and the source's name is %q now: give it its old name, or start from scratch",
		participant.ErrMisconfigured, was, is)
}

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
