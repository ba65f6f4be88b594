package participanttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unisink/unisink/participant"
)

// NeverPrepared is the handle of a branch that nobody prepared.
func (s *Store) NeverPrepared(name participant.BranchName) participant.Handle {
	return participant.Handle{Kind: Kind, Version: 1, Identity: s.identity, Alias: name.Resource, Name: name.String() + "#none"}
}

// mine reports whether a handle is this store's to finish.
func (s *Store) mine(h participant.Handle) error {
	if s.broken == takesAnyHandle {
		return nil
	}
	if h.Kind != Kind || h.Version != 1 || h.Identity != s.identity {
		return fmt.Errorf("%w: %s version %d of %q, this is %s version 1 of %q",
			participant.ErrUnknownHandle, h.Kind, h.Version, h.Identity, Kind, s.identity)
	}
	return nil
}

// Commit implements participant.Resource.
func (m *Memory) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	return m.finish(ctx, CallCommit, h, participant.Committed)
}

// Rollback implements participant.Resource.
func (m *Memory) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	return m.finish(ctx, CallRollback, h, participant.RolledBack)
}

func (m *Memory) finish(ctx context.Context, call Call, h participant.Handle, want participant.Verdict) (participant.Proof, error) {
	var proof participant.Proof
	if m.store.broken == deadlineAborts && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		want, ctx = participant.RolledBack, context.WithoutCancel(ctx)
	}
	err := m.around(ctx, call, h.Name, func() error {
		m.store.mu.Lock()
		defer m.store.mu.Unlock()
		if err := m.store.mine(h); err != nil {
			return err
		}
		var err error
		proof, err = m.store.bring(h, want)
		return err
	})
	if err != nil {
		return m.store.misled(want, err)
	}
	return proof, nil
}

// bring ends a prepared branch, or tells how it ended. Called with mu held.
func (s *Store) bring(h participant.Handle, want participant.Verdict) (participant.Proof, error) {
	p := s.prepared[h.Name]
	if p == nil && s.form.forgetful {
		return participant.Proof{Verdict: want, Evidence: "the call succeeded", Asserted: true}, nil
	}
	if p == nil {
		switch ended, ok := s.markers[h.Name]; {
		case ok && s.broken == repeatsWrite && ended == participant.Committed && want == participant.Committed:
			s.committed = append(s.committed, "again")
			return participant.Proof{Verdict: ended, Evidence: "written once more"}, nil
		case ok:
			return participant.Proof{Verdict: ended, Evidence: "marker of " + h.Name}, nil
		case want == participant.RolledBack && s.broken != unknownFails:
			return participant.Proof{Verdict: participant.RolledBack, Evidence: "nothing prepared as " + h.Name}, nil
		case s.broken == absenceProves:
			return participant.Proof{Verdict: participant.Committed, Evidence: "nothing left to do"}, nil
		}
		return participant.Proof{}, fmt.Errorf("%s is neither prepared nor finished", h.Name)
	}
	delete(s.prepared, h.Name)
	if s.broken == marksLate {
		s.pause()
	}
	if want == participant.Committed {
		if s.broken != visibleEarly {
			s.committed = append(s.committed, s.spoilt(p)...)
		}
		s.trail = append(s.trail, "commit "+p.name.String())
		s.changed(Change{Call: CallCommit, Name: p.name, Handle: h.Name, Records: slices.Clone(p.records)})
	} else {
		s.trail = append(s.trail, "roll back "+p.name.String())
		s.changed(Change{Call: CallRollback, Name: p.name, Handle: h.Name})
		if s.broken == rollbackPublishes {
			s.committed = append(s.committed, p.records...)
		}
	}
	if s.broken != noMarkers && !s.form.forgetful {
		s.markers[h.Name] = want
	}
	return participant.Proof{Verdict: want, Evidence: "finished " + h.Name, Asserted: s.form.forgetful}, nil
}

// Inspect implements participant.Resource.
func (m *Memory) Inspect(ctx context.Context, h participant.Handle) (participant.State, error) {
	state := participant.Unknown
	err := m.around(ctx, CallInspect, h.Name, func() error {
		m.store.mu.Lock()
		defer m.store.mu.Unlock()
		if err := m.store.mine(h); err != nil {
			return err
		}
		if m.store.prepared[h.Name] != nil {
			state = participant.Undecided
			if m.store.broken == inspectCommits {
				_, err := m.store.bring(h, participant.Committed)
				return err
			}
			return nil
		}
		switch m.store.markers[h.Name] {
		case participant.Committed:
			state = participant.StateCommitted
		case participant.RolledBack:
			state = participant.StateRolledBack
		default:
		}
		return nil
	})
	return state, err
}

// List implements participant.Resource.
func (m *Memory) List(ctx context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	var all []participant.Listed
	err := m.around(ctx, CallList, ns.String(), func() error {
		m.store.mu.Lock()
		defer m.store.mu.Unlock()
		for _, p := range m.store.prepared {
			prefix := m.store.broken == listsByPrefix && strings.HasPrefix(p.name.Namespace.Name, ns.Name)
			if p.name.Namespace == ns && !m.store.hides(p) || prefix {
				all = append(all, participant.Listed{Handle: p.handle, Name: p.name, Since: p.since})
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b participant.Listed) int { return strings.Compare(a.Handle.Name, b.Handle.Name) })
	return all, err
}
