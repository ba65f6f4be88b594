package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/unisink/unisink/cmd/adapters"
	"github.com/unisink/unisink/cmd/orders"
	"github.com/unisink/unisink/examples"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// OrdersPipeline is the demo's pipeline, for `run orders`: a specification that is compiled in, with flags
// instead of the variables that it names.
func OrdersPipeline() Pipeline {
	return Pipeline{
		Name: orders.Name, Text: orders.Text,
		Flags: append(ordersFlags(),
			&cli.StringFlag{Name: "bad", Usage: "`DIR` for records that are no orders; --dir with -bad by default"},
			&cli.StringFlag{Name: "late", Usage: "`DIR` for orders that come after their window has fired; --dir with -late by default"},
			&cli.DurationFlag{Name: "epoch", Value: time.Second, Usage: "`TIME` between barriers"},
			&cli.StringFlag{Name: "state", Usage: "`DIR` for window state that does not fit into a vote, the same for every process of the pipeline; none by default"}),
		Run: func(ctx context.Context, rc RunContext) error {
			cfg := ordersConfig(rc.Flags)
			cfg.Bad, cfg.Late, cfg.State = rc.Flags.String("bad"), rc.Flags.String("late"), rc.Flags.String("state")
			if err := checkEpoch(rc.Flags.Duration("epoch")); err != nil {
				return err
			}
			if err := checkOrders(ctx, cfg); err != nil {
				return err
			}
			rc.Lookup = cfg.Lookup
			return runSpec(ctx, rc, []Adapter{adapters.Kafka(), adapters.File()}, orders.File, examples.Orders, rc.Flags.Duration("epoch"))
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
	if err := declare(ctx, rc, p, spec, epoch); err != nil {
		return fmt.Errorf("declare pipeline %s: %w", spec.Name, err)
	}
	m, err := p.NewMember(ctx, processor.RunConfig{
		Coordinators: rc.Coordinators, TLS: rc.TLS, TLSFrom: rc.TLSFrom, NoWait: rc.NoWait, FromScratch: rc.FromScratch,
		AllowChangedSpecification: rc.AllowChanged, AllowChangedResources: rc.AllowMoved, Logger: rc.Logger,
	})
	if err != nil {
		return err
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	beside, stop := context.WithCancel(running)
	var work sync.WaitGroup
	work.Go(func() {
		tellWaiting(beside, rc.Logger, remindEvery, func() string { return m.Status().WaitingFor }, func() {
			if err := halted(beside, rc, spec.Name); err != nil && rc.NoWait {
				end(err)
			}
		})
	})
	if !rc.Stay {
		work.Go(func() { drainAtEnd(beside, rc, spec.Name, p) })
	}
	defer work.Wait()
	defer stop()
	err = m.Run(running)
	if cause := context.Cause(running); cause != nil && ctx.Err() == nil {
		return cause
	}
	return err
}

// drainAtEnd drains the pipeline when its source has ended and that is decided: what has been read to its end has
// nothing left to wait for, and the process ends with everything proven. It asks until it is answered or ctx ends.
func drainAtEnd(ctx context.Context, rc RunContext, name string, p *processor.Pipeline) {
	const every = 200 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for told := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := p.Status()
		if s.EndIn == nil {
			continue
		}
		switch ordered, err := drain(ctx, rc, name, *s.EndIn); {
		case err == nil && ordered:
			n := s.Counters
			rc.Logger.InfoContext(ctx, "the source has ended; the pipeline is drained, then this process ends",
				slog.Uint64("records", n.Records), slog.Uint64("late", n.Late), slog.Uint64("filtered", n.Filtered),
				slog.Uint64("skipped", n.Skipped), slog.Uint64("dead_letters", n.DeadLettered))
			return
		case err != nil && ctx.Err() == nil && err.Error() != told:
			told = err.Error()
			rc.Logger.WarnContext(ctx, "the source has ended, and the pipeline could not be drained; trying again", slog.String("error", told))
		}
	}
}

// drain orders it once the epoch is decided that holds the source's end, and reports whether there is nothing left to
// order: the pipeline may be on its way to a stop already, and of one with several shards one source does not speak for
// the others. Ordered any sooner, a generation that begins anew, since that epoch was not decided, would be drained
// before it has read anything.
func drain(ctx context.Context, rc RunContext, name string, end processor.EndIn) (ordered bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(rc.Timeout, searchTime))
	defer cancel()
	cl, err := runClient(rc)
	if err != nil {
		return false, err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	known, err := cl.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: name})
	if err != nil {
		return false, err
	}
	if known.GetPipeline().GetShards() > 1 || known.GetPipeline().GetDesired() != unisinkv1.DesiredState_DESIRED_STATE_RUNNING {
		return true, nil
	}
	for _, s := range known.GetScopes() {
		if s.GetGeneration() != end.Generation || s.GetFinal() < end.N {
			return false, nil
		}
	}
	_, err = cl.Pipelines().SetDesired(ctx, &unisinkv1.SetDesiredRequest{Meta: cl.NewMeta(), Name: name, Desired: unisinkv1.DesiredState_DESIRED_STATE_DRAINING})
	return err == nil, err
}

