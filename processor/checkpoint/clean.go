package checkpoint

import (
	"context"
	"strings"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
)

// Sweep deletes this member's parts of generations before this one that no kept restore point names.
// Parts of its own and newer generations are left alone: a process that was paused here for long would
// otherwise delete what its successor has written since.
func (s *Snapshots) Sweep(ctx context.Context, generation uint64, kept []string) error {
	if s.cfg.Store == nil {
		return nil
	}
	ids, err := s.cfg.Store.List(ctx, s.cfg.Scope+s.cfg.Member+".")
	if err != nil {
		return err
	}
	named := make(map[string]bool, len(kept))
	for _, id := range kept {
		named[id] = true
	}
	for _, stored := range ids {
		id := strings.TrimPrefix(stored, s.cfg.Scope)
		part, ok := parsePart(id)
		if !ok || part.member != s.cfg.Member || part.generation >= generation && !mutant.On("checkpoint/older-parts-only") || named[id] && !mutant.On("checkpoint/named-parts-kept") {
			continue
		}
		if err := s.cfg.Store.Delete(ctx, stored); err != nil {
			return err
		}
	}
	return nil
}

// Retired deletes parts that no restore point names any longer, as the ledger has said.
func (s *Snapshots) Retired(ctx context.Context, ids []string) error {
	if s.cfg.Store == nil {
		return nil
	}
	for _, id := range ids {
		// A first part lies in no store.
		if part, ok := parsePart(id); !ok || part.member != s.cfg.Member || part.index == 0 {
			continue
		}
		fault.Point("checkpoint/before-retire")
		if err := s.cfg.Store.Delete(ctx, s.cfg.Scope+id); err != nil {
			return err
		}
	}
	return nil
}
