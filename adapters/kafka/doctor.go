package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/participant"
)

// Severity of a finding.
type Severity string

// The severities, mildest first.
const (
	// Fine: found as wanted.
	Fine Severity = "ok"
	// Note: it works, and one should know; or it could not be looked at.
	Note Severity = "note"
	// Warning: it works until something fails.
	Warning Severity = "warning"
	// Wrong: it cannot work.
	Wrong Severity = "error"
)

// Finding is one setting that was looked at.
type Finding struct {
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // "topic totals", "broker 1", "the cluster"
	Setting  string   `json:"setting"`
	Found    string   `json:"found"`
	Wanted   string   `json:"wanted"`
	Why      string   `json:"why,omitempty"` // unless it is fine
	// passes: it is wrong now, and may be right in a moment without anybody's help.
	passes bool
}

// Sentence says the finding in one.
func (f Finding) Sentence() string {
	s := fmt.Sprintf("%s of %s is %s, and should be %s", f.Setting, f.Subject, f.Found, f.Wanted)
	if f.Why != "" {
		s += ": " + f.Why
	}
	return s
}

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
	order := []Severity{Wrong, Warning, Note, Fine}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
	return found, nil
}

// Refuse returns an error, which is one sentence, for the first finding with which nothing can work. What may
// pass by itself, as a broker that is starting does, is not refused but waited for.
func Refuse(findings []Finding) error {
	for _, f := range findings {
		if f.Severity == Wrong && !f.passes {
			return fmt.Errorf("%w: %s", participant.ErrMisconfigured, f.Sentence())
		}
	}
	return nil
}

// judged is a finding that is fine if ok, else bad and because of why.
func judged(ok bool, bad Severity, f Finding) Finding {
	if ok {
		f.Severity, f.Why = Fine, ""
	} else {
		f.Severity = bad
	}
	return f
}

// unknown is a finding about what could not be looked at.
func unknown(subject, setting, wanted string, err error) Finding {
	return Finding{Severity: Note, Subject: subject, Setting: setting, Found: "not known", Wanted: wanted, Why: "it could not be asked for: " + err.Error()}
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
