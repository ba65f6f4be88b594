package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/finding"
	"github.com/unisink/unisink/participant"
)

// Severity of a finding.
type Severity = finding.Severity

// Finding is one setting that was looked at.
type Finding = finding.Finding

// The severities, mildest first.
const (
	Fine    = finding.Fine    // found as wanted
	Note    = finding.Note    // it works, and one should know; or it could not be looked at
	Warning = finding.Warning // it works until something fails
	Wrong   = finding.Wrong   // it cannot work
)

// DoctorConfig says what is to be looked at.
type DoctorConfig struct {
	// Sink has the settings that the pipeline's sinks will have; of topics, only those below are looked at.
	Sink SinkConfig
	// From are topics that are read, To are topics that are written.
	From, To []string
	// Namespace of the coordinator group, which the names of transactional ids and groups begin with;
	// empty: rights to those are not looked at.
	Namespace string
	// InDoubt is how long a prepared transaction may have to wait for its end, in the worst case; default 24 h.
	InDoubt time.Duration
}

// Examine looks at a cluster with the rights of its own client, and changes nothing there. It returns
// everything that it looked at, what is worst first. The error says that no broker answers, or that the
// settings are wrong.
func Examine(ctx context.Context, cfg DoctorConfig) ([]Finding, error) {
	sink, err := NewSink(cfg.Sink)
	if err != nil {
		return nil, err
	}
	cl, err := sink.at.client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := sink.at.reach(ctx, cl); err != nil {
		return nil, err
	}
	if cfg.InDoubt <= 0 {
		cfg.InDoubt = 24 * time.Hour
	}
	d := &doctor{cfg: cfg, at: sink.at, cl: cl}
	return d.examine(ctx)
}

// doctor is one examination.
type doctor struct {
	cfg DoctorConfig
	at  endpoint
	cl  *kgo.Client

	timeout   time.Duration // that our transactions will have
	unbounded bool          // the brokers will never end them
	embedded  bool          // a broker for trying things out, of which nobody expects more
}

// examine asks for the versions first, on which the rest depends, then for everything at once.
func (d *doctor) examine(ctx context.Context) ([]Finding, error) {
	ids, err := brokers(ctx, d.cl)
	if err != nil {
		return nil, classed(fmt.Errorf("ask %s for its brokers: %w", d.at, err))
	}
	found := d.versions(ctx)
	found = append(found, d.brokers(ctx, ids)...)
	parts := []func(context.Context) []Finding{d.topics, d.clusterRights, d.clock, d.identityRights}
	results := make([][]Finding, len(parts))
	g, gctx := errgroup.WithContext(ctx)
	for i, look := range parts {
		g.Go(func() error {
			results[i] = look(gctx)
			return gctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("examine %s: %w", d.at, context.Cause(ctx))
	}
	for _, r := range results {
		found = append(found, r...)
	}
	finding.Sort(found)
	return found, nil
}

// Refuse returns an error, which is one sentence, for the first finding with which nothing can work. What may
// pass by itself, as a broker that is starting does, is not refused but waited for.
func Refuse(found []Finding) error {
	if f, bad := finding.Forbids(found); bad {
		return fmt.Errorf("%w: %s", participant.ErrMisconfigured, f.Sentence())
	}
	return nil
}

// lasting says a time for people; 0 or less for ever.
func lasting(d time.Duration) string {
	if d <= 0 {
		return "for ever"
	}
	if d >= 48*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.String()
}
