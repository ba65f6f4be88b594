package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

// Two groups with a pipeline of one name: generations and epochs are the same numbers in both, and so are ids of parts.
func TestF1_AStoreOfAnotherGroupIsLeftAlone(t *testing.T) {
	store, err := state.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mine, other := New(config(store, 8)), New(config(store, 8))
	for range 2 {
		if err := mine.Claim(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
	}
	err = other.Claim(t.Context(), "staging")
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), `"orders"`) || !strings.Contains(err.Error(), `"staging"`) {
		t.Errorf("claimed twice: %v", err)
	}
	if err := mine.Sweep(t.Context(), 9, nil); err != nil {
		t.Fatal(err)
	}
	if err := other.Claim(t.Context(), "staging"); err == nil {
		t.Error("a sweep took the claim away")
	}
}
