package file_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// A real disk that is full, under the staged files and under the manifest.
func TestARealDiskThatIsFull(t *testing.T) {
	home := t.TempDir()
	disk := filepath.Join(home, "disk")
	servicestest.SmallDisk(t, disk, 1, home)
	out := filepath.Join(disk, "out")
	s := sink(t, crashfs.OS(), out)
	ctx := context.Background()
	if err := s.Open(ctx, opening(1)); err != nil {
		t.Fatal(err)
	}
	prepare := func(n uint64, records ...stream.Record) participant.Vote {
		t.Helper()
		b, err := s.Begin(ctx, branchName(1, n))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.(*file.Branch).Write(ctx, records); err != nil {
			t.Logf("told at the write: %v", err) // Prepare says it too
		}
		v, err := b.Prepare(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	kept := prepare(1, stream.Record{Value: []byte(`"a"`)})
	free := servicestest.Fill(t, disk)
	if v := prepare(2, stream.Record{Topic: "in", Offset: 7, Value: bytes.Repeat([]byte("x"), 1<<17)}); v.Kind != participant.No || !errors.Is(v.Reason, syscall.ENOSPC) {
		t.Errorf("a vote on a full disk: %d, %v", v.Kind, v.Reason)
	}
	if p, err := s.Commit(ctx, kept.Handle); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("commit without room for the manifest: verdict %d, %v", p.Verdict, err)
	}
	free()
	if p, err := s.Commit(ctx, kept.Handle); err != nil || p.Verdict != participant.Committed {
		t.Errorf("commit with room: %+v, %v", p, err)
	}
	if found, err := s.List(ctx, ns); err != nil || len(found) > 0 {
		t.Errorf("left behind: %v, %v", found, err)
	}
	if got := published(t, crashfs.OS(), out); len(got) != 1 || got[0] != `"a"` {
		t.Errorf("readers see %q", got)
	}
}
