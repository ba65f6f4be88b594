package rig

import (
	"context"
	"fmt"
	"time"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Bootstrap makes a group of nodes; cl calls one of them.
func Bootstrap(ctx context.Context, cl *participant.Client, namespace string, nodes []*unisinkv1.Node) error {
	req := &unisinkv1.BootstrapRequest{Meta: cl.NewMeta(), Namespace: namespace, Nodes: nodes}
	if _, err := cl.Cluster().Bootstrap(ctx, req); err != nil {
		return fmt.Errorf("bootstrap the group: %w", err)
	}
	return nil
}

// Patience is how long something may take, and how long one answer may.
type Patience struct{ Limit, Answer time.Duration }

// AllRead waits until as many records of a pipeline's sources as were written are in proven epochs.
func AllRead(ctx context.Context, cl *participant.Client, pipeline string, written int64, p Patience) error {
	return Await(ctx, p.Limit, "all orders to be read and proven", func() error {
		one, cancel := context.WithTimeout(ctx, p.Answer)
		defer cancel()
		cut, err := cl.Pipelines().ProvenCut(one, &unisinkv1.ProvenCutRequest{Pipeline: pipeline})
		if err != nil {
			return err
		}
		var read int64
		for _, s := range cut.GetScopes() {
			for _, p := range s.GetPositions() {
				read += p.GetOffset()
			}
		}
		if read < written {
			return fmt.Errorf("%d of %d were", read, written)
		}
		return nil
	})
}

// Drain lets a pipeline fire what is open, and end.
func Drain(ctx context.Context, cl *participant.Client, pipeline string, p Patience) error {
	_, err := cl.Pipelines().SetDesired(ctx, &unisinkv1.SetDesiredRequest{
		Meta: cl.NewMeta(), Name: pipeline, Desired: unisinkv1.DesiredState_DESIRED_STATE_DRAINING,
	})
	if err != nil {
		return fmt.Errorf("drain pipeline %s: %w", pipeline, err)
	}
	return Await(ctx, p.Limit, "pipeline "+pipeline+" to have drained", func() error {
		one, cancel := context.WithTimeout(ctx, p.Answer)
		defer cancel()
		got, err := cl.Pipelines().GetPipeline(one, &unisinkv1.GetPipelineRequest{Name: pipeline})
		if err == nil && got.GetPipeline().GetDesired() != unisinkv1.DesiredState_DESIRED_STATE_STOPPED {
			err = fmt.Errorf("it is %s", got.GetPipeline().GetDesired())
		}
		return err
	})
}
