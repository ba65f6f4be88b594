package file_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

var (
	_ processor.Source = (*file.Source)(nil)
	_ processor.Sink   = (*file.Sink)(nil)
	_ processor.Writer = (*file.Branch)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestConformance(t *testing.T) {
	for _, disk := range []string{"memory", "disk"} {
		t.Run(disk, func(t *testing.T) {
			participanttest.Run(t, participanttest.Kit{New: func(t testing.TB) participanttest.Target {
				f, dir := crashfs.FS(crashfs.NewMem("/data")), "/data/out"
				if disk == "disk" {
					f, dir = crashfs.OS(), filepath.Join(t.TempDir(), "out")
				}
				return participanttest.Target{
					Process: func(t testing.TB) participant.Resource { return sink(t, f, dir) },
					Write:   func(t testing.TB, b participant.Branch, r string) { write(t, b, fmt.Sprintf("%q", r)) },
					Read: func(t testing.TB) []string {
						var out []string
						for _, v := range published(t, f, dir) {
							out = append(out, v[1:len(v)-1])
						}
						return out
					},
				}
			}})
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
