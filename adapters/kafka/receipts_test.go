package kafka

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/processor/stream"
)

// A flush waits for no record that was refused before it was buffered. Its branch would be told that records
// are missing for no reason, which is a bug and halts the scope, instead of which record was refused and why.
func TestCompleteWaitsForPromisesThatNoFlushWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Branch{t: &tenure{sink: &Sink{}}, got: newReceipts(1 << 20)}
		c := newChunk()
		c.branch, c.records, c.origins, c.left, c.bytes = b, make([]kgo.Record, 1), make([]stream.Origin, 1), 1, 64
		if err := b.got.admit(t.Context(), c.bytes); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.got.complete(short, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("complete with a promise to come: %v, want to wait", err)
		}
		said := make(chan error, 1)
		go func() { said <- b.got.complete(t.Context(), 1) }()
		synctest.Wait()
		c.done(&c.records[0], kerr.MessageTooLarge)
		if err := <-said; !errors.Is(err, kerr.MessageTooLarge) {
			t.Errorf("complete: %v, want why the record was refused", err)
		}
	})
}
