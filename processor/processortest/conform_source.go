package processortest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/processor/stream"
)

// poll asks once.
func (s *session) poll(ctx context.Context) (*stream.Batch, error) {
	s.t.Helper()
	b, err := s.src.Poll(ctx)
	if b != nil && err == nil {
		s.take(b)
	}
	return b, err
}

// restarts is a life in which every process dies after its first batch with records.
func (k SourceKit) restarts(t testing.TB) {
	at := map[stream.Split]stream.Position{}
	values, read := map[string]int{}, 0
	for range kitRecords + 1 {
		s := k.open(t, nil)
		var from []stream.Position
		for _, p := range at {
			from = append(from, p)
		}
		s.reopen(from)
		s.values, s.read = values, read
		s.until(read + 1)
		for split, p := range s.at {
			at[split] = p
		}
		read = s.read
		if err := s.src.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		if read >= kitRecords {
			s.once()
			return
		}
	}
	t.Errorf("%d restarts read %d of %d records", kitRecords, read, kitRecords)
}

func (k SourceKit) some(t testing.TB) string {
	first := k.open(t, nil)
	first.until(kitRecords)
	if len(first.at) < 2 {
		return "it has one split only"
	}
	skip := first.src.Splits()[0]
	want := 0 // records of the other splits
	other := k.open(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), k.Patience)
	defer cancel()
	for read := 0; read < kitRecords; {
		b, err := other.poll(ctx)
		if err != nil {
			t.Fatalf("poll: %v", err)
		}
		if b != nil {
			read += len(b.Records)
			if b.Split != skip {
				want += len(b.Records)
			}
		}
	}
	second := k.open(t, []stream.Position{first.at[skip]})
	second.until(want)
	for v, n := range second.values {
		if n != 1 {
			t.Errorf("%q was read %d times", v, n)
		}
	}
	if second.read != want {
		t.Errorf("%d records of the splits without a position, want %d", second.read, want)
	}
	return ""
}

// between holds a source to what its positions say: they are where a restart will go on.
func (k SourceKit) between(t testing.TB) {
	s := k.open(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), k.Patience)
	defer cancel()
	for s.read < kitRecords {
		b, err := s.poll(ctx)
		if err != nil {
			t.Fatalf("poll, after %d of %d records: %v", s.read, kitRecords, err)
		}
		if b == nil {
			continue
		}
		for _, r := range b.Records {
			if r.Offset >= b.Next.Offset {
				t.Fatalf("a record of %s at offset %d is behind the position after it, %d", b.Split.ID, r.Offset, b.Next.Offset)
			}
		}
	}
}

func (k SourceKit) splits(t testing.TB) {
	one, two := k.open(t, nil).src.Splits(), k.open(t, nil).src.Splits()
	order := func(a, b stream.Split) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(one, order)
	slices.SortFunc(two, order)
	if !slices.Equal(one, two) {
		t.Errorf("one process reads the splits %v, another %v", one, two)
	}
	if n := len(slices.Compact(slices.Clone(one))); n != len(one) || n == 0 {
		t.Errorf("splits %v, want each once", one)
	}
}

// highWater: a split counts as idle when it is read to its high water, so that must not be out of reach.
func (k SourceKit) highWater(t testing.TB) string {
	s := k.open(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), k.Patience)
	defer cancel()
	high := map[stream.Split]int64{}
	quiet := 0
	for s.read < kitRecords || quiet < 3 && len(high) > 0 {
		b, err := s.poll(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("poll: %v", err)
		}
		if b == nil {
			quiet++
			continue
		}
		if b.HighWater >= 0 {
			high[b.Split] = b.HighWater
			if b.HighWater < b.Next.Offset {
				t.Errorf("split %s is read to %d, its high water is %d", b.Split.ID, b.Next.Offset, b.HighWater)
			}
		}
	}
	if len(high) == 0 {
		return "it tells no high water"
	}
	for split, h := range high {
		if at := s.at[split].Offset; at != h {
			t.Errorf("split %s ends at %d for its reader, and at %d by its high water", split.ID, at, h)
		}
	}
	return ""
}

