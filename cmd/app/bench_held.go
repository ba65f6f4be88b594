package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// benchHeld is the process whose state `bench state` measures.
func (a *app) benchHeld() *cli.Command {
	return &cli.Command{
		Name: "held", Hidden: true, Usage: "the pipeline whose state bench measures",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "brokers"}, &cli.StringFlag{Name: "name"}, &cli.StringFlag{Name: "from"}, &cli.StringFlag{Name: "to"},
			&cli.DurationFlag{Name: "epoch"}, &cli.DurationFlag{Name: "window"}, &cli.DurationFlag{Name: "disorder"}, &cli.BoolFlag{Name: "bounded"},
			&cli.IntFlag{Name: "rate"}, &cli.StringFlag{Name: "state"}, &cli.StringFlag{Name: "trace"}, &cli.StringFlag{Name: "report"},
			&cli.StringFlag{Name: "profile"},
		},
		Action: a.runBenchHeld,
	}
}

func (a *app) runBenchHeld(c *cli.Context) (err error) {
	if err := noArgs(c); err != nil {
		return err
	}
	rc, err := a.runContext(c)
	if err != nil {
		return err
	}
	stop, err := profile(c.String("profile"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	h, err := worker.NewHeld(worker.HeldConfig{
		Brokers: c.StringSlice("brokers"), From: c.String("from"), To: c.String("to"), Name: c.String("name"), Bounded: c.Bool("bounded"),
		Window: c.Duration("window"), Disorder: c.Duration("disorder"), Rate: c.Int("rate"), StateDir: c.String("state"), Trace: c.String("trace"), Logger: rc.Logger,
	})
	if err != nil {
		return withCode(CodeUsage, err)
	}
	if err := runHeld(c.Context, rc, h, c.Duration("epoch")); err != nil {
		return err
	}
	return errors.Join(h.WriteReport(c.String("report")), h.Close())
}

// runHeld runs the pipeline as `run` does, with a member that traces; it knows that the pipeline is nobody else's.
func runHeld(ctx context.Context, rc RunContext, h *worker.Held, epoch time.Duration) error {
	cl, err := runClient(rc)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	spec, err := h.Pipeline.Spec(ctx)
	if err != nil {
		return err
	}
	_, err = cl.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: spec.Name})
	if status.Code(err) == codes.NotFound {
		_, err = cl.Pipelines().PutPipeline(ctx, &unisinkv1.PutPipelineRequest{Meta: cl.NewMeta(), Pipeline: &unisinkv1.Pipeline{
			Name: spec.Name, Fingerprint: spec.Fingerprint, Shards: 1, KeyGroups: spec.KeyGroups, Members: memberSpecs(spec),
			Desired:  unisinkv1.DesiredState_DESIRED_STATE_RUNNING,
			Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: epoch.Milliseconds()},
		}})
	}
	if err != nil {
		return fmt.Errorf("declare pipeline %s: %w", spec.Name, err)
	}
	m, err := h.Member(ctx, participant.MemberConfig{Coordinators: rc.Coordinators, TLS: rc.TLS, TLSFrom: rc.TLSFrom, Logger: rc.Logger})
	if err != nil {
		return err
	}
	beside, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { drainAtEnd(beside, rc, spec.Name, h.Pipeline) })
	defer work.Wait()
	defer stop()
	return m.Run(ctx)
}
