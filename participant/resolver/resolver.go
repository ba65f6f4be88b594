package resolver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Resource is one that a resolver can reach.
type Resource struct {
	// Name is what transactions run by hand call it when they announce it; empty: none is known. Only by it can an
	// announced branch be proven that was never prepared, so no two have the same.
	Name     string
	Finisher participant.Finisher
	// Text names it for people until it has described itself.
	Text string
}

// Config says what a resolver reaches and how often it looks. The caller closes client and finishers after Run.
type Config struct {
	Client    *participant.Client
	Resources []Resource
	// Name of this resolver in reports, at most 128 bytes; default host name and process id. Two have two names.
	Name string
	// Version of the program, for reports, at most 128 bytes.
	Version string
	// Poll is how often duties are asked for; default 500ms.
	Poll time.Duration
	// SweepInterval is how often whole namespaces are listed; default: what the coordinator says (1m).
	SweepInterval time.Duration
	// HeldFor is how long what a living member holds is left to it; default 30s. A member may be stuck: its
	// credentials have expired, or its disk hangs.
	HeldFor time.Duration
	// Attempt bounds one call of a resource, after which its outcome is unknown; default 30s.
	Attempt time.Duration
	// ReportEvery is how often the coordinator is told; default 5s.
	ReportEvery time.Duration
	Logger      *slog.Logger // default: discard
}

// longestName is what the coordinator takes, bytes.
const longestName = 128

// Resolver is made by New and runs once.
type Resolver struct {
	c     Config
	log   *slog.Logger
	calls unisinkv1.ResolutionClient
	lanes []*lane

	mu     sync.Mutex // guards the rest; held for memory only
	silent bool       // the last poll was not answered
	back   time.Time  // when one was answered after one that was not; zero: never yet
}

// New fills in the defaults, and reports every mistake at once.
func New(c Config) (*Resolver, error) {
	var bad []error
	if c.Client == nil {
		bad = append(bad, errors.New("no client is given"))
	}
	if len(c.Resources) == 0 {
		bad = append(bad, errors.New("no resource is given, so there is nothing that it could finish"))
	}
	for what, text := range map[string]string{"name": c.Name, "version": c.Version} {
		if n := len(text); n > longestName {
			bad = append(bad, fmt.Errorf("the %s has %d bytes, at most %d are allowed", what, n, longestName))
		}
	}
	for i, r := range c.Resources {
		if r.Finisher == nil {
			bad = append(bad, fmt.Errorf("resource %d (%q) has no finisher", i+1, r.Name))
		}
		if r.Name != "" && slices.ContainsFunc(c.Resources[:i], func(o Resource) bool { return o.Name == r.Name }) {
			bad = append(bad, fmt.Errorf("two resources have the name %q; what is announced under it would be proven by the one that does not hold it", r.Name))
		}
	}
	for _, d := range []struct {
		what  string
		at    *time.Duration
		value time.Duration
	}{
		{"poll", &c.Poll, 500 * time.Millisecond},
		{"held for", &c.HeldFor, 30 * time.Second},
		{"attempt", &c.Attempt, 30 * time.Second},
		{"report every", &c.ReportEvery, 5 * time.Second},
		{"sweep interval", &c.SweepInterval, 0},
	} {
		if *d.at < 0 {
			bad = append(bad, fmt.Errorf("%s is %s, and cannot be negative", d.what, *d.at))
		}
		*d.at = cmp.Or(*d.at, d.value)
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fmt.Errorf("resolver: %w", err)
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "resolver"
		}
		own := "-" + strconv.Itoa(os.Getpid())
		c.Name = host[:min(len(host), longestName-len(own))] + own
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Resolver{c: c, log: c.Logger, calls: unisinkv1.NewResolutionClient(c.Client.Router())}
	for _, x := range c.Resources {
		r.lanes = append(r.lanes, newLane(r, x))
	}
	return r, nil
}

// Run works until ctx ends, and returns when everything it started has ended. An act that is cut short has an unknown
// outcome, which whoever comes next finds out. The error is nil.
func (r *Resolver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range r.lanes {
		g.Go(func() error { l.run(ctx); return nil })
	}
	g.Go(func() error { r.poll(ctx); return nil })
	g.Go(func() error { r.report(ctx); return nil })
	return g.Wait()
}

// byHandAtOnce is about how many branches by hand one answer names.
const byHandAtOnce = 1000

