package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/teller"
)

// Exit codes, as those of unisink.
const (
	exitFailed    = 1
	exitUsage     = 2
	exitUnhealthy = 10
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 0
	if len(os.Args) > 1 && os.Args[1] == "teller" {
		code = work(ctx, os.Args[2:])
	} else {
		code = breakThings(ctx, os.Args[1:])
	}
	stop()
	os.Exit(code)
}

// work is a worker process of the harness.
func work(ctx context.Context, args []string) int {
	var c teller.Config
	var coordinators string
	flags := flag.NewFlagSet("teller", flag.ContinueOnError)
	flags.StringVar(&c.Name, "name", "", "the worker's name")
	flags.StringVar(&c.Socket, "socket", "", "of the house")
	flags.StringVar(&c.Files, "files", "", "directory of the transfers")
	flags.StringVar(&coordinators, "coordinators", "", "client addresses of the nodes")
	flags.Uint64Var(&c.Seed, "seed", 0, "of what it does")
	flags.DurationVar(&c.Pause, "pause", 100*time.Millisecond, "longest one between two transactions")
	flags.BoolVar(&c.Sweep, "sweep", false, "finish what others have left, and nothing else")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	c.Coordinators = strings.Split(coordinators, ",")
	if err := teller.Run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, c.Name+": "+err.Error())
		return exitFailed
	}
	return 0
}

func breakThings(ctx context.Context, args []string) int {
	c := Config{Log: os.Stdout}
	flags := flag.NewFlagSet("blackbox", flag.ContinueOnError)
	flags.Float64Var(&c.Minutes, "minutes", 3, "how long to break things")
	hours := flags.Float64("hours", 0, "the same in hours")
	flags.Uint64Var(&c.Seed, "seed", 0, "seed of the plan; drawn if 0")
	flags.DurationVar(&c.Pause, "pause", 250*time.Millisecond, "longest pause of a teller between two transactions, about")
	flags.DurationVar(&c.Calm, "calm", 1500*time.Millisecond, "between two faults, about")
	flags.StringVar(&c.Dir, "dir", "", "directory to work in and to keep; a temporary one by default, kept if the run fails")
	flags.StringVar(&c.Out, "out", "dist", "directory of the report: jepsen.json and jepsen.html")
	flags.StringVar(&c.Binary, "bin", "", "the unisink binary; built by default")
	flags.StringVar(&c.Faults, "faults", "", "do only these, comma-separated, as the report names them: \"kill a teller,power loss of all nodes\"; say -few as well")
	flags.BoolVar(&c.Few, "few", false, "pass with too few faults too; what is broken fails all the same")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	if *hours > 0 {
		c.Minutes = *hours * 60
	}
	if c.Faults != "" && len(only(nodeFaults(), c.Faults))+len(only(workerFaults(), c.Faults)) != strings.Count(c.Faults, ",")+1 {
		fmt.Fprintln(os.Stderr, "blackbox: -faults names one that there is not; the report of a run has their names")
		return exitUsage
	}
	if flags.NArg() > 0 || c.Minutes <= 0 || c.Pause <= 0 || c.Calm <= 0 {
		fmt.Fprintln(os.Stderr, "blackbox: -minutes, -pause and -calm must be above 0, and nothing follows the flags")
		return exitUsage
	}
	report, err := Run(ctx, c)
	report.write(os.Stdout)
	switch {
	case err != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "blackbox: stopped")
		return exitFailed
	case err != nil:
		fmt.Fprintln(os.Stderr, "blackbox: "+err.Error())
		return exitFailed
	case report.Verdict != passed:
		return exitUnhealthy
	}
	return 0
}
