package fault

import (
	"slices"
	"testing"
)

func TestEveryKnownPointCanBeNamedInAPlan(t *testing.T) {
	names := Known()
	if len(names) == 0 || !slices.IsSorted(names) {
		t.Fatalf("Known() = %q, want sorted names", names)
	}
	for _, n := range names {
		if _, err := parse(n + "@1=crash"); err != nil {
			t.Error(err)
		}
	}
}
