package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
)

// Version of the binary; release builds set it with -ldflags.
var version = "0.1.0-dev"

// Pipeline is a pipeline that is compiled into the binary and started by `unisink run NAME`.
type Pipeline struct {
	Name string
	// Text is one line for people.
	Text string
	// Flags of its own, shown by `run NAME --help`.
	Flags []cli.Flag
	// Run runs it until ctx ends or the pipeline is stopped.
	Run func(ctx context.Context, c RunContext) error
}

// RunContext is what a compiled-in pipeline gets to know.
type RunContext struct {
	Flags        *cli.Context
	Coordinators []string
	NoWait       bool
	FromScratch  bool
	Logger       *slog.Logger
	Out          io.Writer
}

// Option of Main.
type Option func(*app)

// WithPipeline compiles a pipeline in.
func WithPipeline(p Pipeline) Option { return func(a *app) { a.pipelines = append(a.pipelines, p) } }

// WithOutput replaces standard output and standard error, for tests.
func WithOutput(out, err io.Writer) Option { return func(a *app) { a.out, a.err = out, err } }

type app struct {
	pipelines []Pipeline
	out, err  io.Writer
}

// Main runs the command line and returns the exit code. It prints one sentence for an error.
func Main(ctx context.Context, args []string, opts ...Option) int {
	a := &app{out: os.Stdout, err: os.Stderr}
	for _, o := range opts {
		o(a)
	}
	root := a.root()
	args, err := normalise(root, args)
	if err == nil {
		err = root.RunContext(ctx, args)
	}
	if err == nil {
		return int(CodeOK)
	}
	code := codeOf(err)
	if text := sentence(err); text != "" {
		fmt.Fprintln(a.err, "unisink: "+text)
	}
	return int(code)
}

func (a *app) root() *cli.App {
	return &cli.App{
		Name:            "unisink",
		Usage:           "your sinks commit in unison, or not at all",
		Version:         version,
		HideVersion:     true,
		HideHelpCommand: true,
		Writer:          a.out,
		ErrWriter:       a.err,
		Flags:           globalFlags(),
		Commands: []*cli.Command{
			a.serve(), a.dev(), a.demo(), a.run(), a.pipeline(), a.epoch(), a.txn(), a.cluster(),
			a.verify(), a.bench(), a.versionCommand(),
		},
		// Errors are printed by Main alone, usage errors with where to look.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError: func(c *cli.Context, err error, _ bool) error {
			return usagef("%s; see `%s --help`", lower(err.Error()), c.App.Name)
		},
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return usagef("there is no command %q; see `unisink --help`", name)
			}
			return cli.ShowAppHelp(c)
		},
	}
}

func lower(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{
			Name: "coordinator", Aliases: []string{"c"}, EnvVars: []string{"UNISINK_COORDINATORS"},
			Usage: "client `ADDRESS` of a coordinator node; several times or comma-separated", Value: cli.NewStringSlice("127.0.0.1:7400"),
		},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, EnvVars: []string{"UNISINK_OUTPUT"}, Value: "table", Usage: "`FORMAT` of results: table or json"},
		&cli.DurationFlag{Name: "timeout", EnvVars: []string{"UNISINK_TIMEOUT"}, Value: 10 * time.Second, Usage: "longest `WAIT` for an answer; its end means unknown, not failed"},
		&cli.StringFlag{Name: "log-level", EnvVars: []string{"UNISINK_LOG_LEVEL"}, Value: "info", Usage: "`LEVEL` debug, info, warn or error"},
		&cli.StringFlag{Name: "log-format", EnvVars: []string{"UNISINK_LOG_FORMAT"}, Value: "text", Usage: "`FORMAT` of the log on standard error: text or json"},
	}
}

// group is a noun with its verbs.
func group(name, usage string, subs ...*cli.Command) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, Subcommands: subs, HideHelpCommand: true,
		Action: func(c *cli.Context) error {
			verbs := make([]string, len(subs))
			for i, s := range subs {
				verbs[i] = s.Name
			}
			if got := c.Args().First(); got != "" {
				return usagef("`unisink %s` has no %q; it has %s", name, got, strings.Join(verbs, ", "))
			}
			return usagef("say what about the %s: %s", name, strings.Join(verbs, ", "))
		},
	}
}

// logger writes to standard error.
func (a *app) logger(c *cli.Context) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
		return nil, usagef("--log-level %q is not debug, info, warn or error", c.String("log-level"))
	}
	opts := &slog.HandlerOptions{Level: level}
	switch f := c.String("log-format"); f {
	case "text":
		return slog.New(slog.NewTextHandler(a.err, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.err, opts)), nil
	default:
		return nil, usagef("--log-format %q is not text or json", f)
	}
}

func coordinators(c *cli.Context) []string {
	var out []string
	for _, s := range c.StringSlice("coordinator") {
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// withClient calls f with a client of the group and a context that ends with --timeout.
func (a *app) withClient(c *cli.Context, f func(ctx context.Context, cl *participant.Client) error) error {
	return a.withClientAt(c, coordinators(c), f)
}

func (a *app) withClientAt(c *cli.Context, addresses []string, f func(ctx context.Context, cl *participant.Client) error) error {
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	cl, err := participant.NewClient(participant.ClientConfig{
		Coordinators: addresses, Actor: "cli", Logger: slog.New(slog.DiscardHandler), Patience: patience(ctx),
	})
	if err != nil {
		return usagef("%v", err)
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	return f(ctx, cl)
}

// patience is how long a client looks for a coordinator: a little less than the time there is, so
// that "nobody answered" is said, and not "time ran out".
func patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 10 * time.Second
	}
	return max(time.Until(deadline)*9/10, 10*time.Millisecond)
}

func (a *app) versionCommand() *cli.Command {
	return &cli.Command{Name: "version", Usage: "print the version", Action: func(c *cli.Context) error {
		if err := noArgs(c); err != nil {
			return err
		}
		return a.show(c, map[string]string{"version": version}, func() [][]string { return [][]string{{"VERSION"}, {version}} })
	}}
}

func noArgs(c *cli.Context) error {
	if c.NArg() > 0 {
		return usagef("%q is not expected here; see `unisink %s --help`", c.Args().First(), c.Command.FullName())
	}
	return nil
}

// oneArg returns the single positional argument.
func oneArg(c *cli.Context, what string) (string, error) {
	switch c.NArg() {
	case 0:
		return "", usagef("name the %s; see `unisink %s --help`", what, c.Command.FullName())
	case 1:
		return c.Args().First(), nil
	default:
		return "", usagef("one %s is expected, not also %q", what, c.Args().Get(1))
	}
}
