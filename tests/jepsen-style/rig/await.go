package rig

import (
	"context"
	"fmt"
	"time"
)

const askAgain = 30 * time.Millisecond

// Await asks until the answer is nil. When that takes longer than limit the error says for what, and
// has the last answer.
func Await(ctx context.Context, limit time.Duration, what string, ask func() error) error {
	end := time.Now().Add(limit)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %s for %s: %w", limit, what, err)
		}
		if err := Sleep(ctx, askAgain); err != nil {
			return err
		}
	}
}

// Sleep waits unless ctx ends first; then it returns why.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
