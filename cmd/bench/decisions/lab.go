package decisions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/internal/child"
)

// LabConfig says with what is measured.
type LabConfig struct {
	// Exe is this binary; it is started again for each node.
	Exe   string
	Nodes int // coordinator nodes, 1 or 3
	// Dir for logs and data; empty: a temporary one, which is removed at the end.
	Dir string
	// Progress is told what is going on, a line at a time.
	Progress func(string)
}

func (c LabConfig) say(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// inLab runs f with a group. Whatever happens, no process is left, and no temporary directory.
func inLab(ctx context.Context, c LabConfig, f func(g *group.Group) error) (err error) {
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "unisink-bench-"); err != nil {
			return fmt.Errorf("make a directory to measure in: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.Dir)) }()
	} else if err = os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make the directory %s: %w", c.Dir, err)
	}
	crew := child.New()
	defer func() { err = errors.Join(err, crew.End()) }()
	c.say("starting %d coordinator nodes", c.Nodes)
	g, err := group.Start(ctx, group.Config{Exe: c.Exe, Nodes: c.Nodes, Dir: c.Dir, Crew: crew})
	if err != nil {
		g.Close()
		return err
	}
	defer g.Close()
	return f(g)
}

// await asks each 10 ms until something is so, for a time; why says what it waited for. Ended ends it early.
func await(ctx context.Context, limit time.Duration, so func() bool, ended func() error, why func() string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !so() {
		if err := ended(); err != nil {
			return err
		}
		if err := group.Sleep(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%s: %w", why(), err)
		}
	}
	return nil
}
