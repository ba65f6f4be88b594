package processortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Reader is processor.Source, which this package cannot import without a cycle.
type Reader interface {
	Describe(ctx context.Context) (participant.Description, error)
	Open(ctx context.Context, from []stream.Position) error
	Poll(ctx context.Context) (*stream.Batch, error)
	Splits() []stream.Split
	Close() error
}

// SourceKit says how to test a source adapter.
type SourceKit struct {
	// New makes a source of what Fill has written, each time a new one over the same data.
	New func(t testing.TB) Reader
	// Fill writes that many records, with the values that Value gives for 0, 1, …, over one split or more.
	Fill func(t testing.TB, records int)
	// Value of a record; default "record <i>".
	Value func(i int) []byte
	// Lose makes the source lose its first records, as retention does; nil: it cannot.
	Lose func(t testing.TB)
	// Patience for everything that is expected to come; default 30 s.
	Patience time.Duration
}

const kitRecords = 200

// RunSource tests a source against the contract of processor.Source.
func RunSource(t *testing.T, k SourceKit) {
	if k.Value == nil {
		k.Value = func(i int) []byte { return fmt.Appendf(nil, "record %d", i) }
	}
	if k.Patience == 0 {
		k.Patience = 30 * time.Second
	}
	k.Fill(t, kitRecords)
	t.Run("every record once and in order of its split", k.everything)
	t.Run("Z5/opening again drops what was fetched", k.again)
	t.Run("a position is where reading goes on", k.positions)
	t.Run("a batch is of one split and ends at its next position", k.batches)
	t.Run("a cancelled poll returns", k.cancelled)
	t.Run("closing ends it, twice too", k.closing)
	if k.Lose != nil {
		t.Run("a position that is gone is an error and no reset", k.lost)
	}
}

// session is one open source and what came out of it.
type session struct {
	t      testing.TB
	k      SourceKit
	src    Reader
	values map[string]int
	at     map[stream.Split]stream.Position
	read   int
}

func (k SourceKit) open(t testing.TB, from []stream.Position) *session {
	t.Helper()
	s := &session{t: t, k: k, src: k.New(t), values: map[string]int{}, at: map[stream.Split]stream.Position{}}
	t.Cleanup(func() {
		if err := s.src.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	s.reopen(from)
	return s
}

func (s *session) reopen(from []stream.Position) {
	s.t.Helper()
	if err := s.src.Open(s.t.Context(), from); err != nil {
		s.t.Fatalf("open: %v", err)
	}
	if len(s.src.Splits()) == 0 {
		s.t.Fatal("no splits after Open")
	}
}

// until polls until that many records were read in all.
func (s *session) until(records int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), s.k.Patience)
	defer cancel()
	for s.read < records {
		b, err := s.src.Poll(ctx)
		if errors.Is(err, io.EOF) {
			s.t.Fatalf("it ended after %d of %d records", s.read, records)
		}
		if err != nil {
			s.t.Fatalf("poll, after %d of %d records: %v", s.read, records, err)
		}
		if b != nil {
			s.take(b)
		}
	}
}

func (s *session) take(b *stream.Batch) {
	s.t.Helper()
	if !slices.Contains(s.src.Splits(), b.Split) || b.Next.Split != b.Split {
		s.t.Fatalf("a batch of split %+v with a position of %+v; splits are %+v", b.Split, b.Next.Split, s.src.Splits())
	}
	last, seen := s.at[b.Split]
	for _, r := range b.Records {
		if seen && r.Offset < last.Offset {
			s.t.Fatalf("offset %d of %s comes after position %d", r.Offset, b.Split.ID, last.Offset)
		}
		s.values[string(r.Value)]++
		s.read++
	}
	if seen && b.Next.Offset < last.Offset {
		s.t.Fatalf("position of %s goes back from %d to %d", b.Split.ID, last.Offset, b.Next.Offset)
	}
	next := b.Next
	next.Opaque = bytes.Clone(next.Opaque)
	s.at[b.Split] = next
}

func (s *session) positions() []stream.Position {
	out := make([]stream.Position, 0, len(s.at))
	for _, p := range s.at {
		out = append(out, p)
	}
	return out
}

// once checks that every record was read exactly once.
func (s *session) once() {
	s.t.Helper()
	for i := range kitRecords {
		if n := s.values[string(s.k.Value(i))]; n != 1 {
			s.t.Errorf("%q was read %d times", s.k.Value(i), n)
		}
	}
	if s.read != kitRecords {
		s.t.Errorf("%d records were read, want %d", s.read, kitRecords)
	}
}

func (k SourceKit) everything(t *testing.T) {
	s := k.open(t, nil)
	s.until(kitRecords)
	s.once()
}

func (k SourceKit) again(t *testing.T) {
	s := k.open(t, nil)
	s.until(1)
	s.values, s.at, s.read = map[string]int{}, map[stream.Split]stream.Position{}, 0
	s.reopen(nil)
	s.until(kitRecords)
	s.once()
}

func (k SourceKit) positions(t *testing.T) {
	first := k.open(t, nil)
	first.until(kitRecords / 3)
	second := k.open(t, first.positions())
	second.values, second.read = first.values, first.read
	second.until(kitRecords)
	second.once()
}

func (k SourceKit) batches(t *testing.T) {
	s := k.open(t, nil)
	s.until(kitRecords)
	for split, at := range s.at {
		if at.Offset <= 0 {
			t.Errorf("split %s was read to position %d", split.ID, at.Offset)
		}
	}
}

func (k SourceKit) cancelled(t *testing.T) {
	s := k.open(t, nil)
	s.until(kitRecords)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 { // an end or an error, at once; never for ever
			if _, err := s.src.Poll(ctx); err != nil {
				return
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(k.Patience):
		t.Error("a poll with a cancelled context does not return")
	}
}

func (k SourceKit) closing(t *testing.T) {
	s := k.open(t, nil)
	s.until(1)
	for range 2 {
		if err := s.src.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func (k SourceKit) lost(t *testing.T) {
	s := k.open(t, nil)
	s.until(1)
	from := s.positions()
	k.Lose(t)
	src := k.New(t)
	defer src.Close() //nolint:errcheck // the error that counts is Open's
	err := src.Open(t.Context(), from)
	for i := 0; err == nil && i < 100; i++ {
		var b *stream.Batch
		if b, err = src.Poll(t.Context()); b != nil {
			t.Fatal("records came from elsewhere, after the position was gone")
		}
	}
	if !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("got %v, want ErrMisconfigured", err)
	}
}
