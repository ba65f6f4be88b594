package app

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"
)

func (a *app) run() *cli.Command {
	subs := make([]*cli.Command, len(a.pipelines))
	names := make([]string, len(a.pipelines))
	for i, p := range a.pipelines {
		names[i] = p.Name
		subs[i] = &cli.Command{
			Name: p.Name, Usage: p.Text,
			Flags: append([]cli.Flag{
				&cli.BoolFlag{Name: "no-wait", Usage: "give up at once when a living process has the member's name"},
				&cli.BoolFlag{Name: "from-scratch", Usage: "start from nothing although the pipeline has history"},
				&cli.BoolFlag{Name: "allow-changed", Usage: "accept that the pipeline was changed since it last ran; state that does not fit is refused all the same"},
				&cli.BoolFlag{Name: "allow-moved", Usage: "accept that a source or sink is another than the pipeline has used, once all is proven in the old one"},
			}, p.Flags...),
			Action: func(c *cli.Context) error { return a.runPipeline(c, p) },
		}
	}
	return &cli.Command{
		Name: "run", Usage: "run a pipeline until it is stopped", ArgsUsage: "PIPELINE", Subcommands: subs, HideHelpCommand: true,
		Description: "Pipelines that are compiled in: " + strings.Join(names, ", ") + ".",
		Action: func(c *cli.Context) error {
			if got := c.Args().First(); got != "" {
				return usagef("no pipeline %q is compiled in; there is %s", got, strings.Join(names, ", "))
			}
			return usagef("say which pipeline: %s", strings.Join(names, ", "))
		},
	}
}

func (a *app) runPipeline(c *cli.Context, p Pipeline) error {
	if err := noArgs(c); err != nil {
		return err
	}
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	secure, err := clientTLS(c)
	if err != nil {
		return err
	}
	err = p.Run(c.Context, RunContext{
		Flags: c, Coordinators: coordinators(c), TLS: secure, NoWait: c.Bool("no-wait"), FromScratch: c.Bool("from-scratch"), AllowChanged: c.Bool("allow-changed"), AllowMoved: c.Bool("allow-moved"),
		Timeout: c.Duration("timeout"), Logger: log, Out: a.out,
	})
	if c.Context.Err() != nil && (errors.Is(err, context.Cause(c.Context)) || errors.Is(err, context.Canceled)) {
		return nil // ended as it was told to
	}
	return err
}
