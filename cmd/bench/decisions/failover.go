package decisions

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/unisink/unisink/cmd/bench/fleet"
	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/participant"
)

// FailoverConfig says what Failover measures.
type FailoverConfig struct {
	Lab     LabConfig
	Kills   int
	Scopes  int           // each with a member
	Epoch   time.Duration // between barriers of a scope
	Callers int           // who run transactions by hand
	Pace    time.Duration // between the transactions of a caller
	// Seed draws the pauses between kills.
	Seed uint64
}

// Validate reports every mistake at once.
func (c FailoverConfig) Validate() error {
	var errs []error
	say := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	say(c.Lab.Nodes != 3, "%d nodes: a group that goes on without its leader has 3", c.Lab.Nodes)
	say(c.Kills < 1, "%d kills: give 1 or more", c.Kills)
	say(c.Scopes < 0 || c.Callers < 0 || c.Scopes+c.Callers < 1, "%d scopes and %d callers: give 0 or more, and one at least", c.Scopes, c.Callers)
	say(c.Epoch < 20*time.Millisecond, "an epoch of %s is too short; at least 20ms", c.Epoch)
	say(c.Pace < time.Millisecond, "a pace of %s is too short; at least 1ms", c.Pace)
	return errors.Join(errs...)
}

// FailoverResult is what was measured. Times are seconds from the kill.
type FailoverResult struct {
	Kills   int    `json:"kills"`
	Seed    uint64 `json:"seed"`
	Scopes  int    `json:"scopes"`
	EpochMS int64  `json:"epoch_ms"`
	Callers int    `json:"callers"`
	// DecisionsPerS is the load while nothing is wrong.
	DecisionsPerS float64 `json:"decisions_per_s"`
	// Next is until any writer is told a decision, Every until each has been told one since the kill.
	Next  Spread `json:"next_decision_s"`
	Every Spread `json:"every_writer_s"`
	// LongestGap is the longest time that any writer was told nothing, the kill within it.
	LongestGap float64 `json:"longest_gap_s"`
	// Restarts are generations that were opened though no writer died; Errors are what writers were told
	// instead of a decision.
	Restarts int `json:"restarts"`
	Errors   int `json:"errors"`
	// Told are the transactions by hand that were asked for again behind the kills, and Lost those of them
	// that are no longer committed.
	Told    int            `json:"told"`
	Lost    int            `json:"lost"`
	Budgets []stats.Budget `json:"budgets"`
	// Each is the next decision after each kill, and the node that was killed.
	Each   []KillRow `json:"each"`
	CutOff string    `json:"cut_off,omitempty"`
}

// broken is an error when a decision that somebody was told does not stand: no figure counts then.
func (r FailoverResult) broken() error {
	if r.Lost == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d transactions that were told committed are committed no more", r.Lost, r.Told)
}

// Spread is the middle and the end of some values.
type Spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Clone(values)
	return Spread{stats.Rounded(stats.Median(v), 3), stats.Rounded(stats.Quantile(v, 0.99), 3), stats.Rounded(slices.Max(v), 3)}
}

// KillRow is one kill.
type KillRow struct {
	Node  string  `json:"node"`
	Next  float64 `json:"next_decision_s"`
	Every float64 `json:"every_writer_s"`
}

// The budgets of a leader that was killed, seconds.
const (
	mostNextP50 = 1.5
	mostNextP99 = 2.5
)

// Failover kills the leader again and again, under load. With an error comes what was measured before it.
func Failover(ctx context.Context, c FailoverConfig) (out FailoverResult, err error) {
	if err := c.Validate(); err != nil {
		return out, err
	}
	f := &failover{c: c, rng: rand.New(rand.NewPCG(c.Seed, c.Seed))}
	err = inLab(ctx, c.Lab, func(g *group.Group) error {
		f.group = g
		return f.run(ctx)
	})
	out = f.result()
	if err != nil {
		out.CutOff = "it ended with an error"
	}
	return out, errors.Join(err, out.broken())
}

type failover struct {
	c       FailoverConfig
	group   *group.Group
	rng     *rand.Rand
	killed  *group.Node // last
	crew    *fleet.Crew
	callers *fleet.Callers
	writers []*fleet.Writer

	each        []KillRow
	gap         time.Duration // the longest
	told, lost  int
	quietFor    time.Duration
	quietlyTold int
}

func (f *failover) run(ctx context.Context) (err error) {
	f.crew, err = fleet.Start(ctx, fleet.Config{
		Client: f.group.Client, Coordinators: f.group.Addresses(), Name: "failover", Scopes: f.c.Scopes, Every: f.c.Epoch,
	})
	defer f.crew.Stop()
	if err != nil {
		return err
	}
	f.crew.Work(true)
	f.callers, err = fleet.Call(ctx, f.group.Addresses(), f.c.Callers, f.c.Pace)
	defer f.callers.Stop()
	if err != nil {
		return err
	}
	f.writers = slices.Concat(f.crew.Writers, f.callers.Writers)
	if err := f.awaitAll(ctx, time.Now()); err != nil {
		return err
	}
	for kill := range f.c.Kills {
		if err := f.quiet(ctx); err != nil {
			return fmt.Errorf("before kill %d: %w", kill+1, err)
		}
		row, err := f.kill(ctx)
		if err != nil {
			return fmt.Errorf("kill %d: %w", kill+1, err)
		}
		f.each = append(f.each, row)
		f.c.Lab.say("kill %d of %d, %s: next decision after %.2f s, every writer has one after %.2f s", kill+1, f.c.Kills, row.Node, row.Next, row.Every)
	}
	return nil
}

