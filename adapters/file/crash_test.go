package file_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
)

const (
	home = "/data"
	dir  = "/data/out"
)

var ns = participant.Namespace{Name: "test", Incarnation: 1}

func opening(g uint64) participant.Opening {
	return participant.Opening{Namespace: ns, Scope: "orders/0", Member: "main", Resource: "files", Generation: g, MaxPending: 2}
}

func branchName(g, n uint64) participant.BranchName {
	return participant.BranchName{Namespace: ns, Pipeline: "orders", Member: "main", Resource: "files", Generation: g, N: n}
}

// ledger stands for the decisions: what was voted yes is decided commit or abort for ever.
type ledger struct {
	commit, abort []participant.Handle
	values        []string // of the committed
}

// epochs is what a process does: it prepares three branches, of which the first and the last are
// decided commit, and finishes all of them. It stops at the first error.
func epochs(f crashfs.FS, l *ledger) error {
	ctx := context.Background()
	s, err := file.NewSink(file.SinkConfig{Dir: dir, FS: f, MaxFileBytes: 8})
	if err != nil {
		return err
	}
	if _, err := s.Describe(ctx); err != nil {
		return err
	}
	if err := s.Open(ctx, opening(1)); err != nil {
		return err
	}
	for n := uint64(1); n <= 3; n++ {
		b, err := s.Begin(ctx, branchName(1, n))
		if err != nil {
			return err
		}
		values := []string{fmt.Sprintf(`"%d-one"`, n), fmt.Sprintf(`"%d-two"`, n)}
		for _, v := range values {
			if err := writeOne(b, v); err != nil {
				return err
			}
		}
		v, err := b.Prepare(ctx)
		if err != nil {
			return err
		}
		if v.Kind != participant.Yes {
			return v.Reason
		}
		// The vote has left: from here on only the ledger says what becomes of it.
		if n == 2 {
			l.abort = append(l.abort, v.Handle)
			_, err = s.Rollback(ctx, v.Handle)
		} else {
			l.commit = append(l.commit, v.Handle)
			l.values = append(l.values, values...)
			_, err = s.Commit(ctx, v.Handle)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// recovery is what the next process does: it commits what is decided and rolls back the rest of
// what it finds.
func recovery(f crashfs.FS, l *ledger) error {
	ctx := context.Background()
	s, err := file.NewSink(file.SinkConfig{Dir: dir, FS: f})
	if err != nil {
		return err
	}
	if err := s.Open(ctx, opening(2)); err != nil {
		return err
	}
	for _, h := range l.commit {
		p, err := s.Commit(ctx, h)
		if err != nil {
			return err
		}
		if p.Verdict != participant.Committed {
			return fmt.Errorf("decided commit, proven otherwise: %s", p.Evidence)
		}
	}
	found, err := s.List(ctx, ns)
	if err != nil {
		return err
	}
	for _, x := range found {
		if _, err := s.Rollback(ctx, x.Handle); err != nil {
			return err
		}
	}
	return nil
}

// consistent checks what readers see, and that nothing is left behind.
func consistent(t testing.TB, f crashfs.FS, l *ledger) error {
	got := slices.Sorted(slices.Values(published(t, f, dir)))
	want := slices.Sorted(slices.Values(l.values))
	if !slices.Equal(got, want) {
		return fmt.Errorf("readers see %v, decided is %v", got, want)
	}
	left, err := f.ReadDir(filepath.Join(dir, ".unisink", "staged"))
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("left behind: %v", left)
	}
	all, err := f.ReadDir(dir)
	if err != nil {
		return err
	}
	files := 0
	for _, e := range all {
		if strings.HasSuffix(e.Name(), ".jsonl") {
			files++
		}
	}
	if files != len(l.values) { // one record a file, by MaxFileBytes
		return fmt.Errorf("%d files are published, %d are decided", files, len(l.values))
	}
	return nil
}

// walk crashes the machine at every operation of the first process (with -short at every fourth: all of it is one goroutine,
// in which the race detector finds nothing), and at every operation of the recovery after it, and returns the first
// inconsistency.
func walk(t *testing.T, wrap func(*crashfs.Mem) crashfs.FS) (crashes int, err error) {
	t.Helper()
	step := 1
	if testing.Short() {
		step = 4
	}
	for k := 0; ; k += step {
		for r := 0; ; r++ {
			mem := crashfs.NewMem(home)
			f := wrap(mem)
			var l ledger
			mem.CrashAfter(k)
			first := epochs(f, &l)
			if !mem.Crashed() {
				if first != nil {
					t.Fatalf("without a crash: %v", first)
				}
				if crashes == 0 {
					t.Fatal("no crash happened")
				}
				return crashes, consistent(t, f, &l)
			}
			mem.Reboot()
			mem.CrashAfter(r)
			err := recovery(f, &l)
			again := mem.Crashed()
			if again {
				mem.Reboot()
				err = recovery(f, &l)
			}
			crashes++
			if err != nil {
				return crashes, fmt.Errorf("crash at operation %d, and %d of the recovery: %w", k, r, err)
			}
			if err := consistent(t, f, &l); err != nil {
				return crashes, fmt.Errorf("crash at operation %d, and %d of the recovery: %w", k, r, err)
			}
			if !again {
				break
			}
		}
	}
}

func TestE4_P21_ACrashAtAnyOperationLosesNothingThatWasDecided(t *testing.T) {
	n, err := walk(t, func(m *crashfs.Mem) crashfs.FS { return m })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d crashes", n)
}

// noSync forgets to make files, or names, durable.
type noSync struct {
	crashfs.FS
	files, dirs bool
}

type lazyFile struct{ crashfs.File }

func (lazyFile) Sync() error { return nil }

func (n noSync) OpenFile(name string, flag int, perm fs.FileMode) (crashfs.File, error) {
	f, err := n.FS.OpenFile(name, flag, perm)
	if err == nil && n.files {
		f = lazyFile{f}
	}
	return f, err
}

func (n noSync) SyncDir(name string) error {
	if n.dirs {
		return nil
	}
	return n.FS.SyncDir(name)
}

func TestE4_TheWalkSeesAMissingFsync(t *testing.T) {
	for name, wrap := range map[string]func(*crashfs.Mem) crashfs.FS{
		"of files":       func(m *crashfs.Mem) crashfs.FS { return noSync{FS: m, files: true} },
		"of directories": func(m *crashfs.Mem) crashfs.FS { return noSync{FS: m, dirs: true} },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := walk(t, wrap); err == nil {
				t.Fatal("the walk passed without fsync: it can't see anything")
			}
		})
	}
}

