package state_test

import (
	"testing"

	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/state/statetest"
)

func TestConformanceOfTheDirectory(t *testing.T) {
	path := t.TempDir()
	statetest.Run(t, statetest.Kit{Open: func(t testing.TB) state.Store {
		d, err := state.OpenDir(path)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}})
}
