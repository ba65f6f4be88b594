//go:build !faults

package fault_test

import (
	"testing"

	"github.com/unisink/unisink/internal/fault"
)

func TestWithoutTheTagPointsDoNothing(t *testing.T) {
	t.Setenv(fault.Env, "some/point=crash")
	fault.Point("some/point")
	if err := fault.Err("some/point"); err != nil {
		t.Errorf("Err = %v", err)
	}
	if names := fault.Names(); names != nil {
		t.Errorf("Names = %v", names)
	}
}

func TestWithoutTheTagSetRefusesToBeIgnored(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Set took a hook that no point will call")
		}
	}()
	fault.Set(func(string) error { return nil })
}
