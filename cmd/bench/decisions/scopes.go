package decisions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unisink/unisink/cmd/bench/fleet"
	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/stats"
)

// ScopesConfig says what Scopes measures.
type ScopesConfig struct {
	Lab    LabConfig
	Scopes int // each with one member
	Rate   int // epochs per second that each wants
	// Duration of the load. What is measured before and behind it takes about as long again, at most a minute.
	Duration time.Duration
	// Step is how long each smaller measurement lasts; 0: a twelfth of Duration, 2 to 10 seconds.
	Step time.Duration
}

// Validate reports every mistake at once.
func (c ScopesConfig) Validate() error {
	errs := []error{group.CheckNodes(c.Lab.Nodes)}
	say := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	say(c.Scopes < 1, "%d scopes: give 1 or more", c.Scopes)
	say(c.Rate < 1 || c.Rate > 50, "%d epochs per second: give 1 to 50", c.Rate)
	say(c.Duration < 2*time.Second, "a duration of %s is too short; at least 2s", c.Duration)
	return errors.Join(errs...)
}

func (c ScopesConfig) step() time.Duration {
	if c.Step > 0 {
		return c.Step
	}
	return min(max(c.Duration/12, 2*time.Second), 10*time.Second)
}

// The scopes whose decisions are compared: few, quick, and always the same.
const (
	probes     = 16
	probeEvery = 20 * time.Millisecond
)

// ScopesResult is what was measured.
type ScopesResult struct {
	Nodes     int     `json:"nodes"`
	Scopes    int     `json:"scopes"`
	Rate      int     `json:"epochs_per_s_wanted"`
	DurationS float64 `json:"duration_s"`
	// AttachS is until all members were started, from none.
	AttachS float64       `json:"attach_s"`
	Load    LoadRow       `json:"load"`
	Disks   []NodeRow     `json:"disks"`
	Snaps   []SnapshotRow `json:"snapshots"`
	Idle    []IdleRow     `json:"idle"`
	Cost    []CostRow     `json:"cost"`
	// Restarts and Errors of all members, over the whole run.
	Restarts int `json:"restarts"`
	Errors   int `json:"errors"`
	// Causes are the first few reasons of restarts.
	Causes  []string       `json:"causes,omitempty"`
	Budgets []stats.Budget `json:"budgets"`
	CutOff  string         `json:"cut_off,omitempty"`
}

// The budgets: MiB of a node's own, and how much dearer a decision may be. A ratio of CPU on a busy machine is not exact to less.
const (
	mostMiB   = 300
	mostRatio = 1.25
)

// Scopes measures what many scopes cost a group: at work and idle. With an error comes what was measured before it.
func Scopes(ctx context.Context, c ScopesConfig) (out ScopesResult, err error) {
	if err := c.Validate(); err != nil {
		return out, err
	}
	out = ScopesResult{Nodes: c.Lab.Nodes, Scopes: c.Scopes, Rate: c.Rate, DurationS: c.Duration.Seconds()}
	err = inLab(ctx, c.Lab, func(g *group.Group) error {
		s := &scopes{c: c, group: g, out: &out}
		defer s.stop()
		return s.run(ctx)
	})
	for _, why := range out.Causes {
		c.Lab.say("a restart: %s", why)
	}
	out.judge()
	if err != nil {
		out.CutOff = "it ended with an error"
	}
	return out, err
}

type scopes struct {
	c     ScopesConfig
	group *group.Group
	out   *ScopesResult
	probe *fleet.Crew
	many  *fleet.Crew // nil while it is not there
	past  int         // decisions of the many
}

// run is the order of what is measured: each comparison has its two sides as near to each other as can be.
func (s *scopes) run(ctx context.Context) (err error) {
	if s.probe, err = s.start(ctx, "probe", probes, probeEvery); err != nil {
		return err
	}
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return s.idle(ctx, "few scopes, idle") },
		func(ctx context.Context) error { return s.cost(ctx, "few scopes, short history") },
		s.attach,
		func(ctx context.Context) error { return s.idle(ctx, "many scopes, idle") },
		func(ctx context.Context) error { return s.cost(ctx, "many idle, short history") },
		s.load,
		func(ctx context.Context) error { return s.idle(ctx, "many scopes, idle after the load") },
		func(ctx context.Context) error { return s.cost(ctx, "many idle, long history") },
		s.detach,
		func(ctx context.Context) error { return s.idle(ctx, "few scopes, idle after the load") },
		func(ctx context.Context) error { return s.cost(ctx, "few scopes, long history") },
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *scopes) stop() {
	for _, crew := range []*fleet.Crew{s.probe, s.many} {
		if crew != nil {
			s.count(crew)
			crew.Stop()
		}
	}
}

// mostCauses are shown, of maybe thousands.
const mostCauses = 5

// count takes in what went wrong for the members of a crew.
func (s *scopes) count(crew *fleet.Crew) {
	for _, w := range crew.Writers {
		s.out.Restarts += max(0, w.Begun()-1)
		for _, why := range w.Halts() {
			if len(s.out.Causes) < mostCauses {
				s.out.Causes = append(s.out.Causes, w.Name+": "+why)
			}
		}
		s.out.Errors += len(w.Failed())
	}
}

