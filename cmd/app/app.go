package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/adapters"
)

// version of the binary; release builds set it with -ldflags.
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
	// TLS of connections to coordinators; nil: plain text.
	TLS *tls.Config
	// TLSFrom is asked for each connection in the place of TLS, and has certificates that were renewed;
	// nil: plain text.
	TLSFrom     func() *tls.Config
	NoWait      bool
	FromScratch bool
	// Stay: a pipeline whose source has ended is not drained, and runs until it is stopped.
	Stay bool
	// AllowChanged: a changed specification is accepted.
	AllowChanged bool
	// AllowMoved: a source or sink may be another than the pipeline has used.
	AllowMoved bool
	// Timeout bounds a question to the coordinator, as --timeout says.
	Timeout time.Duration
	Logger  *slog.Logger
	Out     io.Writer
	// Lookup finds environment variables; default os.LookupEnv.
	Lookup func(name string) (string, bool)
}

func (rc RunContext) lookup() func(string) (string, bool) {
	if rc.Lookup != nil {
		return rc.Lookup
	}
	return os.LookupEnv
}

// Option of Main.
type Option func(*app)

// WithPipeline compiles a pipeline in.
func WithPipeline(p Pipeline) Option { return func(a *app) { a.pipelines = append(a.pipelines, p) } }

// WithOutput replaces standard output and standard error, for tests.
func WithOutput(out, err io.Writer) Option { return func(a *app) { a.out, a.err = out, err } }

type app struct {
	pipelines []Pipeline
	adapters  []Adapter
	out, err  io.Writer
	name      string // of the binary, for people
	caFile    string // of --ca
	certFile  string // of --cert
}

// Main runs the command line and returns the exit code. It prints one sentence for an error, or one for
// each mistake of a specification.
func Main(ctx context.Context, args []string, opts ...Option) int {
	a := &app{out: os.Stdout, err: os.Stderr, adapters: []Adapter{adapters.Kafka(), adapters.Postgres(), adapters.File()}}
	for _, o := range opts {
		o(a)
	}
	plainHelp()
	a.name = nameOf(args)
	root := a.root()
	err := checkText(args)
	if err == nil {
		args, err = normalise(root, args)
	}
	if err == nil {
		err = root.RunContext(ctx, args)
	}
	if err == nil {
		return int(CodeOK)
	}
	code := codeOf(err)
	for _, text := range sentences(err) {
		fmt.Fprintln(a.err, a.name+": "+a.distrusted(err, a.named(text)))
	}
	return int(code)
}

// firstSteps stand in the help above the commands.
const firstSteps = "`unisink demo` shows what it does, and needs nothing. On one machine, for trying:\n" +
	"  unisink serve --node n1 --data n1                                        # a coordinator node\n" +
	"  unisink cluster bootstrap try --node n1=127.0.0.1:7401,127.0.0.1:7400    # once, in another terminal\n" +
	"  unisink pipeline lint pipeline.yaml                                      # mistakes, before anything runs\n" +
	"  unisink run pipeline.yaml\n" +
	"  unisink pipeline list\n\n" +
	"Exit codes: 0 done; 1 failed; 2 wrong usage; 3 nobody answers or leads; 4 time ran out, the outcome is unknown; 5 not found;\n" +
	"6 refused by the state of things; 7 not allowed; 10 looked, and found it not well; 11 a person must decide."

