package file_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// until polls until a batch, or nothing for now, or an error comes that ok takes.
func until(t *testing.T, s *file.Source, ok func(b *stream.Batch, err error) bool) (last *stream.Batch, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		b, err := s.Poll(ctx)
		if ok(b, err) {
			return b, err
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func appendTo(t *testing.T, name, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatChangesBehindItsEndIsAnError(t *testing.T) {
	for _, c := range []struct {
		name   string
		follow bool
		change func(t *testing.T, name string)
		want   string // "": it may
	}{
		{"grown while followed", true, func(t *testing.T, name string) { appendTo(t, name, "3\n") }, "had 4 bytes when it was read to its end, and has 6 now"},
		{"cut while followed", true, func(t *testing.T, name string) { appendTo(t, name, ""); _ = os.Truncate(name, 2) }, "and has 2 now"},
		{"gone while followed", true, func(t *testing.T, name string) { _ = os.Remove(name) }, ""},
		{"grown before the end of the source", false, func(t *testing.T, name string) { appendTo(t, name, "3\n") }, "and has 6 now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			name := filepath.Join(dir, "a.jsonl")
			appendTo(t, name, "1\n2\n")
			s, err := file.NewSource(file.SourceConfig{Name: "in", Dir: dir, Follow: c.follow, PollEvery: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			if err := s.Open(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			read, _ := until(t, s, func(b *stream.Batch, err error) bool { return b != nil && b.Ended })
			at := read.Next
			c.change(t, name)
			if c.want == "" {
				for range 3 {
					if b, err := s.Poll(context.Background()); b != nil || err != nil {
						t.Fatalf("batch %+v, %v", b, err)
					}
				}
				return
			}
			_, err = until(t, s, func(_ *stream.Batch, err error) bool { return err != nil })
			if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("after the change: %v", err)
			}
			if err := s.Open(context.Background(), []stream.Position{at}); strings.Contains(c.name, "grown") && err != nil {
				t.Fatalf("whoever has been told may read on: %v", err)
			}
		})
	}
}

func TestEachReadFileIsLookedAtAgain(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		appendTo(t, filepath.Join(dir, string(rune('a'+i/26))+string(rune('a'+i%26))+".jsonl"), "1\n")
	}
	s, err := file.NewSource(file.SourceConfig{Name: "in", Dir: dir, Follow: true, PollEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Open(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	_, _ = until(t, s, func(b *stream.Batch, err error) bool { return b == nil && err == nil })
	appendTo(t, filepath.Join(dir, "fa.jsonl"), "2\n")
	if _, err := until(t, s, func(_ *stream.Batch, err error) bool { return err != nil }); !strings.Contains(err.Error(), "fa.jsonl had 2 bytes") {
		t.Fatal(err)
	}
}

func TestHalfALineIsNotReadTwice(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.jsonl")
	appendTo(t, name, "1\n{\"half")
	s := source(t, dir)
	if err := s.Open(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	values, at := drain(t, s)
	if !slices.Equal(values, []string{"1", `{"half`}) {
		t.Fatalf("read %q", values)
	}
	// The last line of a file needs no end.
	if err := s.Open(context.Background(), at); err != nil {
		t.Fatal(err)
	}
	if _, err := until(t, s, func(_ *stream.Batch, err error) bool { return err != nil }); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	appendTo(t, name, "\":1}\n")
	err := s.Open(context.Background(), at)
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "a.jsonl was read up to byte 8, where its last line had no end yet") {
		t.Fatalf("opened in the middle of a line: %v", err)
	}
}
