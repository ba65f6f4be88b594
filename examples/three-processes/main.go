package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/unisink/unisink/participant"
)

const usage = `usage: three-processes ROLE [flags]

roles, each a process of its own:
  declare  make the pipeline known to the coordinator, once
  source   make numbered records               --to ADDRESS
  window   sum them by key and window           --listen ADDRESS --to ADDRESS
  sink     publish the sums in a directory     --listen ADDRESS --dir DIR

three-processes ROLE -h lists the flags.
`

// config is what the command line says. No role needs all of it.
type config struct {
	coordinators []string
	pipeline     string
	listen, to   string
	dir          string
	rate         int
	epoch, lease time.Duration
	verbose      bool
	log          *slog.Logger
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Canceled):
		// Stopped, by the coordinator or by a signal. A supervisor leaves it at that.
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "three-processes:", err)
		os.Exit(1) // and starts it again after anything else
	}
}

// run is the program without the process around it.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(out, usage)
		return flag.ErrHelp
	}
	c, err := parse(args[0], args[1:], out)
	if err != nil {
		return err
	}
	switch args[0] {
	case "declare":
		return declare(ctx, c)
	case "source":
		return runSource(ctx, c)
	case "window":
		return runWindow(ctx, c)
	case "sink":
		return runSink(ctx, c)
	}
	fmt.Fprint(out, usage)
	return fmt.Errorf("there is no role %q", args[0])
}

func parse(role string, args []string, out io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet(role, flag.ContinueOnError)
	f.SetOutput(out)
	coordinators := f.String("coordinator", "127.0.0.1:7400", "client `addresses` of the coordinator nodes, with commas between")
	f.StringVar(&c.pipeline, "pipeline", "three", "`name` of the pipeline")
	f.StringVar(&c.listen, "listen", "", "`address` at which the stage before this one connects (window, sink)")
	f.StringVar(&c.to, "to", "", "`address` of the stage behind this one (source, window)")
	f.StringVar(&c.dir, "dir", "", "`directory` to publish in (sink)")
	f.IntVar(&c.rate, "rate", 1000, "records per second (source)")
	f.DurationVar(&c.epoch, "epoch", time.Second, "`time` between barriers (declare)")
	f.DurationVar(&c.lease, "lease", 3*time.Second, "how long a member may be silent (declare)")
	f.BoolVar(&c.verbose, "v", false, "log more")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("%s takes no argument %q", role, f.Arg(0))
	}
	c.coordinators = strings.Split(*coordinators, ",")
	level := slog.LevelInfo
	if c.verbose {
		level = slog.LevelDebug
	}
	c.log = slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
	return c, nil
}

// member is the part of a member's configuration that is the same for all three. Each process
// knows its own name; who the others are, the pipeline says.
func (c *config) member(name string) participant.MemberConfig {
	return participant.MemberConfig{
		Coordinators: c.coordinators, Pipeline: c.pipeline, Member: name, Fingerprint: fingerprint, Logger: c.log,
	}
}

// need reports flags without which a role cannot work.
func need(flags map[string]string) error {
	var missing []error
	for name, value := range flags {
		if value == "" {
			missing = append(missing, fmt.Errorf("--%s is missing", name))
		}
	}
	return errors.Join(missing...)
}