// quiet is a while in which nothing is wrong, by lot, so that kills meet every moment of an epoch.
func (f *failover) quiet(ctx context.Context) error {
	for _, w := range f.writers {
		w.Take()
	}
	f.callers.Committed()
	d := time.Second/2 + time.Duration(f.rng.Int64N(int64(time.Second)))
	began := time.Now()
	if err := group.Sleep(ctx, d); err != nil {
		return err
	}
	f.quietFor += time.Since(began)
	for _, w := range f.writers {
		f.quietlyTold += w.Pending()
	}
	return nil
}

// afterwards: an answer of a node that is dead may still lie in a socket. No other node leads so soon.
const afterwards = 50 * time.Millisecond

// kill kills the leader, waits until each writer has been told a decision of another, and starts the node again.
func (f *failover) kill(ctx context.Context) (KillRow, error) {
	n, err := f.group.Leader(ctx)
	if err != nil {
		return KillRow{}, err
	}
	f.killed = n
	at := time.Now()
	if err := n.Proc.Kill(); err != nil {
		return KillRow{}, fmt.Errorf("kill node %s: %w", n.ID, err)
	}
	dead := time.Now().Add(afterwards)
	if err := f.awaitAll(ctx, dead); err != nil {
		return KillRow{}, err
	}
	row := f.felt(n.ID, at, dead)
	if err := f.group.StartNode(n); err != nil {
		return row, err
	}
	if err := errors.Join(f.group.Await(ctx, n), f.group.AwaitCaughtUp(ctx, n)); err != nil {
		return row, err
	}
	f.killed = nil
	return row, f.askAgain(ctx)
}

// patience is how long nobody is told anything before the measurement ends with an error.
const patience = 30 * time.Second

// awaitAll returns when every writer has been told a decision after a time.
func (f *failover) awaitAll(ctx context.Context, after time.Time) error {
	without := func() (out []string) {
		for _, w := range f.writers {
			if d, ok := w.Last(); !ok || !d.Told.After(after) {
				out = append(out, w.Name)
			}
		}
		return out
	}
	return await(ctx, patience, func() bool { return len(without()) == 0 }, f.othersEnded, func() string {
		names := without()
		return fmt.Sprintf("%d of %d writers are told nothing for %s, %s for one; what they were told before: %v", len(names), len(f.writers), patience, names[0], f.errors())
	})
}

// othersEnded is an error when another node than the one that was killed has ended.
func (f *failover) othersEnded() error {
	var errs []error
	for _, n := range f.group.Nodes {
		if n != f.killed && !n.Proc.Alive() {
			errs = append(errs, fmt.Errorf("node %s ended by itself: %w\n%s", n.ID, n.Proc.Err(), f.group.Tail(n)))
		}
	}
	return errors.Join(errs...)
}

// felt is what a kill came to.
func (f *failover) felt(node string, at, dead time.Time) KillRow {
	var next, every time.Duration
	for i, w := range f.writers {
		before := at
		for _, d := range w.Take() {
			if !d.Told.After(dead) {
				before = d.Told
				continue
			}
			first := d.Told.Sub(at)
			f.gap = max(f.gap, d.Told.Sub(before))
			if i == 0 || first < next {
				next = first
			}
			every = max(every, first)
			break
		}
	}
	return KillRow{Node: node, Next: stats.Rounded(next.Seconds(), 3), Every: stats.Rounded(every.Seconds(), 3)}
}

// askAgain asks for the newest transactions by hand that somebody was told to be committed.
func (f *failover) askAgain(ctx context.Context) error {
	const most = 100
	ids := f.callers.Committed()
	for _, id := range ids[max(0, len(ids)-most):] {
		out, err := f.group.Client.Outcome(ctx, id)
		if err != nil {
			return fmt.Errorf("ask for a transaction that was told to be committed: %w", err)
		}
		f.told++
		if out != participant.OutcomeCommitted {
			f.lost++
		}
	}
	return nil
}

// errors are what writers were told, the first of each and no more than fit in a sentence.
func (f *failover) errors() error {
	var errs []error
	for _, w := range f.writers {
		if told := w.Failed(); len(told) > 0 && len(errs) < 3 {
			errs = append(errs, told[0])
		}
	}
	return errors.Join(errs...)
}

func (f *failover) result() FailoverResult {
	r := FailoverResult{
		Kills: len(f.each), Seed: f.c.Seed, Scopes: f.c.Scopes, EpochMS: f.c.Epoch.Milliseconds(), Callers: f.c.Callers,
		LongestGap: stats.Rounded(f.gap.Seconds(), 3), Told: f.told, Lost: f.lost, Each: f.each,
	}
	var next, every []float64
	for _, k := range f.each {
		next, every = append(next, k.Next), append(every, k.Every)
	}
	r.Next, r.Every = spread(next), spread(every)
	if f.quietFor > 0 {
		r.DecisionsPerS = stats.Rounded(float64(f.quietlyTold)/f.quietFor.Seconds(), 0)
	}
	for _, w := range f.writers {
		r.Restarts += max(0, w.Begun()-1)
		r.Errors += len(w.Failed())
	}
	if len(f.each) > 0 {
		r.Budgets = []stats.Budget{
			stats.Beside("next p50", r.Next.P50, mostNextP50), stats.Beside("next p99", r.Next.P99, mostNextP99),
			stats.Beside("restarts", float64(r.Restarts), 0), stats.Beside("errors", float64(r.Errors), 0), stats.Beside("lost", float64(r.Lost), 0),
		}
	}
	return r
}