// cancelledOnTheWay cancels polls at any time; what they had fetched comes later, or came with them.
func (k SourceKit) cancelledOnTheWay(t testing.TB) {
	s := k.open(t, nil)
	for _, d := range []time.Duration{0, 10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		if _, err := s.poll(ctx); errors.Is(err, io.EOF) {
			t.Fatalf("a poll that is cancelled says that every split has ended")
		}
		cancel()
	}
	s.until(kitRecords)
	s.once()
}

// ends reads on until the source says that it has ended, or that nothing comes.
func (k SourceKit) ends(t testing.TB) string {
	s := k.open(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), k.Patience)
	defer cancel()
	ended := map[stream.Split]int{}
	for {
		b, err := s.poll(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("poll: %v", err)
		}
		if b == nil && s.read >= kitRecords {
			return "it does not end"
		}
		if b != nil && ended[b.Split] > 0 {
			t.Errorf("split %s goes on after its end", b.Split.ID)
		}
		if b != nil && b.Ended {
			ended[b.Split]++
		}
	}
	s.once()
	for _, split := range s.src.Splits() {
		if ended[split] != 1 {
			t.Errorf("the end of split %s was told %d times", split.ID, ended[split])
		}
	}
	for range 2 {
		if b, err := s.src.Poll(ctx); b != nil || !errors.Is(err, io.EOF) {
			t.Errorf("a poll after the end: %v, %v; want the end again", b, err)
		}
	}
	// A process that restarts there is at its end at once, and reads nothing again.
	next := k.open(t, s.positions())
	for {
		if _, err := next.poll(ctx); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("poll after a restart at the end: %v", err)
		}
	}
	if next.read > 0 {
		t.Errorf("a restart at the end reads %d records again", next.read)
	}
	return ""
}

func (k SourceKit) stranger(t testing.TB) {
	s := k.open(t, nil)
	s.until(1)
	from := s.positions()[:1]
	from[0].Split.ID += "-that-never-was"
	from[0].Offset++
	if err := k.refused(t, from); err == nil {
		t.Errorf("a position of the split %q was passed over", from[0].Split.ID)
	}
}

// drained is for sources that are a processor.Drainer.
func (k SourceKit) drained(t testing.TB) string {
	first := k.open(t, nil)
	d, ok := first.src.(interface {
		Drained(p stream.Position) stream.Position
	})
	if !ok {
		return "it is no processor.Drainer"
	}
	first.until(kitRecords / 3)
	var from []stream.Position
	for _, p := range first.positions() {
		noted := d.Drained(p)
		if noted.Split != p.Split || noted.Offset != p.Offset {
			t.Errorf("drained at %d of %v becomes %d of %v", p.Offset, p.Split, noted.Offset, noted.Split)
		}
		from = append(from, noted)
	}
	second := k.open(t, from)
	second.values, second.read = first.values, first.read
	second.until(kitRecords)
	second.once()
	return ""
}

// knows is for sources that say which splits they can read.
func (k SourceKit) knows(t testing.TB) string {
	s := k.open(t, nil)
	knower, ok := s.src.(interface{ Knows(split string) error })
	if !ok {
		return "it has no Knows"
	}
	for _, split := range s.src.Splits() {
		if err := knower.Knows(split.ID); err != nil {
			t.Errorf("it reads split %q, and says: %v", split.ID, err)
		}
	}
	return ""
}

func (k SourceKit) leaks(t testing.TB) {
	before := goleak.IgnoreCurrent()
	src := k.New(t)
	if err := src.Open(t.Context(), nil); err != nil {
		t.Fatalf("open: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), k.Patience)
	defer cancel()
	if _, err := src.Poll(ctx); err != nil {
		t.Fatalf("poll: %v", err)
	}
	if err := src.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if err := goleak.Find(before); err != nil {
		t.Errorf("goroutines are left after Close: %v", err)
	}
}

func (k SourceKit) idle(t testing.TB) string {
	if k.More == nil {
		return "nothing more is written (SourceKit.More)"
	}
	s := k.open(t, nil)
	s.until(kitRecords)
	ctx, cancel := context.WithTimeout(t.Context(), k.Patience)
	defer cancel()
	for {
		b, err := s.poll(ctx)
		if err != nil {
			t.Fatalf("a poll of an idle source: %v; want nil, so that time goes on", err)
		}
		if b == nil {
			break
		}
	}
	const more = 10
	k.More(t, kitRecords, more)
	s.until(kitRecords + more)
	s.onceOf(kitRecords + more)
	return ""
}
