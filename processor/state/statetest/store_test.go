package statetest_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/state/statetest"
)

// fault is one thing that a store may do wrongly.
type fault string

const (
	none        fault = ""
	aliased     fault = "keeps the caller's bytes"
	first       fault = "a repeat appends"
	empty       fault = "what is not there is empty"
	undeletable fault = "nothing is deleted"
	unsorted    fault = "lists in any order"
	anyPrefix   fault = "lists everything"
	anyID       fault = "takes every id"
	truncates   fault = "cuts large parts"
	deaf        fault = "does not hear of a cancelled context"
)

type memory struct {
	fault fault
	mu    *sync.Mutex
	parts map[string][]byte
}

func (m *memory) Name() string { return "memory:" }

func (m *memory) heard(ctx context.Context) error {
	if m.fault == deaf {
		return nil
	}
	return ctx.Err()
}

func (m *memory) Put(ctx context.Context, id string, body []byte) error {
	if err := m.heard(ctx); err != nil {
		return err
	}
	letters := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~.", r)
	}
	if m.fault != anyID && (id == "" || id[0] == '.' || strings.ContainsFunc(id, letters)) {
		return fmt.Errorf("%q is no id", id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.fault {
	case aliased:
		m.parts[id] = body
	case first:
		m.parts[id] = append(m.parts[id], body...)
	case truncates:
		m.parts[id] = bytes.Clone(body[:min(len(body), 1<<20)])
	default:
		m.parts[id] = bytes.Clone(body)
	}
	return nil
}

func (m *memory) Get(ctx context.Context, id string) ([]byte, error) {
	if err := m.heard(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	body, ok := m.parts[id]
	m.mu.Unlock()
	if !ok && m.fault != empty {
		return nil, fmt.Errorf("%s: %w", id, state.ErrNoPart)
	}
	return bytes.Clone(body), nil
}

func (m *memory) Delete(ctx context.Context, id string) error {
	if err := m.heard(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != undeletable {
		delete(m.parts, id)
	}
	return nil
}

func (m *memory) List(ctx context.Context, prefix string) ([]string, error) {
	if err := m.heard(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m.parts)) {
		if m.fault == anyPrefix || strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	if m.fault == unsorted {
		slices.Reverse(ids)
	}
	return ids, nil
}

func kit(f fault) statetest.Kit {
	parts, mu := map[string][]byte{}, &sync.Mutex{}
	return statetest.Kit{Large: 9 << 20, Open: func(testing.TB) state.Store {
		return &memory{fault: f, mu: mu, parts: parts}
	}}
}

func TestAGoodStorePasses(t *testing.T) { statetest.Run(t, kit(none)) }

// recorder takes what a check says of a store that is broken.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true; runtime.Goexit() }
func (r *recorder) Fatal(...any)          { r.failed = true; runtime.Goexit() }
func (r *recorder) Helper()               {}

func TestEachCheckFindsAStoreThatBreaksItsRule(t *testing.T) {
	finds := map[string][]fault{
		"what was put is read, by another process too":      {aliased},
		"a repeat replaces":                                 {first},
		"P9/a part that is not there is no part":            {empty},
		"a deleted part is gone, for every process":         {undeletable},
		"a list is of a prefix, sorted, and of whole parts": {unsorted, anyPrefix},
		"an id that could leave the store is refused":       {anyID},
		"parts of every size come back as they were":        {truncates},
		"many at once do not mix":                           {undeletable},
		"a cancelled call ends":                             {deaf},
	}
	for _, c := range statetest.Checks() {
		if len(finds[c.Name]) == 0 {
			t.Errorf("no broken store for %q", c.Name)
			continue
		}
		for _, f := range append([]fault{none}, finds[c.Name]...) {
			k, r := kit(f), &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.Run(r, k)
			}()
			<-done
			if r.failed != (f != none) {
				t.Errorf("%q on a store that is broken by %q: failed %v", c.Name, f, r.failed)
			}
		}
	}
}
