package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

// ownerID stands in the store behind the scope; it is no id of a part.
const ownerID = "~group"

// Claim notes in the store whose parts of this scope are in it, and refuses one in which another coordinator group keeps
// a scope of this name. Each counts its generations by itself: the one would write over parts of the other, and
// delete what no restore point of its own names. A repeat changes nothing.
func (s *Snapshots) Claim(ctx context.Context, group string) error {
	if s.cfg.Store == nil || group == "" || mutant.On("checkpoint/one-group-per-store") {
		return nil
	}
	id := s.cfg.Scope + ownerID
	owner, err := s.cfg.Store.Get(ctx, id)
	if errors.Is(err, state.ErrNoPart) {
		if err := s.cfg.Store.Put(ctx, id, []byte(group)); err != nil {
			return err
		}
		owner, err = s.cfg.Store.Get(ctx, id) // another may have put its own at the same time
	}
	switch {
	case err != nil:
		return err
	case string(owner) != group:
		return fmt.Errorf("%w: %s keeps the state of a pipeline of this name for the group %q, and this is group %q: give each a store of its own; if the other is gone, delete %s from it",
			participant.ErrMisconfigured, s.cfg.Store.Name(), owner, group, id)
	}
	return nil
}
