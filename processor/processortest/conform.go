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
	"github.com/unisink/unisink/participant/participanttest"
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
	// More writes records with the values from "from" on, after Fill; nil: the source is bounded, or nobody
	// can. It is how an idle source is seen to wake up.
	More func(t testing.TB, from, records int)
	// Lose makes the source lose its first records, as retention does; nil: it cannot.
	Lose func(t testing.TB)
	// Patience for everything that is expected to come; default 30 s.
	Patience time.Duration
}

const kitRecords = 200

// SourceCheck is one rule for sources.
type SourceCheck struct {
	Name string
	// Run looks at sources over what Fill has written. Why says what it had nothing to look with for.
	Run func(k SourceKit, t testing.TB) (why string)
}

// SourceChecks lists the rules, in the order in which they are checked; what changes the data comes last.
func SourceChecks() []SourceCheck {
	always := func(f func(k SourceKit, t testing.TB)) func(SourceKit, testing.TB) string {
		return func(k SourceKit, t testing.TB) string { f(k, t); return "" }
	}
	return []SourceCheck{
		{"every record once and in order of its split", always(SourceKit.everything)},
		{"Z5/opening again drops what was fetched", always(SourceKit.again)},
		{"a position is where reading goes on", always(SourceKit.positions)},
		{"a restart after every batch repeats nothing and loses nothing", always(SourceKit.restarts)},
		{"splits without a position start at their beginning", SourceKit.some},
		{"a batch is of one split and ends at its next position", always(SourceKit.batches)},
		{"records lie between the positions before and behind them", always(SourceKit.between)},
		{"splits are the same for every process", always(SourceKit.splits)},
		{"the high water is reached", SourceKit.highWater},
		{"a cancelled poll returns", always(SourceKit.cancelled)},
		{"a cancelled poll loses nothing", always(SourceKit.cancelledOnTheWay)},
		{"an end is told once for each split, and stays", SourceKit.ends},
		{"a position of a split that is not there is an error", always(SourceKit.stranger)},
		{"a drained position goes on at the same place", SourceKit.drained},
		{"it knows its own splits", SourceKit.knows},
		{"closing ends it, twice too", always(SourceKit.closing)},
		{"no goroutine is left", always(SourceKit.leaks)},
		{"an idle source says so, and wakes up", SourceKit.idle},
		{"a position that is gone is an error and no reset", SourceKit.lost},
	}
}

// RunSource tests a source against the contract of processor.Source. The certificate tells what was checked
// and what was not; it is logged too.
func RunSource(t *testing.T, k SourceKit) participanttest.Certificate {
	k.Fill(t, kitRecords)
	k = k.complete()
	cert := participanttest.Certificate{Adapter: t.Name(), Of: "source"}
	for _, c := range SourceChecks() {
		var why string
		ran := false
		ok := t.Run(c.Name, func(t *testing.T) {
			ran = true
			if why = c.Run(k, t); why != "" && !t.Failed() {
				t.Skip("not certified: " + why)
			}
		})
		if ran {
			note(&cert, c.Name, why, ok)
		}
	}
	t.Log(cert)
	return cert
}

func note(cert *participanttest.Certificate, check, why string, ok bool) {
	switch {
	case !ok:
		cert.Failed = append(cert.Failed, check)
	case why != "":
		cert.Gaps = append(cert.Gaps, participanttest.Gap{Check: check, Why: why})
	default:
		cert.Passed = append(cert.Passed, check)
	}
}

// complete fills in the defaults.
func (k SourceKit) complete() SourceKit {
	if k.Value == nil {
		k.Value = func(i int) []byte { return fmt.Appendf(nil, "record %d", i) }
	}
	if k.Patience == 0 {
		k.Patience = 30 * time.Second
	}
	return k
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
	for i, r := range b.Records {
		if seen && r.Offset < last.Offset || i > 0 && r.Offset < b.Records[i-1].Offset {
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
func (s *session) once() { s.t.Helper(); s.onceOf(kitRecords) }

func (s *session) onceOf(records int) {
	s.t.Helper()
	for i := range records {
		if n := s.values[string(s.k.Value(i))]; n != 1 {
			s.t.Errorf("%q was read %d times", s.k.Value(i), n)
		}
	}
	if s.read != records {
		s.t.Errorf("%d records were read, want %d", s.read, records)
	}
}

func (k SourceKit) everything(t testing.TB) {
	s := k.open(t, nil)
	s.until(kitRecords)
	s.once()
}

func (k SourceKit) again(t testing.TB) {
	s := k.open(t, nil)
	s.until(1)
	s.values, s.at, s.read = map[string]int{}, map[stream.Split]stream.Position{}, 0
	s.reopen(nil)
	s.until(kitRecords)
	s.once()
}

func (k SourceKit) positions(t testing.TB) {
	first := k.open(t, nil)
	first.until(kitRecords / 3)
	second := k.open(t, first.positions())
	second.values, second.read = first.values, first.read
	second.until(kitRecords)
	second.once()
}

func (k SourceKit) batches(t testing.TB) {
	s := k.open(t, nil)
	s.until(kitRecords)
	for split, at := range s.at {
		if at.Offset <= 0 {
			t.Errorf("split %s was read to position %d", split.ID, at.Offset)
		}
	}
}

func (k SourceKit) cancelled(t testing.TB) {
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

func (k SourceKit) closing(t testing.TB) {
	s := k.open(t, nil)
	s.until(1)
	for range 2 {
		if err := s.src.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func (k SourceKit) lost(t testing.TB) string {
	if k.Lose == nil {
		return "nothing is lost (SourceKit.Lose)"
	}
	s := k.open(t, nil)
	s.until(1)
	from := s.positions()
	k.Lose(t)
	if err := k.refused(t, from); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("got %v, want ErrMisconfigured", err)
	}
	return ""
}

// refused opens at positions that are not there, and returns the error that it meets.
func (k SourceKit) refused(t testing.TB, from []stream.Position) error {
	t.Helper()
	src := k.New(t)
	defer src.Close() //nolint:errcheck // the error that counts is Open's
	err := src.Open(t.Context(), from)
	for i := 0; err == nil && i < 100; i++ {
		var b *stream.Batch
		if b, err = src.Poll(t.Context()); b != nil {
			t.Fatalf("records came from elsewhere, although position %d of %q is not there", from[0].Offset, from[0].Split.ID)
		}
	}
	return err
}
