package processor

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/unisink/unisink/participant"
)

// RunConfig says where and how a pipeline runs.
type RunConfig struct {
	// Coordinators are the client addresses of the coordinator nodes, host:port.
	Coordinators []string
	// Pipeline is the name to run under; default the pipeline's own.
	Pipeline string
	Shard    uint32
	// Instance names this process; default a random UUID.
	Instance string
	// NoWait: return participant.ErrMemberAlive instead of waiting for a living process of the same name.
	NoWait bool
	// FromScratch: start with empty state although the pipeline has history.
	FromScratch bool
	// AllowChangedSpecification: a changed fingerprint is accepted. State of another window or
	// aggregate is refused all the same.
	AllowChangedSpecification bool
	// AllowChangedResources: a source or sink may be another than the pipeline has used under that
	// name (another directory or cluster), once everything in the old one is proven.
	AllowChangedResources bool
	// TLS of connections to coordinators; nil means plain text.
	TLS *tls.Config
	// TLSFrom, when not nil, is asked for each new connection in the place of TLS; see participant.TLSFiles.
	TLSFrom func() *tls.Config
	// Logger; default discards.
	Logger *slog.Logger
	// Patience: how long to look for a first coordinator; see participant.MemberConfig.
	Patience time.Duration
	// Dial replaces the network, for tests.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// NewMember makes the member that the pipeline is, for those who want its Status while it runs.
// Sources and sinks stay the caller's; they are used from Run on and never closed.
func (p *Pipeline) NewMember(ctx context.Context, c RunConfig) (*participant.Member, error) {
	input, err := p.source.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("source %q of pipeline %q: %w", p.sourceName, p.name, err)
	}
	resources := make(map[string]participant.Resource, len(p.sinks))
	for _, s := range p.sinks {
		resources[s.name] = s.sink
	}
	name := c.Pipeline
	if name == "" {
		name = p.name
	}
	t := newTask(p, name, c.Shard, c.Logger)
	m, err := participant.NewMember(participant.MemberConfig{
		Coordinators: c.Coordinators, Pipeline: name, Shard: c.Shard, Member: p.settings.member, Instance: c.Instance,
		Resources: resources, Inputs: map[string]participant.Description{p.sourceName: input}, Fingerprint: p.fingerprint,
		NoWait: c.NoWait, FromScratch: c.FromScratch, AllowChangedSpecification: c.AllowChangedSpecification,
		AllowChangedResources: c.AllowChangedResources,
		TLS:                   c.TLS, TLSFrom: c.TLSFrom, Logger: c.Logger, Patience: c.Patience, Dial: c.Dial,
	}, t)
	if err != nil {
		return nil, fmt.Errorf("pipeline %q: %w", name, err)
	}
	return m, nil
}

// Run takes part in the scope until ctx ends, the pipeline is stopped (nil), or it cannot go on. The
// pipeline must have been declared to the coordinator; see [Pipeline.Spec].
func (p *Pipeline) Run(ctx context.Context, c RunConfig) error {
	m, err := p.NewMember(ctx, c)
	if err != nil {
		return err
	}
	return m.Run(ctx)
}
