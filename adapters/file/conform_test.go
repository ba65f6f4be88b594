package file_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

var (
	_ processor.Source = (*file.Source)(nil)
	_ processor.Sink   = (*file.Sink)(nil)
	_ processor.Writer = (*file.Branch)(nil)
)

func TestMain(m *testing.M) {
	participanttest.Child(inChild)
	goleak.VerifyTestMain(m)
}

func sink(t testing.TB, f crashfs.FS, dir string) *file.Sink {
	t.Helper()
	s, err := file.NewSink(file.SinkConfig{Dir: dir, FS: f})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t testing.TB, b participant.Branch, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := b.(processor.Writer).Write(context.Background(), []stream.Record{{Value: []byte(v)}}); err != nil {
			t.Fatalf("write: %v", err)
		}
	}
}

// published is what a reader who goes by manifests sees.
func published(t testing.TB, f crashfs.FS, dir string) []string {
	t.Helper()
	if _, err := f.Stat(filepath.Join(dir, "_manifests")); err != nil {
		return nil
	}
	ms, err := file.ReadManifests(f, dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range ms {
		for _, p := range m.Files {
			text, err := crashfs.ReadFile(f, filepath.Join(dir, p.Name))
			if err != nil {
				t.Fatalf("a manifest names %s: %v", p.Name, err)
			}
			for line := range bytes.Lines(text) {
				out = append(out, string(bytes.TrimSpace(line)))
			}
		}
	}
	return out
}

// steppedFS calls at around each operation.
type steppedFS struct {
	crashfs.FS
	at func(step string) error
}

// around runs an operation between its two steps.
func around[T any](at func(step string) error, what string, f func() (T, error)) (T, error) {
	var none T
	if err := at("before " + what); err != nil {
		return none, err
	}
	out, err := f()
	if err != nil {
		return out, err
	}
	if err := at("after " + what); err != nil {
		return none, err
	}
	return out, nil
}

// effect is around for operations that answer nothing.
func effect(at func(step string) error, what string, f func() error) error {
	_, err := around(at, what, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (s steppedFS) OpenFile(name string, flag int, perm fs.FileMode) (crashfs.File, error) {
	if err := s.at("before open"); err != nil {
		return nil, err
	}
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	if err := s.at("after open"); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return steppedFile{f, s.at}, nil
}

func (s steppedFS) Link(from, to string) error {
	return effect(s.at, "link", func() error { return s.FS.Link(from, to) })
}

func (s steppedFS) Rename(from, to string) error {
	return effect(s.at, "rename", func() error { return s.FS.Rename(from, to) })
}

func (s steppedFS) Remove(name string) error {
	return effect(s.at, "remove", func() error { return s.FS.Remove(name) })
}

func (s steppedFS) Mkdir(name string, perm fs.FileMode) error {
	return effect(s.at, "mkdir", func() error { return s.FS.Mkdir(name, perm) })
}

func (s steppedFS) SyncDir(name string) error {
	return effect(s.at, "sync a directory", func() error { return s.FS.SyncDir(name) })
}

func (s steppedFS) Stat(name string) (fs.FileInfo, error) {
	return around(s.at, "stat", func() (fs.FileInfo, error) { return s.FS.Stat(name) })
}

func (s steppedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return around(s.at, "read a directory", func() ([]fs.DirEntry, error) { return s.FS.ReadDir(name) })
}

// steppedFile is an open one.
type steppedFile struct {
	crashfs.File
	at func(step string) error
}

func (f steppedFile) Write(p []byte) (int, error) {
	return around(f.at, "write", func() (int, error) { return f.File.Write(p) })
}

func (f steppedFile) Sync() error { return effect(f.at, "sync", f.File.Sync) }

// target is a directory as the conformance kit sees it.
func target(f crashfs.FS, dir string) participanttest.Target {
	return participanttest.Target{
		Process: func(t testing.TB) participant.Resource { return sink(t, f, dir) },
		Stepped: func(t testing.TB, at func(step string) error) participant.Resource {
			return sink(t, steppedFS{f, at}, dir)
		},
		Write: func(t testing.TB, b participant.Branch, r string) { write(t, b, fmt.Sprintf("%q", r)) },
		Read: func(t testing.TB) []string {
			var out []string
			for _, v := range published(t, f, dir) {
				out = append(out, v[1:len(v)-1])
			}
			return out
		},
		Drop: func(t testing.TB, h participant.Handle) {
			if err := crashfs.RemoveAll(f, filepath.Join(dir, ".unisink", "staged", h.Name)); err != nil {
				t.Fatal(err)
			}
		},
		Recreate: func(t testing.TB) {
			removeTree(t, f, dir)
			if err := f.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// removeTree removes a directory with all below it.
func removeTree(t testing.TB, f crashfs.FS, dir string) {
	t.Helper()
	entries, err := f.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := filepath.Join(dir, e.Name()); e.IsDir() {
			removeTree(t, f, name)
		} else if err := f.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Remove(dir); err != nil {
		t.Fatal(err)
	}
}

// neverPrepared makes handles of a directory that its sink has not made.
func neverPrepared(t testing.TB, f crashfs.FS, dir string) func(participant.BranchName) participant.Handle {
	return func(name participant.BranchName) participant.Handle {
		d, err := sink(t, f, dir).Describe(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(map[string]any{"branch": name.String(), "files": []map[string]any{{"name": name.String() + "-0001.jsonl", "bytes": 4}}})
		if err != nil {
			t.Fatal(err)
		}
		return participant.Handle{Kind: d.Kind, Version: 1, Identity: d.Identity, Alias: name.Resource, Name: name.String(), Body: body}
	}
}

// inChild is the target of a process that the kit kills, at the points that the code names too.
func inChild(_ testing.TB, world string) participanttest.Target {
	g := target(crashfs.OS(), world)
	if fault.Enabled {
		g.Points = func(at func(point string)) {
			fault.Set(func(name string) error { at(name); return nil })
		}
	}
	return g
}

func TestConformance(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		cert := participanttest.Run(t, participanttest.Kit{New: func(t testing.TB) participanttest.Target {
			f, dir := crashfs.NewMem("/data"), "/data/out"
			g := target(f, dir)
			g.NeverPrepared = neverPrepared(t, f, dir)
			return g
		}})
		cert.Require(t, "a handle holds no secret", "a process killed at any point loses nothing") // it has none; it is memory
	})
	t.Run("disk", func(t *testing.T) {
		if testing.Short() {
			t.Skip("a disk's syncs are slow")
		}
		cert := participanttest.Run(t, participanttest.Kit{New: func(t testing.TB) participanttest.Target {
			dir := filepath.Join(t.TempDir(), "out")
			g := target(crashfs.OS(), dir)
			g.NeverPrepared, g.World = neverPrepared(t, crashfs.OS(), dir), dir
			return g
		}})
		cert.Require(t, "a handle holds no secret")
	})
}

func TestConformance_SinkAndSource(t *testing.T) {
	t.Run("sink", func(t *testing.T) {
		cert := processortest.RunSink(t, processortest.SinkKit{New: func(testing.TB) processortest.SinkTarget {
			f, dir := crashfs.NewMem("/data"), "/data/out"
			return processortest.SinkTarget{
				Process: func(t testing.TB) participant.Resource { return sink(t, f, dir) },
				Read:    func(t testing.TB) []string { return published(t, f, dir) },
				Bad:     &stream.Record{Value: []byte("two\nlines")},
			}
		}})
		cert.Require(t)
	})
	for name, follow := range map[string]bool{"source": false, "source that follows": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(t testing.TB, name string, from, n, step int) {
				t.Helper()
				var lines []byte
				for i := from; i < from+n; i += step {
					lines = fmt.Appendf(lines, "record %d\n", i)
				}
				if err := os.WriteFile(filepath.Join(dir, name), lines, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			k := processortest.SourceKit{
				New: func(t testing.TB) processortest.Reader {
					src, err := file.NewSource(file.SourceConfig{Dir: dir, BatchRecords: 7, Follow: follow, PollEvery: 5 * time.Millisecond})
					if err != nil {
						t.Fatal(err)
					}
					return src
				},
				Fill: func(t testing.TB, n int) {
					for i := range 3 {
						put(t, fmt.Sprintf("%d.jsonl", i), i, n-i, 3)
					}
				},
				More: func(t testing.TB, from, n int) { put(t, "more.jsonl", from, n, 1) },
				Lose: func(t testing.TB) {
					for i := range 3 {
						if err := os.Remove(filepath.Join(dir, fmt.Sprintf("%d.jsonl", i))); err != nil {
							t.Fatal(err)
						}
					}
				},
			}
			except := []string{"it knows its own splits", "an end is told once for each split, and stays"}
			if !follow {
				k.More, except[1] = nil, "an idle source says so, and wakes up"
			}
			processortest.RunSource(t, k).Require(t, except...)
		})
	}
}

func TestTargetThatIsAFileIsToldInOneSentence(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sink(t, crashfs.OS(), dir).Describe(context.Background())
	if err == nil || err.Error() != dir+" is a file; the file sink writes into a directory, name another: misconfigured" {
		t.Fatalf("the sentence: %v", err)
	}
}
