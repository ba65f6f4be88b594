package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// writtenBy prepares one branch as a coordinator group that begins to count would.
func writtenBy(t *testing.T, s *Sink, text string) (participant.Handle, error) {
	t.Helper()
	ctx, ns := t.Context(), participant.Namespace{Name: "try", Incarnation: 1}
	if _, err := s.Describe(ctx); err != nil {
		t.Fatal(err)
	}
	err := s.Open(ctx, participant.Opening{Namespace: ns, Scope: "p/0", Member: "m", Resource: "f", Generation: 5})
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Begin(ctx, participant.BranchName{Namespace: ns, Pipeline: "p", Member: "m", Resource: "f", Generation: 5, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.(*Branch).Write(ctx, []stream.Record{{Value: []byte(text)}}); err != nil {
		return participant.Handle{}, err
	}
	v, err := b.Prepare(ctx)
	if err != nil || v.Kind != participant.Yes {
		t.Fatalf("%v %v %v", v.Kind, v.Reason, err)
	}
	return v.Handle, nil
}

// aSink is a sink of its own process.
func aSink(t *testing.T, dir string) *Sink {
	t.Helper()
	s, err := NewSink(SinkConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func only(t *testing.T, dir string) (name, text string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%v %v", all, err)
	}
	got, err := os.ReadFile(all[0])
	if err != nil {
		t.Fatal(err)
	}
	return all[0], string(got)
}

// Row P11. A group that was lost and made anew under its old namespace counts its generations from 1 again, and comes to
// names under which the old one has published. What it writes is not taken for published by that.
func TestP11_ANameIsPublishedOnce(t *testing.T) {
	dir := t.TempDir()
	old := aSink(t, dir)
	h, err := writtenBy(t, old, "old")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := old.Commit(t.Context(), h); err != nil || p.Verdict != participant.Committed {
		t.Fatal(p, err)
	}
	_, err = writtenBy(t, aSink(t, dir), "new")
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "another coordinator group of the same namespace") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, ".unisink", "staged")); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}

// The same where the other group has published after this one had begun.
func TestP11_AManifestProvesTheFilesThatItNames(t *testing.T) {
	for what, same := range map[string]bool{"of another length": false, "of the same length": true} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			mine := aSink(t, dir)
			h, err := writtenBy(t, mine, "new")
			if err != nil {
				t.Fatal(err)
			}
			aside := filepath.Join(dir, ".unisink", "staged")
			if err := os.Rename(aside, aside+"-aside"); err != nil {
				t.Fatal(err)
			}
			text := "older"
			if same {
				text = "old"
			}
			old := aSink(t, dir)
			oldHandle, err := writtenBy(t, old, text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := old.Commit(t.Context(), oldHandle); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(aside); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(aside+"-aside", aside); err != nil {
				t.Fatal(err)
			}
			for who, s := range map[string]*Sink{"its process": mine, "a resolver": aSink(t, dir)} {
				if _, err := s.Describe(t.Context()); err != nil {
					t.Fatal(err)
				}
				if p, err := s.Commit(t.Context(), h); !errors.Is(err, participant.ErrMisconfigured) {
					t.Errorf("%s: %+v %v", who, p, err)
				}
				if p, err := s.Rollback(t.Context(), h); !errors.Is(err, participant.ErrMisconfigured) {
					t.Errorf("%s, rolling back: %+v %v", who, p, err)
				}
			}
			file, got := only(t, dir)
			if got != text+"\n" {
				t.Errorf("the other group's file is now %q", got)
			}

			// The manifest alone is moved out of the way: the file is not taken for this one's either.
			if err := os.Remove(filepath.Join(dir, "_manifests", h.Name+".json")); err != nil {
				t.Fatal(err)
			}
			if p, err := mine.Commit(t.Context(), h); !errors.Is(err, participant.ErrMisconfigured) {
				t.Errorf("beside the other file: %+v %v", p, err)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if p, err := mine.Commit(t.Context(), h); err != nil || p.Verdict != participant.Committed {
				t.Errorf("with nothing in its way: %+v %v", p, err)
			}
			if _, got := only(t, dir); got != "new\n" {
				t.Errorf("published: %q", got)
			}
		})
	}
}
