//go:build !mutants

package mutant_test

import (
	"testing"

	"github.com/unisink/unisink/internal/mutant"
)

func TestWithoutTheTagNothingCanBeSwitchedOff(t *testing.T) {
	for _, m := range mutant.Known() {
		t.Setenv(mutant.Env, m.Name)
		if mutant.On(m.Name) {
			t.Errorf("%s is off in a build without -tags mutants", m.Name)
		}
	}
	if mutant.Enabled {
		t.Error("Enabled in a build without -tags mutants")
	}
}