// runClient is the client that a running pipeline asks with; the caller closes it.
func runClient(rc RunContext) (*participant.Client, error) {
	cl, err := participant.NewClient(participant.ClientConfig{
		Coordinators: rc.Coordinators, TLS: rc.TLS, TLSFrom: rc.TLSFrom, Actor: "run", Logger: slog.New(slog.DiscardHandler), Patience: rc.Timeout * 9 / 10,
	})
	if err != nil {
		return nil, usagef("%v", err)
	}
	return cl, nil
}

// declare makes the pipeline known. One that is known already is left as it is, unless a change is
// allowed: its settings are the operator's, and another specification under its name may be a mistake.
func declare(ctx context.Context, rc RunContext, p *processor.Pipeline, spec processor.Spec, epoch time.Duration) (err error) {
	if rc.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rc.Timeout)
		defer cancel()
	}
	cl, err := runClient(rc)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	r, err := cl.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: spec.Name})
	known := r.GetPipeline()
	if err == nil && rc.NoWait && known.GetDesired() == unisinkv1.DesiredState_DESIRED_STATE_STOPPED {
		return failf(CodeRefused, "it is stopped; `unisink pipeline start %s` lets it run", spec.Name)
	}
	put := &unisinkv1.Pipeline{
		Name: spec.Name, Fingerprint: spec.Fingerprint, Shards: 1, KeyGroups: spec.KeyGroups, Members: memberSpecs(spec),
		Desired:  unisinkv1.DesiredState_DESIRED_STATE_RUNNING,
		Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: epoch.Milliseconds()},
	}
	switch {
	case err == nil:
		if err := goesOn(ctx, rc, cl.Pipelines(), p, r); err != nil {
			return err
		}
		change, needed, err := accept(ctx, rc, known, put, func() error { return fits(ctx, rc, cl.Pipelines(), p, r) })
		if err != nil || !needed {
			return err
		}
		put = change
	case status.Code(err) != codes.NotFound:
		return err
	}
	_, err = cl.Pipelines().PutPipeline(ctx, &unisinkv1.PutPipelineRequest{Meta: cl.NewMeta(), Pipeline: put})
	if reason, _ := grpcerr.Reason(err); reason == grpcerr.Stale {
		return nil // another process declared it in this moment
	} else if reason == grpcerr.Busy {
		return fmt.Errorf("%w; `unisink pipeline stop %s` first", err, spec.Name)
	}
	return err
}

func memberSpecs(spec processor.Spec) (out []*unisinkv1.MemberSpec) {
	for _, m := range spec.Members {
		w := &unisinkv1.MemberSpec{Name: m.Name, Source: m.Source}
		for _, r := range m.Resources {
			w.Resources = append(w.Resources, &unisinkv1.ResourceSpec{Name: r.Name, Kind: r.Kind})
		}
		out = append(out, w)
	}
	return out
}

