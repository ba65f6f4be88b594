package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/cmd/orders"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// OrdersPipeline is the demo's pipeline, for `run orders`.
func OrdersPipeline() Pipeline {
	return Pipeline{
		Name: orders.Name, Text: orders.Text,
		Flags: append(ordersFlags(),
			&cli.DurationFlag{Name: "epoch", Value: time.Second, Usage: "`TIME` between barriers"},
			&cli.StringFlag{Name: "state", Usage: "`DIR` for window state that does not fit into a vote, the same for every process of the pipeline; none by default"}),
		Run: func(ctx context.Context, rc RunContext) error {
			cfg := ordersConfig(rc.Flags)
			cfg.Logger, cfg.State = rc.Logger, rc.Flags.String("state")
			if err := checkEpoch(rc.Flags.Duration("epoch")); err != nil {
				return err
			}
			if err := checkOrders(ctx, cfg); err != nil {
				return err
			}
			if err := examine(ctx, rc.Logger, orders.Doctor(cfg)); err != nil {
				return err
			}
			p, err := orders.New(cfg)
			if err != nil {
				return err
			}
			return RunPipeline(ctx, rc, p, rc.Flags.Duration("epoch"))
		},
	}
}

// checkOrders tells a mistake before the coordinator hears of the pipeline: found later, it would
// halt the scope until an operator has looked.
func checkOrders(ctx context.Context, cfg orders.Config) error {
	err := orders.Check(ctx, cfg)
	switch {
	case errors.Is(err, orders.ErrUnreachable):
		return withCode(CodeNoLeader, err)
	case errors.Is(err, orders.ErrNoTopic):
		return withCode(CodeNotFound, err)
	}
	return err
}

func checkEpoch(d time.Duration) error {
	if d < 20*time.Millisecond {
		return usagef("an epoch of %s is too short; at least 20ms", d)
	}
	return nil
}

// RunPipeline declares a pipeline to the coordinator, or finds it declared, and runs it.
func RunPipeline(ctx context.Context, rc RunContext, p *processor.Pipeline, epoch time.Duration) error {
	if err := checkEpoch(epoch); err != nil {
		return err
	}
	spec, err := p.Spec(ctx)
	if err != nil {
		return err
	}
	if err := declare(ctx, rc, spec, epoch); err != nil {
		return fmt.Errorf("declare pipeline %s: %w", spec.Name, err)
	}
	m, err := p.NewMember(ctx, processor.RunConfig{
		Coordinators: rc.Coordinators, TLS: rc.TLS, NoWait: rc.NoWait, FromScratch: rc.FromScratch,
		AllowChangedSpecification: rc.AllowChanged, AllowChangedResources: rc.AllowMoved, Logger: rc.Logger,
	})
	if err != nil {
		return err
	}
	told, stop := context.WithCancel(ctx)
	var waits sync.WaitGroup
	waits.Go(func() { tellWaiting(told, rc.Logger, func() string { return m.Status().WaitingFor }) })
	defer waits.Wait()
	defer stop()
	return m.Run(ctx)
}

// tellWaiting logs what the process waits for, when that has lasted for a while and when it
// changes: a second process under a living member's name looks as if it hung.
func tellWaiting(ctx context.Context, log *slog.Logger, waiting func() string) {
	const every = 500 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, told := "", ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := waiting()
		if now != "" && now == last && now != told {
			log.InfoContext(ctx, "waiting", slog.String("for", now))
		}
		if now == last {
			told = now
		}
		last = now
	}
}

// declare makes the pipeline known. One that is known already is left as it is: its settings are
// the operator's, and whether this specification fits is judged when the member attaches.
func declare(ctx context.Context, rc RunContext, spec processor.Spec, epoch time.Duration) (err error) {
	if rc.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rc.Timeout)
		defer cancel()
	}
	cl, err := participant.NewClient(participant.ClientConfig{
		Coordinators: rc.Coordinators, TLS: rc.TLS, Actor: "run", Logger: slog.New(slog.DiscardHandler), Patience: rc.Timeout * 9 / 10,
	})
	if err != nil {
		return usagef("%v", err)
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	known, err := cl.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: spec.Name})
	if err == nil && rc.NoWait && known.GetPipeline().GetDesired() == unisinkv1.DesiredState_DESIRED_STATE_STOPPED {
		return failf(CodeRefused, "it is stopped; `unisink pipeline start %s` lets it run", spec.Name)
	}
	if err == nil || status.Code(err) != codes.NotFound {
		return err
	}
	req := &unisinkv1.PutPipelineRequest{Meta: cl.NewMeta(), Pipeline: &unisinkv1.Pipeline{
		Name: spec.Name, Fingerprint: spec.Fingerprint, Shards: 1, KeyGroups: spec.KeyGroups,
		Desired:  unisinkv1.DesiredState_DESIRED_STATE_RUNNING,
		Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: epoch.Milliseconds()},
	}}
	for _, m := range spec.Members {
		w := &unisinkv1.MemberSpec{Name: m.Name, Source: m.Source}
		for _, r := range m.Resources {
			w.Resources = append(w.Resources, &unisinkv1.ResourceSpec{Name: r.Name, Kind: r.Kind})
		}
		req.Pipeline.Members = append(req.Pipeline.Members, w)
	}
	_, err = cl.Pipelines().PutPipeline(ctx, req)
	if reason, _ := grpcerr.Reason(err); reason == grpcerr.Stale {
		return nil // another process declared it in this moment
	}
	return err
}
