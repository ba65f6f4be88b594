package skeleton_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/unisink/unisink/cmd/skeleton"
)

// What is laid is what a newcomer starts from: it builds, and the kit passes.
func TestWhatIsLaidConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, four := range []bool{false, true} {
		p := skeleton.Plan{Name: "depot", Module: "example.com/depot", Dir: filepath.Join(t.TempDir(), "depot"), Four: four, Version: "v0.1.0", Source: source}
		names, err := skeleton.Lay(p)
		if err != nil || len(names) != 6 {
			t.Fatalf("laid %q, %v", names, err)
		}
		if out, err := exec.Command("gofmt", "-l", p.Dir).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("gofmt (four functions: %v): %v: %s", four, err, out)
		}
		sums, err := os.ReadFile(filepath.Join(source, "go.sum"))
		if err != nil {
			t.Fatal(err)
		}
		// The sums are known here too; without them a public server would be asked for them.
		if err := os.WriteFile(filepath.Join(p.Dir, "go.sum"), sums, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "./..."}, {"build", "-o", "depot", "."}} {
			cmd := exec.Command("go", args...)
			cmd.Dir = p.Dir
			// What the module needs is what this one needs, and is here.
			cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("go %v (four functions: %v): %v\n%s", args, four, err, out)
			}
		}
		cmd := exec.Command(filepath.Join(p.Dir, "depot"), "pipeline", "lint", "pipeline.yaml")
		cmd.Dir = p.Dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("lint (four functions: %v): %v\n%s", four, err, out)
		}
	}
}

func TestNothingIsWrittenOverAndNothingForAWrongName(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []skeleton.Plan{
		{Name: "depot", Module: "depot", Dir: dir},
		{Name: "De.pot", Module: "depot", Dir: filepath.Join(dir, "new")},
		{Name: "depot", Module: "-mod", Dir: filepath.Join(dir, "new")},
		{Name: "depot", Module: "depot", Dir: filepath.Join(dir, "mine")},
	} {
		if _, err := skeleton.Lay(p); !errors.Is(err, skeleton.ErrRefused) {
			t.Errorf("%+v: %v, want a refusal", p, err)
		}
	}
	if there, err := os.ReadDir(dir); err != nil || len(there) != 1 {
		t.Errorf("written: %v, %v", there, err)
	}
}
