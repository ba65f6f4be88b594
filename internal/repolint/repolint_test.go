package repolint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/unisink/unisink/internal/repolint"
)

// root returns the repository's root: the folder with go.mod around this package.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = up
	}
}

func TestRepository(t *testing.T) {
	repo, err := repolint.Load(os.DirFS(root(t)))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(repo.GoFiles()); n < 10 {
		t.Fatalf("found only %d Go files; the walk does not see the repository", n)
	}
	for _, rule := range repolint.Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, finding := range rule.Check(repo) {
				t.Error(finding)
			}
		})
	}
}
