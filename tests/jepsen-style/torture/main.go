package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// Exit codes, as those of unisink.
const (
	exitFailed    = 1
	exitUsage     = 2
	exitUnhealthy = 10
)

// Config of a run.
type Config struct {
	Minutes   float64       // how long to go on; longer if not everything was done by then
	Seed      uint64        // of the order of what is done; 0: drawn
	Pause     time.Duration // of a pipeline that is stopped after a decision; 0: 60 s, less in a short run
	Rate      int           // orders per second
	Epoch     time.Duration // between barriers
	Sinks     string        // kafkaAndFiles or allSinks
	Mode      string        // of the PostgreSQL sink: prepared or staged
	Dir       string        // to work in and to keep; empty: a temporary one, kept if the run fails
	Binary    string        // unisink; empty: built
	FaultsBin string        // unisink with -tags faults; empty: built
	Only      string        // fault points whose names begin so; empty: all
	Acts      string        // what is done, comma-separated, as the report names it; empty: everything
	Out       io.Writer     // for progress
}

func main() { os.Exit(run()) }

func run() int {
	c := Config{Out: os.Stdout}
	var output string
	flag.Float64Var(&c.Minutes, "minutes", 1, "how long to go on; longer if not everything was done by then")
	flag.Uint64Var(&c.Seed, "seed", 0, "seed of the order of what is done; drawn if 0")
	flag.DurationVar(&c.Pause, "pause", 0, "how long a pipeline is stopped after a decision; 1m, or less in a run of under 5 minutes")
	flag.IntVar(&c.Rate, "rate", 2000, "orders per second")
	flag.DurationVar(&c.Epoch, "epoch", 200*time.Millisecond, "time between barriers")
	flag.StringVar(&c.Sinks, "sinks", kafkaAndFiles, "what the pipeline writes to: "+kafkaAndFiles+", or "+allSinks+" for PostgreSQL as well, with a resolver")
	flag.StringVar(&c.Mode, "mode", prepared, "of the PostgreSQL sink: "+prepared+" or "+staged)
	flag.StringVar(&c.Dir, "dir", "", "directory to work in and to keep; a temporary one by default, kept if the run fails")
	flag.StringVar(&c.Binary, "bin", "", "the unisink binary; built by default")
	flag.StringVar(&c.FaultsBin, "faults-bin", "", "the unisink binary with -tags faults; built by default")
	flag.StringVar(&c.Only, "only", "", "crash only at fault points whose names begin so")
	flag.StringVar(&c.Acts, "acts", "", "do only this, comma-separated, as the report names it: \"broker,leader stopped\"; the verdict is then incomplete at best")
	flag.StringVar(&output, "o", "text", "format of the report: text or json")
	flag.Parse()
	if c.Sinks != kafkaAndFiles && c.Sinks != allSinks || c.Mode != prepared && c.Mode != staged {
		fmt.Fprintf(os.Stderr, "torture: -sinks is %s or %s, -mode is %s or %s\n", kafkaAndFiles, allSinks, prepared, staged)
		return exitUsage
	}
	if flag.NArg() > 0 || c.Minutes <= 0 || c.Rate < 1 || c.Epoch < 20*time.Millisecond || (output != "text" && output != "json") {
		fmt.Fprintln(os.Stderr, "torture: -minutes and -rate must be above 0, -epoch at least 20ms, -o text or json, and nothing follows the flags")
		return exitUsage
	}
	if output == "json" {
		c.Out = os.Stderr // the report alone goes to standard output
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := Run(ctx, c)
	if report.Dir != "" {
		err = errors.Join(err, report.save(filepath.Join(report.Dir, "report.json")))
	}
	if output == "json" {
		err = errors.Join(err, report.encode(os.Stdout))
	} else {
		report.write(os.Stdout)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "torture: "+err.Error())
		return exitFailed
	case report.Verdict != clean:
		return exitUnhealthy
	}
	return 0
}
