package file_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
)

// full makes the disk take nothing more from its n-th operation on. What is there stays, and may be removed.
func full(mem *crashfs.Mem, n int) (struck func() bool) {
	seen := 0
	mem.Fail(func(op crashfs.Op, _ string) error {
		if op == crashfs.OpRemove {
			return nil
		}
		if seen++; seen > n {
			return syscall.ENOSPC
		}
		return nil
	})
	return func() bool { return seen > n }
}

// The disk is full from any operation on, those of the staged files and of the manifest among them: it is told in one
// sentence, and once there is room the next process finishes what is decided and leaves nothing else behind.
func TestADiskThatIsFullAtAnyOperationLosesNothing(t *testing.T) {
	for n := 0; ; n++ {
		mem := crashfs.NewMem(home)
		var l ledger
		struck := full(mem, n)
		err := epochs(mem, &l)
		if !struck() {
			if err != nil {
				t.Fatalf("without a full disk: %v", err)
			}
			if n < 30 {
				t.Fatalf("only %d operations", n)
			}
			t.Logf("%d operations", n)
			return
		}
		if err == nil {
			t.Fatalf("full from operation %d on, and nothing is said", n)
		}
		if !errors.Is(err, syscall.ENOSPC) || strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("full from operation %d on: %v; want one sentence that says so", n, err)
		}
		if errors.Is(err, participant.ErrMisconfigured) {
			t.Errorf("full from operation %d on: %v; that halts for good, and a disk gets room again", n, err)
		}
		mem.Fail(nil)
		if err := recovery(mem, &l); err != nil {
			t.Fatalf("full from operation %d on, and there is room again: %v", n, err)
		}
		if err := consistent(t, mem, &l); err != nil {
			t.Fatalf("full from operation %d on: %v", n, err)
		}
	}
}

// At the manifest: readers of whole epochs see nothing of it yet, the branch is still to be finished, and the same
// process finishes it.
func TestADiskThatIsFullAtTheManifestIsAskedAgain(t *testing.T) {
	ctx := context.Background()
	mem, s, h := one(t)
	mem.Fail(func(op crashfs.Op, name string) error {
		if op != crashfs.OpRemove && strings.Contains(name, "manifest") {
			return syscall.ENOSPC
		}
		return nil
	})
	for range 2 {
		p, err := s.Commit(ctx, h)
		if err == nil || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "manifest of "+h.Name) {
			t.Fatalf("commit without room for the manifest: verdict %d, %v", p.Verdict, err)
		}
		if st, err := s.Inspect(ctx, h); err != nil || st != participant.Undecided {
			t.Fatalf("inspect: state %d, %v", st, err)
		}
	}
	mem.Fail(nil)
	for _, who := range []*file.Sink{s, sink(t, mem, dir)} {
		if p, err := who.Commit(ctx, h); err != nil || p.Verdict != participant.Committed {
			t.Fatalf("commit with room: %+v, %v", p, err)
		}
	}
	if got := published(t, mem, dir); len(got) != 1 || got[0] != `"a"` {
		t.Errorf("readers see %q", got)
	}
}

// A process without space raises its fence about once a second until there is room again. No attempt may leave a
// file behind: hundreds of them would be there, and be taken for abandoned only an hour later.
func TestAttemptsOnAFullDiskLeaveNoScratchFiles(t *testing.T) {
	for _, at := range []crashfs.Op{crashfs.OpWrite, crashfs.OpSync, crashfs.OpRename} {
		t.Run(string(at), func(t *testing.T) {
			mem, s, _ := one(t)
			mem.Fail(func(op crashfs.Op, _ string) error {
				if op == at {
					return syscall.ENOSPC
				}
				return nil
			})
			for range 3 {
				if err := s.Open(t.Context(), opening(2)); !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("open without space: %v", err)
				}
			}
			left, err := mem.ReadDir(dir + "/.unisink/tmp")
			if err != nil || len(left) != 0 {
				t.Errorf("three attempts leave %d scratch files (%v)", len(left), err)
			}
		})
	}
}
