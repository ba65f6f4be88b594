package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

// sink writes what comes to the branch of the epoch. It keeps nothing: what it wrote is prepared by
// its vote and published by the decision, and both are the SDK's work.
type sink struct {
	follower
}

func runSink(ctx context.Context, c config) error {
	if err := need(map[string]string{"listen": c.listen, "dir": c.dir}); err != nil {
		return err
	}
	files, err := file.NewSink(file.SinkConfig{Dir: c.dir, Logger: c.log})
	if err != nil {
		return err
	}
	// Publishes nothing; what stays is found by the next restore.
	defer func() { _ = files.Close() }() //nolint:contextcheck // it is quick, and ctx may have ended
	in, err := listen(c.listen, c.log)
	if err != nil {
		return err
	}
	defer in.close()
	cfg := c.member(memberSink)
	cfg.Resources = map[string]participant.Resource{totals: files}
	m, err := participant.NewMember(cfg, &sink{follower{inlet: in}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// Restore takes no link of an older generation from here on. The directory is ready: the SDK has
// fenced older generations in it, published what was decided and dropped the rest.
func (s *sink) Restore(_ context.Context, r participant.Restore) error {
	s.inlet.open(r.Generation)
	return nil
}

// Start lets the sink write.
func (s *sink) Start(ctx context.Context, st participant.Start) error {
	s.begin(ctx, st.Run, func(ctx context.Context) error {
		return s.consume(ctx, st.Generation, func(text []byte) error {
			// Branch waits while too many epochs are not finished, and then the link fills up.
			b, err := st.Run.Branch(ctx, totals)
			if err != nil {
				return err
			}
			w, ok := b.(processor.Writer)
			if !ok {
				return fmt.Errorf("%w: a branch of %s cannot be written to", participant.ErrBug, totals)
			}
			return w.Write(ctx, []stream.Record{{Value: slices.Clone(text)}})
		}, func(b participant.Barrier) error {
			return st.Run.Vote(ctx, b, participant.Contribution{})
		})
	})
	return nil
}
