package processor

import (
	"context"
	"fmt"

	"github.com/unisink/unisink/internal/mutant"
)

// carriers says for each sink which one's branches take its records: its own, or those of the first before it that
// shares them.
func carriers(ctx context.Context, sinks []namedSink) ([]int, error) {
	out := make([]int, len(sinks))
	for i, s := range sinks {
		out[i] = i
		for j, first := range sinks[:i] {
			if out[j] != j || mutant.On("processor/one-branch") {
				continue
			}
			by, ok := first.sink.(Sharer)
			if !ok {
				continue
			}
			shares, err := by.Shares(ctx, s.sink)
			if err != nil {
				return nil, fmt.Errorf("sinks %q and %q: %w", first.name, s.name, err)
			}
			if shares {
				out[i] = j
				break
			}
		}
	}
	return out, nil
}