// one prepares a branch on a fresh memory disk.
func one(t *testing.T) (*crashfs.Mem, *file.Sink, participant.Handle) {
	t.Helper()
	mem := crashfs.NewMem(home)
	s := sink(t, mem, dir)
	if err := s.Open(context.Background(), opening(1)); err != nil {
		t.Fatal(err)
	}
	b, err := s.Begin(context.Background(), branchName(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	write(t, b, `"a"`)
	v, err := b.Prepare(context.Background())
	if err != nil || v.Kind != participant.Yes {
		t.Fatalf("prepare: %+v, %v", v, err)
	}
	return mem, s, v.Handle
}

func TestO4_CommitOfWhatIsNeitherStagedNorPublishedIsNoSuccess(t *testing.T) {
	mem, s, h := one(t)
	if err := crashfs.RemoveAll(mem, filepath.Join(dir, ".unisink", "staged", h.Name)); err != nil {
		t.Fatal(err)
	}
	p, err := s.Commit(context.Background(), h)
	if err != nil || p.Verdict != participant.RolledBack || p.Evidence == "" {
		t.Fatalf("commit of what is gone: %+v, %v", p, err)
	}
}

func TestF4_CommitAgainAfterReadersTookTheFilesAway(t *testing.T) {
	mem, s, h := one(t)
	if p, err := s.Commit(context.Background(), h); err != nil || p.Verdict != participant.Committed {
		t.Fatalf("commit: %+v, %v", p, err)
	}
	if err := mem.Remove(filepath.Join(dir, h.Name+"-0001.jsonl")); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*file.Sink{s, sink(t, mem, dir)} {
		if p, err := f.Commit(context.Background(), h); err != nil || p.Verdict != participant.Committed {
			t.Fatalf("commit again: %+v, %v", p, err)
		}
		if p, err := f.Rollback(context.Background(), h); err != nil || p.Verdict != participant.Committed {
			t.Fatalf("rollback of the committed: %+v, %v", p, err)
		}
	}
}

func TestCommitNeverReplacesAnotherFile(t *testing.T) {
	mem, s, h := one(t)
	w, err := mem.OpenFile(filepath.Join(dir, h.Name+"-0001.jsonl"), 0x41, 0o600) // O_CREAT|O_WRONLY
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("somebody else's")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(context.Background(), h); !errors.Is(err, participant.ErrMisconfigured) {
		t.Fatalf("commit over a foreign file: %v", err)
	}
	if got, _ := crashfs.ReadFile(mem, filepath.Join(dir, h.Name+"-0001.jsonl")); string(got) != "somebody else's" {
		t.Fatalf("the foreign file became %q", got)
	}
}

func TestAChangedStagedFileIsNotPublishedByAnotherFinisher(t *testing.T) {
	mem, _, h := one(t)
	w, err := mem.OpenFile(filepath.Join(dir, ".unisink", "staged", h.Name, h.Name+"-0001.jsonl"), 1, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(`"b"`)); err != nil { // as long as what was there
		t.Fatal(err)
	}
	if _, err := sink(t, mem, dir).Commit(context.Background(), h); !errors.Is(err, participant.ErrUndeterminable) {
		t.Fatalf("commit of a changed file: %v", err)
	}
	if got := published(t, mem, dir); len(got) > 0 {
		t.Fatalf("readers see %v", got)
	}
}

func TestAHandleCannotNameFilesOutsideTheDirectory(t *testing.T) {
	_, s, h := one(t)
	for _, evil := range []string{"../../etc/passwd", "/etc/passwd", "other-0001.jsonl", h.Name + "-0001.jsonl/../../x.jsonl"} {
		bad := h
		bad.Body = []byte(fmt.Sprintf(`{"branch":%q,"files":[{"name":%q}]}`, h.Name, evil))
		for what, call := range map[string]func() error{
			"commit":   func() error { _, err := s.Commit(context.Background(), bad); return err },
			"rollback": func() error { _, err := s.Rollback(context.Background(), bad); return err },
			"inspect":  func() error { _, err := s.Inspect(context.Background(), bad); return err },
		} {
			if err := call(); !errors.Is(err, participant.ErrBug) {
				t.Errorf("%s of a handle that names %q: %v", what, evil, err)
			}
		}
	}
}

func TestE3_AFullDiskIsANoWithTheRecordsPlaceAndLeavesNothing(t *testing.T) {
	mem := crashfs.NewMem(home)
	s := sink(t, mem, dir)
	if err := s.Open(context.Background(), opening(1)); err != nil {
		t.Fatal(err)
	}
	b, err := s.Begin(context.Background(), branchName(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	write(t, b, `"a"`)
	full := errors.New("no space left on device")
	mem.Fail(func(op crashfs.Op, _ string) error {
		if op == crashfs.OpWrite || op == crashfs.OpSync {
			return full
		}
		return nil
	})
	v, err := b.Prepare(context.Background())
	if err != nil || v.Kind != participant.No || !errors.Is(v.Reason, full) {
		t.Fatalf("prepare on a full disk: %+v, %v", v, err)
	}
	mem.Fail(nil)
	if found, err := s.List(context.Background(), ns); err != nil || len(found) > 0 {
		t.Fatalf("left behind: %v, %v", found, err)
	}
}

// writeOne is one Write call.
func writeOne(b participant.Branch, v string) error {
	return b.(*file.Branch).Write(context.Background(), records(v))
}

// looked calls then once, after the look at anything of a branch whose turn it is.
type looked struct {
	crashfs.FS
	branch string
	turn   int
	then   func()
}

func (l *looked) Stat(name string) (fs.FileInfo, error) {
	info, err := l.FS.Stat(name)
	if l.then != nil && strings.Contains(name, l.branch) {
		if l.turn--; l.turn == 0 {
			l.then()
		}
	}
	return info, err
}

// After any of the looks of an Inspect another finisher commits, and a reader takes the files away.
// Were the manifest looked for first, it would not be there yet, and the branch not any more.
func TestP16_AnInspectBesideACommitNeverSaysThatNothingIsThere(t *testing.T) {
	ctx := context.Background()
	for turn := 1; ; turn++ {
		mem, s, h := one(t)
		eye := &looked{FS: mem, branch: h.Name, turn: turn}
		inspector := sink(t, eye, dir)
		if _, err := inspector.Describe(ctx); err != nil {
			t.Fatal(err)
		}
		eye.then = func() {
			if p, err := s.Commit(ctx, h); err != nil || p.Verdict != participant.Committed {
				t.Errorf("commit: %+v, %v", p, err)
			}
			if err := mem.Remove(filepath.Join(dir, h.Name+"-0001.jsonl")); err != nil {
				t.Error(err)
			}
		}
		st, err := inspector.Inspect(ctx, h)
		if err != nil || st != participant.StateCommitted && st != participant.Undecided {
			t.Fatalf("committed after look %d: inspect says state %d, %v; want undecided or committed", turn, st, err)
		}
		if eye.turn > 0 {
			if turn < 3 {
				t.Fatalf("inspect looked %d times, want twice or more", turn-1)
			}
			return
		}
	}
}