// poll asks for duties and hands each lane its own. Where there are more by hand than one answer holds it goes on behind
// them, and begins again after the last: what cannot be finished hides nothing for ever. What an answer names by hand has
// the time between two polls; behind an answer that names nothing of this resolver's it goes on at once.
func (r *Resolver) poll(ctx context.Context) {
	for after := ""; ; {
		next, own := r.page(ctx, after)
		skip := next != after && next != "" && !own
		after = next
		if !skip && !route.Sleep(ctx, r.c.Poll) {
			return
		}
	}
}

// page asks once, from a place on, and hands over what comes. It returns the place to go on from, which is the same one if
// nothing came, and whether something by hand is a lane's own.
func (r *Resolver) page(ctx context.Context, after string) (next string, own bool) {
	refs := r.reached()
	if len(refs) == 0 {
		return after, false
	}
	asOf := time.Now()
	got, err := r.calls.ListDuties(ctx, &unisinkv1.ListDutiesRequest{Resources: refs, ByHandAtMost: byHandAtOnce, After: after})
	if err != nil {
		if ctx.Err() == nil {
			r.unanswered(ctx, err)
		}
		return after, false
	}
	o := newOrders(got, asOf, after == "" && got.GetNext() == "")
	o.back = r.answered(ctx)
	for _, l := range r.lanes {
		own = own || slices.ContainsFunc(o.duties, l.handOwn)
		l.give(o)
	}
	return got.GetNext(), own
}

// duties are all that there are, however many answers they take.
func (r *Resolver) duties(ctx context.Context) (all []*unisinkv1.Duty, ns participant.Namespace, err error) {
	for after := ""; ; {
		got, err := r.calls.ListDuties(ctx, &unisinkv1.ListDutiesRequest{ByHandAtMost: byHandAtOnce, After: after})
		if err != nil {
			return nil, ns, err
		}
		for _, d := range got.GetDuties() {
			if after == "" || d.GetBranch().GetTxn() != "" { // what is of epochs comes with each
				all = append(all, d)
			}
		}
		if after = got.GetNext(); after == "" {
			return all, participant.Namespace{Name: got.GetNamespace(), Incarnation: got.GetIncarnation()}, nil
		}
	}
}

// reached are the resources that have told what they are.
func (r *Resolver) reached() []*unisinkv1.ResourceRef {
	var refs []*unisinkv1.ResourceRef
	for _, l := range r.lanes {
		if is, known := l.identity(); known {
			refs = append(refs, is)
		}
	}
	return refs
}

// answered notes an answer, and returns when the last silence ended.
func (r *Resolver) answered(ctx context.Context) (back time.Time) {
	r.mu.Lock()
	was := r.silent
	if r.silent = false; was {
		r.back = time.Now()
	}
	back = r.back
	r.mu.Unlock()
	if was {
		r.log.InfoContext(ctx, "the coordinator tells duties again")
	}
	return back
}

// unanswered says once that nobody tells what is to be done; it is asked on and on.
func (r *Resolver) unanswered(ctx context.Context, err error) {
	r.mu.Lock()
	was := r.silent
	r.silent = true
	r.mu.Unlock()
	if !was {
		r.log.WarnContext(ctx, "no coordinator tells duties; asking on", obs.Err(err))
	}
}

// orders are the duties as one answer told them.
type orders struct {
	ns       participant.Namespace
	asOf     time.Time // before the question: what was proven since may still be among them
	back     time.Time // when the last silence of the coordinators ended; zero: there was none
	ahead    time.Duration
	interval time.Duration // between sweeps
	duties   []*unisinkv1.Duty
	sweeps   []*unisinkv1.SweepDuty
	whole    bool // there are no other duties
}

func newOrders(a *unisinkv1.ListDutiesResponse, asOf time.Time, whole bool) *orders {
	return &orders{
		whole: whole,
		ns:    participant.Namespace{Name: a.GetNamespace(), Incarnation: a.GetIncarnation()},
		asOf:  asOf, ahead: time.UnixMilli(a.GetNowMs()).Sub(asOf), interval: time.Duration(a.GetSweepIntervalMs()) * time.Millisecond,
		duties: a.GetDuties(), sweeps: a.GetSweeps(),
	}
}

// age of a time by the coordinator's clock.
func (o *orders) age(ms int64) time.Duration { return time.Since(time.UnixMilli(ms).Add(-o.ahead)) }
