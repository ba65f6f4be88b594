package file_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

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
