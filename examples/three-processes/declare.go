package main

import (
	"context"
	"fmt"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// The names that declaration and processes share.
const (
	memberSource = "source"
	memberWindow = "window"
	memberSink   = "sink"

	inputName = "numbers" // what the source reads
	totals    = "totals"  // what the sink writes to
	operator  = "sums"    // whose state the window keeps
	keyGroups = 128       // of which the one window process keeps all

	// fingerprint changes with whatever makes old state useless: window size, aggregate, keys. A
	// process with another one is refused instead of reading state that it misunderstands.
	fingerprint = "sums-of-100ms-v1"
)

// declare makes the pipeline known: three members, of which only the source is asked for barriers
// and only the sink has something to commit. One that is known already is left as it is.
func declare(ctx context.Context, c config) (err error) {
	client, err := participant.NewClient(participant.ClientConfig{Coordinators: c.coordinators, Actor: "declare", Logger: c.log})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is under way on it
	known, err := client.Pipelines().ListPipelines(ctx, &unisinkv1.ListPipelinesRequest{})
	if err != nil {
		return fmt.Errorf("ask which pipelines there are: %w", err)
	}
	for _, p := range known.GetPipelines() {
		if p.GetPipeline().GetName() == c.pipeline {
			return nil
		}
	}
	_, err = client.Pipelines().PutPipeline(ctx, &unisinkv1.PutPipelineRequest{Meta: client.NewMeta(), Pipeline: &unisinkv1.Pipeline{
		Name: c.pipeline, Shards: 1, KeyGroups: keyGroups, Fingerprint: fingerprint,
		Desired:  unisinkv1.DesiredState_DESIRED_STATE_RUNNING,
		Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: c.epoch.Milliseconds(), LeaseMs: c.lease.Milliseconds()},
		Members: []*unisinkv1.MemberSpec{
			{Name: memberSource, Source: true},
			{Name: memberWindow},
			{Name: memberSink, Resources: []*unisinkv1.ResourceSpec{{Name: totals, Kind: file.Kind}}},
		},
	}})
	if err != nil {
		return fmt.Errorf("declare pipeline %s: %w", c.pipeline, err)
	}
	return nil
}
