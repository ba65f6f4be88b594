package participant

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/mutant"
)

// Journal remembers, for a service that cannot list what is prepared in it, what was begun: every T is in it
// before anything is written under it, and until its outcome is known. So whatever a dead process
// left is found by whoever has the journal: the member that takes its place, which must, and a resolver.
// Package journal has one in a file; one that machines share may be a table in a database.
//
// Its methods may be called from several goroutines and processes at once. An error means unknown.
type Journal interface {
	// Update changes one entry: change is given what stands there (nil: nothing) and returns what shall (nil:
	// nothing). Updates of one key come one after the other. What was changed is durable on return. An error
	// of change is returned, wrapped or not, and changes nothing. Only Update makes a journal that does not exist.
	Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error

	// Entries are those whose keys begin with prefix, as of one moment not before the call. That the
	// journal does not exist is an error: a wrong address must not look like an empty one.
	Entries(ctx context.Context, prefix string) (map[string][]byte, error)
}

// entryState is how far a T has come. What has ended is kept for a while.
type entryState string

const (
	entryBegun      entryState = "begun"
	entryPreparing  entryState = "being prepared"
	entryPrepared   entryState = "prepared"
	entryCommitted  entryState = "committed"
	entryRolledBack entryState = "rolled back"
)

func (s entryState) ended() bool { return s == entryCommitted || s == entryRolledBack }

// entry is what the journal has of one T, in JSON.
type entry struct {
	State entryState `json:"state"`
	// Name of the branch.
	Name string `json:"branch"`
	// Body is T, encoded, until it has ended.
	Body []byte `json:"t,omitempty"`
	// At is when it was begun, and once it has ended when that was: Unix milliseconds.
	At int64 `json:"at"`
}

// Keys in the journal.
const (
	entryPrefix = "t/"
	fencePrefix = "fence/"
	// ownerKey is whose the journal is.
	ownerKey = "service"
)

// outcomesKept is how long the journal tells how a T ended. Somebody who has listed it before and calls
// Rollback or Commit later than that calls the service once more, which bears it.
const outcomesKept = 10 * time.Minute

// change updates one entry.
func (r *TwoPhaseResource[T]) change(ctx context.Context, key string, f func(old *entry) (*entry, error)) error {
	return r.c.Journal.Update(ctx, entryPrefix+key, func(data []byte) ([]byte, error) {
		old, err := readEntry(key, data)
		if err != nil {
			return nil, err
		}
		e, err := f(old)
		switch {
		case err != nil:
			return nil, err
		case e == nil:
			return nil, nil
		case e == old:
			return data, nil
		}
		return json.Marshal(e)
	})
}

func (r *TwoPhaseResource[T]) put(ctx context.Context, key string, e entry) error {
	return r.change(ctx, key, func(*entry) (*entry, error) { return &e, nil })
}

// readEntry reads one; nil where there is none.
func readEntry(key string, data []byte) (*entry, error) {
	if data == nil {
		return nil, nil
	}
	e := &entry{}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("the journal's entry %s cannot be read: %w: %w", key, ErrMisconfigured, err)
	}
	switch e.State {
	case entryBegun, entryPreparing, entryPrepared, entryCommitted, entryRolledBack:
		return e, nil
	}
	return nil, fmt.Errorf("the journal's entry %s is %q, which this version does not know: %w", key, e.State, ErrMisconfigured)
}

// entries are all of this journal, by key. Outcomes that were kept long enough go.
func (r *TwoPhaseResource[T]) entries(ctx context.Context) (map[string]*entry, error) {
	if err := r.owned(ctx); err != nil {
		return nil, err
	}
	found, err := r.c.Journal.Entries(ctx, entryPrefix)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", r.c.Text, err)
	}
	all := make(map[string]*entry, len(found))
	oldest := time.Now().Add(-outcomesKept).UnixMilli()
	for key, data := range found {
		key = strings.TrimPrefix(key, entryPrefix)
		e, err := readEntry(key, data)
		if err != nil {
			return nil, err
		}
		if !e.State.ended() || e.At >= oldest {
			all[key] = e
			continue
		}
		err = r.c.Journal.Update(ctx, entryPrefix+key, func(now []byte) ([]byte, error) {
			if bytes.Equal(now, data) {
				return nil, nil
			}
			return now, nil
		})
		if err != nil {
			return nil, fmt.Errorf("take an old outcome from the journal of %s: %w", r.c.Text, err)
		}
	}
	return all, nil
}

// own makes the journal this service's, unless it is another's: what that one has begun would else be listed as
// this one's, and be taken for rolled back once this one, which has never heard of it, has aborted it.
func (r *TwoPhaseResource[T]) own(ctx context.Context) error {
	err := r.c.Journal.Update(ctx, ownerKey, func(old []byte) ([]byte, error) {
		return []byte(r.service()), r.mineIs(old)
	})
	if err != nil {
		return fmt.Errorf("open the journal of %s: %w", r.c.Text, err)
	}
	return nil
}

// owned is an error if the journal is another service's.
func (r *TwoPhaseResource[T]) owned(ctx context.Context) error {
	found, err := r.c.Journal.Entries(ctx, ownerKey)
	if err == nil {
		err = r.mineIs(found[ownerKey])
	}
	if err == nil && found[ownerKey] == nil {
		err = r.everOpened(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the journal of %s: %w", r.c.Text, err)
	}
	return nil
}

func (r *TwoPhaseResource[T]) service() string { return r.c.Kind + " " + r.c.Identity }

// mineIs compares with what the journal says; one that nobody has opened since this is noted says nothing.
func (r *TwoPhaseResource[T]) mineIs(owner []byte) error {
	if owner != nil && string(owner) != r.service() && !mutant.On("twophase/one-service-per-journal") {
		return fmt.Errorf("it is the journal of %q, and this is %q: give each service its own: %w", owner, r.service(), ErrMisconfigured)
	}
	return nil
}

// fenceKey is one per holder; none of its parts has a slash but the scope, which has one.
func fenceKey(ns Namespace, scope, member, resource string) string {
	return fencePrefix + ns.String() + "/" + scope + "/" + member + "/" + resource
}

// raise sets the fence of a holder; ErrFenced when it is higher already.
func (r *TwoPhaseResource[T]) raise(ctx context.Context, o Opening) error {
	err := r.c.Journal.Update(ctx, fenceKey(o.Namespace, o.Scope, o.Member, o.Resource), func(old []byte) ([]byte, error) {
		have, err := readFence(old)
		if err != nil {
			return nil, err
		}
		if have > o.Generation && !mutant.On("twophase/fence") {
			return nil, fmt.Errorf("%w by generation %d", ErrFenced, have)
		}
		return strconv.AppendUint(nil, o.Generation, 10), nil
	})
	if err != nil {
		return fmt.Errorf("open generation %d of %s in %s: %w", o.Generation, o.Scope, r.c.Text, err)
	}
	return nil
}

func readFence(data []byte) (uint64, error) {
	if data == nil {
		return 0, nil
	}
	g, err := strconv.ParseUint(string(data), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the journal's fence %q cannot be read: %w", data, ErrMisconfigured)
	}
	return g, nil
}