func (a *app) root() *cli.App {
	a.name = cmp.Or(a.name, own)
	root := &cli.App{
		Name:            a.name,
		Usage:           "your sinks commit in unison, or not at all",
		Description:     a.named(firstSteps),
		Version:         version,
		HideVersion:     true,
		HideHelpCommand: true,
		Writer:          a.out,
		ErrWriter:       a.err,
		Flags:           globalFlags(),
		Commands: []*cli.Command{
			a.serve(), a.resolver(), a.dev(), a.demo(), a.run(), a.pipeline(), a.epoch(), a.txn(), a.cluster(), a.backup(),
			a.participant(), a.resource(), a.cert(), a.audit(), a.verify(), a.doctor(), a.adapter(), a.postgres(), a.bench(), a.versionCommand(),
		},
		// Errors are printed by Main alone, usage errors with where to look.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usageError,
		Before:         a.checkGlobals,
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return usagef("there is no command %q%s; see `unisink --help`", name, elsewhere(c.App.Commands, name))
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, cmd := range root.Commands {
		a.nameIn(cmd)
		settle(cmd, root.Name)
	}
	return root
}

// checkGlobals refuses what is wrong in the options that all commands share, before one of them does anything.
func (a *app) checkGlobals(c *cli.Context) error {
	if f := c.String("output"); !slices.Contains(outputs, f) {
		return noFormat(f)
	}
	if d := c.Duration("timeout"); d <= 0 {
		return usagef("--timeout %s leaves no time for an answer; say how long to wait, such as 10s", d)
	}
	a.caFile, a.certFile = c.String("ca"), c.String("cert")
	_, err := a.logger(c)
	return err
}

// elsewhere says which groups have a verb of that name; "" if none has.
func elsewhere(groups []*cli.Command, name string) string {
	var there []string
	for _, g := range groups {
		for _, verb := range g.Subcommands {
			if verb.HasName(name) {
				there = append(there, fmt.Sprintf("`unisink %s %s`", g.Name, name))
			}
		}
	}
	if len(there) == 0 {
		return ""
	}
	return "; there is " + strings.Join(there, ", ")
}

// settle gives a command and those below it what all have in common. An argument is never taken
// for the library's own help command, and a wrong flag is one sentence, not a page.
func settle(cmd *cli.Command, path string) {
	path += " " + cmd.Name
	cmd.HideHelpCommand = true
	cmd.OnUsageError = func(_ *cli.Context, err error, _ bool) error {
		return usagef("%s; see `%s --help`", lower(err.Error()), path)
	}
	for _, sub := range cmd.Subcommands {
		settle(sub, path)
	}
}

func usageError(c *cli.Context, err error, _ bool) error {
	return usagef("%s; see `%s --help`", lower(err.Error()), c.App.Name)
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
		&cli.StringFlag{Name: "ca", EnvVars: []string{"UNISINK_CA"}, Usage: "`FILE` with the authority of the coordinators' certificates (PEM); plain text without"},
		&cli.StringFlag{Name: "cert", EnvVars: []string{"UNISINK_CERT"}, Usage: "`FILE` with a certificate (PEM), which says what you may do; with --ca"},
		&cli.StringFlag{Name: "key", EnvVars: []string{"UNISINK_KEY"}, Usage: "`FILE` with its key"},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, EnvVars: []string{"UNISINK_OUTPUT"}, Value: outputTable, Usage: "`FORMAT` of results: table, wide (a table with all that there is), json or jsonl"},
		&cli.DurationFlag{Name: "timeout", EnvVars: []string{"UNISINK_TIMEOUT"}, Value: 10 * time.Second, Usage: "longest `WAIT` for an answer; its end means unknown, not failed"},
		&cli.StringFlag{Name: "log-level", EnvVars: []string{"UNISINK_LOG_LEVEL"}, Value: "info", Usage: "`LEVEL` debug, info, warn or error"},
		&cli.StringFlag{Name: "log-format", EnvVars: []string{"UNISINK_LOG_FORMAT"}, Value: "text", Usage: "`FORMAT` of the log on standard error: text or json"},
	}
}

// group is a noun with its verbs.
func group(name, usage string, subs ...*cli.Command) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, Subcommands: subs, HideHelpCommand: true,
		UsageText:   fmt.Sprintf("unisink %s COMMAND [options]", name),
		Description: fmt.Sprintf("`unisink %s COMMAND --help` says more about a command; `unisink --help` has the options that all share.", name),
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
		return usagef("%q is not expected here; see `%s --help`", c.Args().First(), c.Command.HelpName)
	}
	return nil
}

// oneArg returns the single positional argument.
func oneArg(c *cli.Context, what string) (string, error) {
	switch c.NArg() {
	case 0:
		return "", usagef("name the %s; see `%s --help`", what, c.Command.HelpName)
	case 1:
		return c.Args().First(), nil
	default:
		return "", usagef("one %s is expected, not also %q", what, c.Args().Get(1))
	}
}

// need reports every flag of those named that is not set. The library's own required flags would
// print a page of help.
func need(c *cli.Context, names ...string) error {
	var missing []string
	for _, n := range names {
		if !c.IsSet(n) {
			missing = append(missing, "--"+n)
		}
	}
	if len(missing) > 0 {
		return usagef("%s must be given; see `%s --help`", strings.Join(missing, " and "), c.Command.HelpName)
	}
	return nil
}
