package processor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// The headers of a dead letter that the pipeline adds, behind those that the record had.
const (
	// HeaderReason says in a sentence why the record could not be taken.
	HeaderReason = "unisink-reason"
	// HeaderOrigin says where it stood in the source: "topic/partition/offset".
	HeaderOrigin = "unisink-origin"
)

// intake is where an operator's records come in: they are read and counted, and the bad ones seen to.
type intake[T any] struct {
	in    *Stream[T]
	dead  int // the sink of dead letters in the outbox; -1: none
	rec   T
	count Counters
}

// newIntake makes one for an operator with that many sinks of its own in the outbox.
func newIntake[T any](in *Stream[T], sinks int) intake[T] {
	if in.onBad.dead == nil {
		sinks = -1
	}
	return intake[T]{in: in, dead: sinks}
}

// badRecord is an error of a record itself, which SkipBad and DeadLetters are for. Every other error ends
// the generation: of a sink, of encoding a result.
type badRecord struct{ err error }

func (e *badRecord) Error() string { return e.err.Error() }

func (e *badRecord) Unwrap() error { return e.err }

// maxEventTime bounds event times so that no sum of them overflows; about 36 million years.
const maxEventTime = 1 << 60

// read decodes, filters and maps a record, and finds its event time.
func (i *intake[T]) read(in *stream.Record) (verdict, error) {
	in.EventTime = in.Time
	what, err := i.in.read(in, &i.rec)
	if err != nil {
		return verdictUnset, &badRecord{err}
	}
	return what, nil
}

// each takes the records of a batch one after the other, and sees to the bad ones.
func (i *intake[T]) each(ctx context.Context, b *stream.Batch, out *outbox, record func(in *stream.Record) error) error {
	for n := range b.Records {
		in := &b.Records[n]
		i.count.Records++
		if err := record(in); err != nil {
			if err := i.bad(ctx, in, err, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// bad sees to a record that could not be taken and has left everything as it was: err ends the generation,
// or the record is skipped, or becomes a dead letter. What may pass is never skipped.
func (i *intake[T]) bad(ctx context.Context, in *stream.Record, err error, out *outbox) error {
	var bad *badRecord
	switch {
	case !errors.As(err, &bad):
		return err
	case errors.Is(err, participant.ErrRetry): // the record is not judged yet
	case i.dead >= 0:
		i.count.DeadLettered++
		if mutant.On("processor/dead-letter-in-the-epoch") {
			return nil
		}
		bury(in, err, out.next(i.dead))
		return out.full(ctx, i.dead)
	case i.in.onBad.skip:
		i.count.Skipped++
		return nil
	}
	return lasting(fmt.Errorf("record of topic %q, partition %d, offset %d: %w", in.Topic, in.Partition, in.Offset, err),
		"correct the pipeline, or let it skip bad records or send them to dead letters")
}

// lastingError is one that the same records would meet again and again.
type lastingError struct {
	err  error
	cure string
}

func (e *lastingError) Error() string { return e.err.Error() + "; " + e.cure }

func (e *lastingError) Unwrap() []error { return []error{participant.ErrMisconfigured, e.err} }

// lasting gives an error of what the pipeline's own functions make of a record or a result its class: they are
// deterministic, so the scope halts at once and waits for a person, and is not restarted in vain. Who wraps
// participant.ErrRetry says that it may pass.
func lasting(err error, cure string) error {
	if errors.Is(err, participant.ErrRetry) {
		return err
	}
	return &lastingError{err, cure}
}

// maxReason is how long the reason of a dead letter may be, bytes: it must not make the record too large.
const maxReason = 1024

// bury makes a dead letter of a record: as it came, and why. A record without key, or a tombstone, stays that.
func bury(in *stream.Record, err error, to *stream.Record) {
	to.Key, to.Value = sameBytes(to.Key, in.Key), sameBytes(to.Value, in.Value)
	to.Time, to.EventTime, to.Partition = in.Time, in.Time, in.Partition
	reason := err.Error()
	if len(reason) > maxReason {
		reason = reason[:maxReason] + "..."
	}
	origin := append([]byte(in.Topic), '/')
	origin = append(strconv.AppendInt(origin, int64(in.Partition), 10), '/')
	origin = strconv.AppendInt(origin, in.Offset, 10)
	to.Headers = append(append(to.Headers, in.Headers...),
		stream.Header{Key: HeaderReason, Value: []byte(strings.ToValidUTF8(reason, "\uFFFD"))},
		stream.Header{Key: HeaderOrigin, Value: origin})
}

// sameBytes copies src over dst; nil stays nil.
func sameBytes(dst, src []byte) []byte {
	if src == nil {
		return nil
	}
	return append(dst, src...)
}
