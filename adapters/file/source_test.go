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

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

func records(values ...string) []stream.Record {
	out := make([]stream.Record, len(values))
	for i, v := range values {
		out[i].Value = []byte(v)
	}
	return out
}

func source(t *testing.T, dir string) *file.Source {
	t.Helper()
	s, err := file.NewSource(file.SourceConfig{Name: "in", Dir: dir, BatchRecords: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// drain reads to the end and returns the values and the position of every split.
func drain(t *testing.T, s *file.Source) (values []string, at []stream.Position) {
	t.Helper()
	last := map[string]stream.Position{}
	for {
		b, err := s.Poll(context.Background())
		if errors.Is(err, io.EOF) {
			for _, p := range last {
				at = append(at, p)
			}
			return values, at
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Records {
			values = append(values, string(r.Value))
		}
		last[b.Split.ID] = b.Next
	}
}

func TestSourceReadsEveryLineOnceAndGoesOnFromAPosition(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.jsonl": "4\n5", "a.jsonl": "1\n2\n\n3\n", "notes.txt": "x\n", ".hidden.jsonl": "y\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := source(t, dir)
	if err := s.Open(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	b, err := s.Poll(context.Background())
	if err != nil || len(b.Records) != 2 || b.Next.Offset != 4 {
		t.Fatalf("first batch: %+v, %v", b, err)
	}
	at := b.Next
	if err := s.Open(context.Background(), []stream.Position{at}); err != nil {
		t.Fatal(err)
	}
	if got, _ := drain(t, s); !slices.Equal(got, []string{"3", "4", "5"}) {
		t.Fatalf("from %v: %v", at, got)
	}
}

func TestARecordsOffsetIsTheByteItsLineBeginsAt(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte("1\n\n22\n333"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := source(t, dir)
	if err := s.Open(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	var got []int64
	for {
		b, err := s.Poll(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Records {
			got = append(got, r.Offset)
		}
	}
	if want := []int64{0, 3, 6}; !slices.Equal(got, want) { // the last line has no end
		t.Errorf("offsets %v, want %v", got, want)
	}
}

func TestSourceNeverResetsAPosition(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.jsonl")
	if err := os.WriteFile(name, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, want string }{{"a.jsonl", "cut or replaced"}, {"gone.jsonl", "is gone"}} {
		err := source(t, dir).Open(context.Background(), []stream.Position{{Split: stream.Split{Resource: "in", ID: c.file}, Offset: 100}})
		if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("open at %s@100: %v", c.file, err)
		}
	}
}

func TestF3_SourceOfASinksDirectorySeesWholeEpochsOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	s := sink(t, crashfs.OS(), dir)
	if err := s.Open(context.Background(), opening(1)); err != nil {
		t.Fatal(err)
	}
	var handles []participant.Handle
	for n := uint64(1); n <= 11; n++ {
		b, err := s.Begin(context.Background(), branchName(1, n))
		if err != nil {
			t.Fatal(err)
		}
		write(t, b, `"x"`)
		v, err := b.Prepare(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, v.Handle)
	}
	for i, h := range handles {
		if i == 5 {
			continue // stays prepared
		}
		if _, err := s.Commit(context.Background(), h); err != nil {
			t.Fatal(err)
		}
	}
	// A file without its manifest is half of a commit.
	if err := os.WriteFile(filepath.Join(dir, handles[5].Name+"-0001.jsonl"), []byte("half\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	src := source(t, dir)
	if err := src.Open(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := drain(t, src); len(got) != 10 || slices.Contains(got, "half") {
		t.Fatalf("read %v", got)
	}
	ms, err := file.ReadManifests(nil, dir)
	if err != nil || len(ms) != 10 || ms[1].Name.N != 2 || ms[9].Name.N != 11 {
		t.Fatalf("manifests are not in order of epochs: %+v, %v", ms, err)
	}
}

func FuzzHandle(f *testing.F) {
	f.Add([]byte(`{"branch":"x","files":[{"name":"../x"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		mem := crashfs.NewMem(home)
		s := sink(t, mem, dir)
		d, err := s.Describe(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		h := participant.Handle{Kind: file.Kind, Version: 1, Identity: d.Identity, Name: branchName(1, 1).String(), Body: text}
		p, err := s.Commit(context.Background(), h)
		if err == nil && p.Verdict == 0 {
			t.Fatalf("no verdict and no error for %q", text)
		}
	})
}