// accept compares what runs with what is known. Where they differ and that is allowed, it returns the
// pipeline as it is to be declared; else an error that says what differs. Fits says whether the state is one
// that ours can go on with.
func accept(ctx context.Context, rc RunContext, known, ours *unisinkv1.Pipeline, fits func() error) (change *unisinkv1.Pipeline, needed bool, err error) {
	if known.GetKeyGroups() != ours.GetKeyGroups() {
		return nil, false, failf(CodeRefused, "it has %d key groups, as it was created, and this specification says %d; their number never changes", known.GetKeyGroups(), ours.GetKeyGroups())
	}
	sinks := changedSinks(known, ours)
	what := slices.Clone(sinks)
	if len(sinks) == 0 && known.GetFingerprint() != "" && known.GetFingerprint() != ours.GetFingerprint() {
		what = append(what, "its steps, its window or its aggregates are others")
	}
	if len(what) > 0 && !rc.AllowChanged {
		return nil, false, failf(CodeRefused, "it was declared with another specification (%s); run that one, or accept the change with --allow-changed", strings.Join(what, ", "))
	}
	old, now := known.GetSettings().GetEpochIntervalMs(), ours.GetSettings().GetEpochIntervalMs()
	epoch := fmt.Sprintf("the epoch is %s, it was %s", time.Duration(now)*time.Millisecond, time.Duration(old)*time.Millisecond)
	if old != now && !rc.AllowChanged {
		rc.Logger.WarnContext(ctx, "the pipeline keeps the epoch that it was declared with; --allow-changed accepts another", slog.String("difference", epoch))
		return nil, false, nil
	}
	if old != now {
		what = append(what, epoch)
	}
	if len(what) == 0 {
		return nil, false, nil
	}
	if err := fits(); err != nil {
		return nil, false, err
	}
	rc.Logger.InfoContext(ctx, "a changed specification is accepted; state goes on where operators keep their ids",
		slog.String("pipeline", known.GetName()), slog.String("changes", strings.Join(what, ", ")))
	if len(sinks) == 0 && old == now {
		return nil, false, nil // the coordinator takes the fingerprint over when the member attaches
	}
	change = proto.CloneOf(known)
	change.Members, change.Fingerprint, change.Settings.EpochIntervalMs = ours.GetMembers(), ours.GetFingerprint(), now
	return change, true, nil
}

// goesOn asks the restore point whether the source is one that can go on from its positions, before anything is
// declared. The fingerprint does not tell: what a source reads is no part of it.
func goesOn(ctx context.Context, rc RunContext, pl unisinkv1.PipelinesClient, p *processor.Pipeline, known *unisinkv1.GetPipelineResponse) error {
	if rc.FromScratch {
		return nil
	}
	for _, s := range known.GetScopes() {
		at := s.GetRestorePoint()
		if at.GetGeneration() == 0 {
			continue
		}
		e, err := pl.GetEpoch(ctx, &unisinkv1.GetEpochRequest{Scope: s.GetScope(), Epoch: at})
		if status.Code(err) == codes.NotFound {
			continue // another process has gone on meanwhile, and the restore judges
		} else if err != nil {
			return fmt.Errorf("ask for its positions: %w", err)
		}
		var positions []participant.Position
		for _, x := range e.GetEpoch().GetPositions() {
			positions = append(positions, participant.Position{Resource: x.GetResource(), Split: x.GetSplit()})
		}
		if err := p.GoesOn(at.GetGeneration(), at.GetN(), positions); err != nil {
			return failf(CodeRefused, "the change is not possible: %w", err)
		}
	}
	return nil
}

// fits asks the restore point whether a changed pipeline can go on with it, before the change is declared:
// found at the restore, it halts the scope.
func fits(ctx context.Context, rc RunContext, pl unisinkv1.PipelinesClient, p *processor.Pipeline, known *unisinkv1.GetPipelineResponse) error {
	if rc.FromScratch || known.GetPipeline().GetFingerprint() == p.Fingerprint() {
		return nil
	}
	for _, s := range known.GetScopes() {
		at := s.GetRestorePoint()
		if at.GetGeneration() == 0 {
			continue
		}
		e, err := pl.GetEpoch(ctx, &unisinkv1.GetEpochRequest{Scope: s.GetScope(), Epoch: at})
		if err != nil {
			return fmt.Errorf("ask for its state: %w", err)
		}
		var parts []participant.StatePart
		for _, x := range e.GetEpoch().GetParts() {
			parts = append(parts, participant.StatePart{ID: x.GetId(), Operator: x.GetOperator(), Store: x.GetStore(), Body: x.GetBody()})
		}
		if err := p.Fits(ctx, at.GetGeneration(), at.GetN(), parts); err != nil {
			return failf(CodeRefused, "the change is not possible: %w", err)
		}
	}
	return nil
}

// changedSinks says which sinks were added, removed, or are of another kind.
func changedSinks(known, ours *unisinkv1.Pipeline) []string {
	kinds := func(p *unisinkv1.Pipeline) map[string]string {
		out := map[string]string{}
		for _, m := range p.GetMembers() {
			for _, r := range m.GetResources() {
				name := r.GetName()
				if len(p.GetMembers()) > 1 {
					name = m.GetName() + "/" + name
				}
				out[name] = r.GetKind()
			}
		}
		return out
	}
	was, is := kinds(known), kinds(ours)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(is)) {
		switch old, there := was[name]; {
		case !there:
			out = append(out, "sink "+name+" is new")
		case old != is[name]:
			out = append(out, fmt.Sprintf("sink %s is of kind %s, it was %s", name, is[name], old))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, there := is[name]; !there {
			out = append(out, "sink "+name+" is gone")
		}
	}
	return out
}
