package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/internal/grpcerr"
)

// runFlags are those of every pipeline.
func runFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "no-wait", Usage: "give up at once when a living process has the member's name, or the pipeline is stopped or halted"},
		&cli.BoolFlag{Name: "from-scratch", Usage: "start from nothing although the pipeline has history"},
		&cli.BoolFlag{Name: "allow-changed", Usage: "accept that the pipeline was changed since it last ran; state that does not fit is refused all the same"},
		&cli.BoolFlag{Name: "allow-moved", Usage: "accept that a source or sink is another than the pipeline has used, once all is proven in the old one"},
		&cli.BoolFlag{Name: "stay", Usage: "go on although the source has ended; by default the pipeline is then drained, and the process ends"},
	}
}

func (a *app) run() *cli.Command {
	subs := make([]*cli.Command, len(a.pipelines))
	names := make([]string, len(a.pipelines))
	for i, p := range a.pipelines {
		names[i] = p.Name
		subs[i] = &cli.Command{
			Name: p.Name, Usage: p.Text, Flags: append(runFlags(), p.Flags...),
			Action: func(c *cli.Context) error { return a.runPipeline(c, p) },
		}
	}
	compiled, orOne := "None is compiled in.", ""
	if len(names) > 0 {
		compiled = "PIPELINE is compiled in: " + strings.Join(names, ", ") + "."
		orOne = ", or " + strings.Join(names, ", ")
	}
	return &cli.Command{
		Name: "run", Usage: "run a pipeline until it is stopped", ArgsUsage: "FILE | PIPELINE", Subcommands: subs, HideHelpCommand: true,
		Description: "FILE is a specification in YAML; what contains a dot or a slash is one. `unisink pipeline lint FILE`\n" +
			"looks at it first. " + compiled + forExample("unisink run pipeline.yaml", "unisink run --no-wait pipeline.yaml   # for supervisors: ends with 11 when a person must act"),
		Flags: runFlags(),
		Action: func(c *cli.Context) error {
			switch arg, err := oneArg(c, "pipeline's file"); {
			case c.NArg() == 0:
				return usagef("say which pipeline: a file with its specification%s", orOne)
			case err != nil:
				return err
			case isFile(arg):
				return a.runFile(c, arg)
			default:
				return usagef("no pipeline %q is compiled in%s (the name of a file has a dot or a slash: ./%s)", arg, strings.Replace(orOne, ", or", "; there is", 1), arg)
			}
		},
	}
}

// runContext reads the flags that every pipeline has, which may stand before its name or behind it.
func (a *app) runContext(c *cli.Context) (RunContext, error) {
	log, err := a.logger(c)
	if err != nil {
		return RunContext{}, err
	}
	secure, err := clientTLS(c)
	if err != nil {
		return RunContext{}, err
	}
	set := func(name string) bool {
		for _, x := range c.Lineage() {
			if x.Command != nil && x.Bool(name) {
				return true
			}
		}
		return false
	}
	return RunContext{
		Flags: c, Coordinators: coordinators(c), TLS: present(secure), TLSFrom: secure, NoWait: set("no-wait"), FromScratch: set("from-scratch"),
		AllowChanged: set("allow-changed"), AllowMoved: set("allow-moved"), Stay: set("stay"),
		Timeout: c.Duration("timeout"), Logger: log, Out: a.out,
	}, nil
}

func (a *app) runPipeline(c *cli.Context, p Pipeline) error {
	if err := noArgs(c); err != nil {
		return err
	}
	rc, err := a.runContext(c)
	if err != nil {
		return err
	}
	return ended(c, p.Run(c.Context, rc))
}

// ended is no error when the process was told to end. What a flag would allow is said with the flag.
func ended(c *cli.Context, err error) error {
	if c.Context.Err() != nil && (errors.Is(err, context.Cause(c.Context)) || errors.Is(err, context.Canceled)) {
		return nil
	}
	switch reason, _ := grpcerr.Reason(err); reason {
	case grpcerr.ChangedResource:
		return fmt.Errorf("%w: --allow-moved", err)
	case grpcerr.ChangedSpecification:
		return fmt.Errorf("%w: --allow-changed", err)
	}
	return err
}
