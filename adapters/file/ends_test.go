package file_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/processor/stream"
)

func TestPositionsTellThatTheSourceHadEndedBefore(t *testing.T) {
	dir := t.TempDir()
	appendTo(t, filepath.Join(dir, "a.jsonl"), "1\n")
	appendTo(t, filepath.Join(dir, "b.jsonl"), "2\n")
	s := source(t, dir)
	if err := s.Open(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	_, at := drain(t, s)
	if slices.ContainsFunc(at, file.Behind) {
		t.Errorf("in the first run: %v", at)
	}
	appendTo(t, filepath.Join(dir, "c.jsonl"), "3\n")
	for range 3 { // it stays
		if err := s.Open(context.Background(), at); err != nil {
			t.Fatal(err)
		}
		if _, at = drain(t, s); len(at) != 3 || slices.ContainsFunc(at, func(p stream.Position) bool { return !file.Behind(p) }) {
			t.Fatalf("behind the end: %v", at)
		}
	}
}

func TestPositionsTellThatThePipelineWasDrained(t *testing.T) {
	dir := t.TempDir()
	appendTo(t, filepath.Join(dir, "a.jsonl"), "1\n")
	s, err := file.NewSource(file.SourceConfig{Name: "in", Dir: dir, Follow: true, PollEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	next := func(from []stream.Position) stream.Position {
		t.Helper()
		if err := s.Open(context.Background(), from); err != nil {
			t.Fatal(err)
		}
		for {
			b, err := s.Poll(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if b != nil && len(b.Records) > 0 {
				return b.Next
			}
		}
	}
	at := next(nil)
	for _, c := range []struct {
		name string
		from stream.Position
		want bool
	}{{"stopped", at, false}, {"drained", s.Drained(at), true}} {
		appendTo(t, filepath.Join(dir, c.name+".jsonl"), "2\n")
		if got := file.Behind(next([]stream.Position{c.from})); got != c.want {
			t.Errorf("%s: behind an end %v, want %v", c.name, got, c.want)
		}
	}
}