// start starts a crew and waits until each of its members has been started.
func (s *scopes) start(ctx context.Context, name string, n int, every time.Duration) (*fleet.Crew, error) {
	crew, err := fleet.Start(ctx, fleet.Config{
		Client: s.group.Client, Coordinators: s.group.Addresses(), Name: name, Scopes: n, Every: every,
	})
	if err == nil {
		err = await(ctx, attachWait, func() bool { return crew.Started() == n }, s.group.Ended, func() string {
			return fmt.Sprintf("%d of %d members were started within %s", crew.Started(), n, attachWait)
		})
	}
	return crew, err
}

const attachWait = 2 * time.Minute

func (s *scopes) attach(ctx context.Context) (err error) {
	s.c.Lab.say("starting the members of %d scopes", s.c.Scopes)
	began := time.Now()
	s.many, err = s.start(ctx, "many", s.c.Scopes, time.Second/time.Duration(s.c.Rate))
	s.out.AttachS = stats.Rounded(time.Since(began).Seconds(), 2)
	s.c.Lab.say("all were started after %.2f s", s.out.AttachS)
	return err
}

func (s *scopes) detach(context.Context) error {
	s.count(s.many)
	s.many.Stop()
	s.many = nil
	return nil
}

// settle is left out before what is measured.
const settle = time.Second

// idle measures what members cost that do nothing.
func (s *scopes) idle(ctx context.Context, what string) error {
	row := IdleRow{What: what, Scopes: s.attached()}
	from, to, err := s.between(ctx, s.c.step())
	if err != nil {
		return err
	}
	row.fill(from, to)
	s.out.Idle = append(s.out.Idle, row)
	s.c.Lab.say("%s: %s", what, row)
	return nil
}

func (s *scopes) attached() int {
	n := len(s.probe.Writers)
	if s.many != nil {
		n += len(s.many.Writers)
	}
	return n
}

// cost measures the probes' decisions. What the group does beside them was measured just before, and is taken off.
func (s *scopes) cost(ctx context.Context, what string) error {
	s.probe.Work(true)
	if err := group.Sleep(ctx, settle); err != nil {
		return err
	}
	for _, w := range s.probe.Writers {
		w.Take()
	}
	from, to, err := s.between(ctx, s.c.step())
	s.probe.Work(false)
	if err != nil {
		return err
	}
	row := CostRow{What: what, Idle: s.attached() - len(s.probe.Writers), History: s.past}
	row.fill(from, to, decisionsIn(s.probe.Writers, from.at, to.at), s.out.Idle[len(s.out.Idle)-1].CPU)
	s.out.Cost = append(s.out.Cost, row)
	s.past += row.Decisions
	s.c.Lab.say("%s: %s", what, row)
	return nil
}

// decisionsIn are those that writers were told in a time, in its order.
func decisionsIn(writers []*fleet.Writer, from, to time.Time) []fleet.Decision {
	var out []fleet.Decision
	for _, w := range writers {
		for _, d := range w.Take() {
			if !d.Told.Before(from) && !d.Told.After(to) {
				out = append(out, d)
			}
		}
	}
	slices.SortFunc(out, func(a, b fleet.Decision) int { return a.Told.Compare(b.Told) })
	return out
}

// load lets every scope make epochs as often as it wants, and looks at the nodes meanwhile.
func (s *scopes) load(ctx context.Context) error {
	s.c.Lab.say("%d scopes want %d epochs a second, for %s", s.c.Scopes, s.c.Scopes*s.c.Rate, s.c.Duration)
	s.many.Work(true)
	defer s.many.Work(false)
	if err := group.Sleep(ctx, settle); err != nil {
		return err
	}
	for _, w := range s.many.Writers {
		w.Take()
	}
	e := newEye(s.group)
	e.begin(ctx)
	from, to, err := s.between(ctx, s.c.Duration)
	if err := errors.Join(err, e.end()); err != nil {
		return err
	}
	told := decisionsIn(s.many.Writers, from.at, to.at)
	s.past += len(told)
	s.out.Load.fill(from, to, told)
	s.out.Disks, s.out.Snaps = e.nodes(from, to), e.snapshots(told)
	s.out.Load.Gap = longestGap(told, from.at, to.at)
	s.c.Lab.say("%s", s.out.Load)
	return nil
}

// judge puts what was measured beside its budgets.
func (r *ScopesResult) judge() {
	for _, n := range r.Disks {
		r.Budgets = append(r.Budgets, stats.Beside(n.Node+" own MiB", n.OwnMiB, mostMiB))
	}
	if len(r.Cost) == 0 || r.Cost[0].CPU <= 0 {
		return
	}
	for i := range r.Cost {
		r.Cost[i].ToFirst = stats.Rounded(r.Cost[i].CPU/r.Cost[0].CPU, 2)
		if i > 0 {
			r.Budgets = append(r.Budgets, stats.Beside(r.Cost[i].What+", to the first", r.Cost[i].ToFirst, mostRatio))
		}
	}
}
