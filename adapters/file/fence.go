package file

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
)

// A fence is a file per holder (namespace, scope, member, resource) with the newest generation
// that was opened. It makes an older process stop early. What makes it harmless even when it reads
// the fence just before it is raised: its vote is refused by the ledger, and its staged directory,
// once rolled back, is gone and is never made a second time.

func holder(o participant.Opening) string {
	return strings.Join([]string{o.Namespace.String(), strings.ReplaceAll(o.Scope, "/", "."), o.Member, o.Resource}, ".")
}

// fenced returns the generation of a holder's fence; 0 if there is none.
func (l layout) fenced(holder string) (uint64, error) {
	text, err := crashfs.ReadFile(l.fs, filepath.Join(l.fences(), holder))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the fence of %s: %w", holder, err)
	}
	g, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the fence %s is damaged (%q); remove it once no process of this holder runs: %w", filepath.Join(l.fences(), holder), text, participant.ErrMisconfigured)
	}
	return g, nil
}

// raise sets the fence of a holder to a generation; ErrFenced when it is higher already.
func (l layout) raise(holder string, generation uint64) error {
	now, err := l.fenced(holder)
	if err != nil {
		return err
	}
	if now > generation {
		return fmt.Errorf("generation %d of %s is open in %s, this one is %d: %w", now, holder, l.dir, generation, participant.ErrFenced)
	}
	if now == generation {
		return nil
	}
	if err := l.replace(filepath.Join(l.fences(), holder), []byte(strconv.FormatUint(generation, 10)+"\n")); err != nil {
		return fmt.Errorf("raise the fence of %s to %d: %w", holder, generation, err)
	}
	return nil
}
