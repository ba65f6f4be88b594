package adapters

import (
	"context"
	"errors"
	"testing"

	"github.com/unisink/unisink/processor/state"
)

// kept is a store that counts how often it is opened and closed.
type kept struct {
	state.Store
	open *int
}

func (k kept) Close() error { *k.open--; return nil }

func TestAStoreIsOpenedWhenItIsNeededAndOnce(t *testing.T) {
	dir := t.TempDir()
	tries, open := 0, 0
	l := &lateStore{name: "test:state", open: func(context.Context) (closingStore, error) {
		if tries++; tries == 1 {
			return nil, errors.New("nothing answers")
		}
		d, err := state.OpenDir(dir)
		open++
		return kept{d, &open}, err
	}}
	if l.Name() != "test:state" || tries != 0 {
		t.Errorf("%q, opened %d times before it was used", l.Name(), tries)
	}
	if err := l.Put(t.Context(), "p", []byte("x")); err == nil {
		t.Error("a part was put where nothing answers")
	}
	for range 2 {
		if err := l.Put(t.Context(), "p", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if body, err := l.Get(t.Context(), "p"); err != nil || string(body) != "x" {
		t.Errorf("%q, %v", body, err)
	}
	if ids, err := l.List(t.Context(), ""); err != nil || len(ids) != 1 {
		t.Errorf("%q, %v", ids, err)
	}
	if err := l.Delete(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if tries != 2 || open != 1 {
		t.Errorf("opened %d times, %d are open", tries, open)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil || open != 0 {
		t.Errorf("closed: %v, %d are open", err, open)
	}
	if _, err := l.Get(t.Context(), "p"); !errors.Is(err, state.ErrNoPart) || open != 1 {
		t.Errorf("after it was closed: %v, %d are open", err, open)
	}
	if err := l.Close(); err != nil || open != 0 {
		t.Errorf("closed again: %v, %d are open", err, open)
	}
}
