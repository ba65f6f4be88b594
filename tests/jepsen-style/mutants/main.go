package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/unisink/unisink/internal/mutant"
)

// Exit codes, as those of unisink.
const (
	exitFailed    = 1
	exitUsage     = 2
	exitUnhealthy = 10
)

// options of a run.
type options struct {
	all    bool
	only   string
	turn   int
	budget time.Duration
	limit  time.Duration
	file   string
	keep   string
}

func main() { os.Exit(run()) }

func run() int {
	var o options
	flag.BoolVar(&o.all, "all", false, "try every mutant; else those of one turn that fit into -budget")
	flag.StringVar(&o.only, "only", "", "try the mutants whose names begin so")
	flag.IntVar(&o.turn, "turn", -1, "which mutants come first; the number of commits by default, so that each commit takes its turn")
	flag.DurationVar(&o.budget, "budget", time.Minute, "begin no other mutant after this time, unless -all or -only")
	flag.DurationVar(&o.limit, "limit", 2*time.Minute, "longest time that one check may take")
	flag.StringVar(&o.file, "o", "tests/jepsen-style/mutants.json", "file of all verdicts; those of mutants that are not tried stay")
	flag.StringVar(&o.keep, "logs", "", "directory to keep the checks' output in; a temporary one by default, kept if a mutant survives")
	flag.Parse()
	if flag.NArg() > 0 || o.limit < time.Second || o.budget <= 0 {
		fmt.Fprintln(os.Stderr, "mutants: -limit must be a second or more, -budget above 0, and nothing follows the flags")
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	green, err := o.run(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return exitFailed
	case !green:
		return exitUnhealthy
	}
	return 0
}

// run tries what was asked for, and reports whether every mutant that was tried was caught.
func (o options) run(ctx context.Context) (green bool, err error) {
	chosen, budget, err := o.choose(ctx)
	if err != nil {
		return false, err
	}
	work, err := o.place()
	if err != nil {
		return false, err
	}
	root, err := os.Getwd()
	if err != nil {
		return false, err
	}
	before, err := load(o.file)
	if err != nil {
		return false, err
	}
	g := &gate{root: root, tags: "mutants,faults,invariants", work: work, limit: o.limit, out: os.Stdout}
	tried, err := g.try(ctx, chosen, budget)
	known := mutant.Known()
	if len(tried) > 0 {
		err = errors.Join(err, save(o.file, merge(before, tried, known)))
	}
	green = tell(os.Stdout, tried, len(known)) && err == nil
	if green && o.keep == "" {
		return green, os.RemoveAll(work)
	}
	fmt.Printf("what the checks printed: %s\n", work)
	return green, err
}

// choose says which mutants are tried, in which order, and for how long.
func (o options) choose(ctx context.Context) ([]mutant.Mutant, time.Duration, error) {
	all := mutant.Known()
	if o.only != "" {
		all = slices.DeleteFunc(all, func(m mutant.Mutant) bool { return !strings.HasPrefix(m.Name, o.only) })
		if len(all) == 0 {
			return nil, 0, fmt.Errorf("no mutant's name begins with %q; the names stand in internal/mutant/mutants.txt", o.only)
		}
	}
	if o.all || o.only != "" {
		return plan(all, 0), 0, nil
	}
	turn := o.turn
	if turn < 0 {
		var err error
		if turn, err = commits(ctx); err != nil {
			return nil, 0, err
		}
	}
	fmt.Printf("turn %d; the same again: go run ./tests/jepsen-style/mutants -turn %d\n", turn, turn)
	return plan(all, turn), o.budget, nil
}

// commits counts the commits, which goes up by itself.
func commits(ctx context.Context) (int, error) {
	text, err := exec.CommandContext(ctx, "git", "rev-list", "--count", "HEAD").Output()
	if err != nil {
		return 0, fmt.Errorf("count the commits, to know whose turn it is (or give -turn): %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// place makes the directory for binaries and logs.
func (o options) place() (string, error) {
	if o.keep == "" {
		return os.MkdirTemp("", "unisink-mutants-")
	}
	if err := os.MkdirAll(o.keep, 0o755); err != nil {
		return "", err
	}
	return filepath.Abs(o.keep)
}
