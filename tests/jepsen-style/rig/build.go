package rig

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds the binary from the tree around as dir/name, unless one is given, and returns where it is.
func Build(ctx context.Context, given, dir, name string, flags ...string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(dir, name)
	args := append([]string{"build", "-o", path}, flags...) // as tests are built, which spares compiling everything again
	out, err := exec.CommandContext(ctx, "go", append(args, "github.com/unisink/unisink/cmd/unisink")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}
