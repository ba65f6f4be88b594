package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/mutant"
)

// gate tries mutants, one after the other.
type gate struct {
	root  string        // of the module whose code has the protections
	tags  string        // of its build
	work  string        // an existing directory for binaries and logs
	limit time.Duration // longest time that one check may take
	out   io.Writer     // for progress

	built  map[string]string  // by package: why its test binary could not be built, or ""
	before map[string]outcome // by package and pattern: the check with all protections on
}

// verdict is what became of one mutant.
type verdict struct {
	Name     string  `json:"name"`
	CaughtBy string  `json:"caught_by"` // package and test; empty: it survived
	AfterS   float64 `json:"after_s"`   // seconds from the start of the check to its red end

	why string // it survived
}

// try tries the mutants in their order until the budget is used up; 0 is no bound. At least one is
// tried. The error is of the gate itself: a mutant that survives is none.
func (g *gate) try(ctx context.Context, mutants []mutant.Mutant, budget time.Duration) ([]verdict, error) {
	g.built, g.before = map[string]string{}, map[string]outcome{}
	begun := time.Now()
	var all []verdict
	for _, m := range mutants {
		if budget > 0 && len(all) > 0 && time.Since(begun) >= budget {
			break
		}
		v, err := g.tryOne(ctx, m)
		if err != nil {
			return all, fmt.Errorf("try %s: %w", m.Name, err)
		}
		all = append(all, v)
		if v.CaughtBy == "" {
			fmt.Fprintf(g.out, "SURVIVED  %-44s %s\n", v.Name, v.why)
		} else {
			fmt.Fprintf(g.out, "caught    %-44s %6.1fs  %s\n", v.Name, v.AfterS, v.CaughtBy)
		}
	}
	return all, nil
}

func (g *gate) tryOne(ctx context.Context, m mutant.Mutant) (verdict, error) {
	v := verdict{Name: m.Name}
	why, err := g.build(ctx, m.Package)
	if v.why = why; why != "" || err != nil {
		return v, err
	}
	before, err := g.unmutated(ctx, m)
	if err != nil {
		return v, err
	}
	if v.why = before.trouble(m.Run); v.why != "" {
		return v, nil
	}
	after, err := g.check(m, m.Name).do(ctx)
	if err != nil {
		return v, err
	}
	var test string
	if test, v.why = after.caught(before); test != "" {
		v.CaughtBy, v.AfterS = m.Package+" "+test, math.Ceil(after.took.Seconds()*1000)/1000
	}
	return v, nil
}

// unmutated runs the check of a mutant once for all mutants that have the same.
func (g *gate) unmutated(ctx context.Context, m mutant.Mutant) (outcome, error) {
	key := m.Package + " " + m.Run
	if o, found := g.before[key]; found {
		return o, nil
	}
	o, err := g.check(m, "").do(ctx)
	if err == nil {
		g.before[key] = o
	}
	return o, err
}

func (g *gate) check(m mutant.Mutant, off string) check {
	log := strings.ReplaceAll(m.Name, "/", "_")
	if off == "" {
		log += ".before"
	}
	return check{
		dir: filepath.Join(g.root, m.Package), binary: binaryOf(g.work, m.Package),
		run: m.Run, off: off, limit: g.limit, log: filepath.Join(g.work, log+".log"),
	}
}

// build builds the test binary of a package, once.
func (g *gate) build(ctx context.Context, pkg string) (why string, err error) {
	if why, done := g.built[pkg]; done {
		return why, nil
	}
	begun := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-tags", g.tags, "-o", binaryOf(g.work, pkg), pkg)
	cmd.Dir = g.root
	text, failed := cmd.CombinedOutput()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	switch _, missing := os.Stat(binaryOf(g.work, pkg)); {
	case failed != nil:
		why = "its check does not build: " + firstLines(string(text), 3)
	case missing != nil:
		why = "its check is in a package without tests: " + pkg
	}
	g.built[pkg] = why
	fmt.Fprintf(g.out, "built     %-44s %6.1fs\n", pkg, time.Since(begun).Seconds())
	return why, nil
}

func firstLines(text string, n int) string {
	lines := slices.Collect(strings.Lines(text))
	return strings.Join(strings.Fields(strings.Join(lines[:min(n, len(lines))], " ")), " ")
}
