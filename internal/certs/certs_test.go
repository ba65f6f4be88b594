package certs

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/raftnode/devcert"
)

// made makes the certificate of n1 in a directory and names its files.
func made(t *testing.T, dir string) Files {
	t.Helper()
	if err := devcert.Make(devcert.Options{Dir: dir, Nodes: []string{"n1"}}); err != nil {
		t.Fatal(err)
	}
	return Files{Cert: devcert.CertFile(dir, "n1"), Key: devcert.KeyFile(dir, "n1"), CA: filepath.Join(dir, devcert.CAFile)}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatCannotBeUsedChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := made(t, t.TempDir())
		next := made(t, t.TempDir())
		s, err := Open(f, "n1", slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		first := s.Cert()
		serial := func() string { time.Sleep(2 * lookEvery); return s.Cert().Leaf.SerialNumber.String() }
		was := first.Leaf.SerialNumber.String()
		move(t, next.Cert, f.Cert) // its key is still to come
		for range 3 {
			if got := serial(); got != was {
				t.Errorf("a certificate without its key is used")
			}
		}
		if n := strings.Count(log.String(), "cannot be used"); n != 1 {
			t.Errorf("one trouble is told %d times:\n%s", n, log.String())
		}
		move(t, next.Key, f.Key)
		if got := serial(); got == was {
			t.Error("the new pair is not used")
		}
		key, err := os.ReadFile(f.Key)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.CA, key, 0o600); err != nil {
			t.Fatal(err)
		}
		serial()
		if !strings.Contains(log.String(), "beside certificates") {
			t.Errorf("a key in the place of the authority is not told:\n%s", log.String())
		}
		for line := range strings.Lines(string(key)) {
			if line = strings.TrimSpace(line); len(line) > 30 && strings.Contains(log.String(), line) {
				t.Error("the log has a piece of the key")
			}
		}
		if err := errors.Join(os.Remove(f.CA), os.Remove(f.Cert)); err != nil {
			t.Fatal(err)
		}
		if got := serial(); got == "" || s.Roots() == nil {
			t.Error("nothing is left when the files are gone")
		}
	})
}

func TestEveryFileThatCannotBeUsedIsNamed(t *testing.T) {
	f := made(t, t.TempDir())
	other := made(t, t.TempDir())
	for name, c := range map[string]struct {
		f    Files
		node string
		want string
	}{
		"no authority":         {Files{Cert: f.Cert, Key: f.Key, CA: "nowhere"}, "", "nowhere"},
		"a key as authority":   {Files{Cert: f.Cert, Key: f.Key, CA: f.Key}, "", f.Key},
		"another's key":        {Files{Cert: f.Cert, Key: other.Key, CA: f.CA}, "", other.Key},
		"no key":               {Files{Cert: f.Cert, CA: f.CA}, "", "given together"},
		"another node's":       {f, "n2", `this node is "n2"`},
		"an empty certificate": {Files{Cert: os.DevNull, Key: f.Key, CA: f.CA}, "", os.DevNull},
	} {
		if _, err := Open(c.f, c.node, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
