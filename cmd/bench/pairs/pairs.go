package pairs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/services"
)

// Config says what Run measures.
type Config struct {
	// Exe is this binary; it is started again for each coordinator node.
	Exe     string
	Nodes   int   // coordinator nodes, 1 or 3
	Clients []int // at once; a row for each number
	// Duration of one measurement, whole seconds: pgbench counts no others.
	Duration time.Duration
	Passes   int // measurements of each side; the median counts
	// Limit is the least that our transactions per second may be of pgbench's; 0: no budget.
	Limit float64
	// Profile, when not empty, is a directory for CPU profiles of this process while our side is measured.
	Profile string
	// Progress is told what is going on, a line at a time.
	Progress func(string)
}

// Validate reports every mistake at once.
func (c Config) Validate() error {
	errs := []error{group.CheckNodes(c.Nodes)}
	if len(c.Clients) == 0 || slices.Min(c.Clients) < 1 || slices.Max(c.Clients) > mostClients {
		errs = append(errs, fmt.Errorf("clients %v: give 1 to %d", c.Clients, mostClients))
	}
	if c.Duration < time.Second || c.Duration%time.Second != 0 {
		errs = append(errs, fmt.Errorf("a duration of %s: give whole seconds, 1 or more", c.Duration))
	}
	if c.Passes < 1 {
		errs = append(errs, fmt.Errorf("%d passes: give 1 or more", c.Passes))
	}
	return errors.Join(errs...)
}

// mostClients keeps connections and prepared transactions, two of each to a client, far from the server's limits.
const mostClients = 64

func (c Config) say(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// Result is what was measured.
type Result struct {
	Nodes     int     `json:"nodes"`
	DurationS float64 `json:"duration_s"` // of each pass
	Server    string  `json:"server"`
	Pgbench   string  `json:"pgbench"`
	Sides     Sides   `json:"sides"`
	Rows      []Row   `json:"rows"`
	CutOff    string  `json:"cut_off,omitempty"`
}

// Sides says what is compared, which is not the same work.
type Sides struct {
	Unisink string `json:"unisink"`
	Pgbench string `json:"pgbench"`
}

func sides(nodes int) Sides {
	return Sides{
		Unisink: fmt.Sprintf("a row in each of two databases, side by side on two connections, by extended protocol; in each branch a fence and a marker; one decision on the disks of %d nodes; "+
			"all in one process on the same machine as server and nodes", nodes),
		Pgbench: "a row in each of two tables of one database, one statement after the other on one connection, by simple protocol; no fence, no marker, no decision, no proof",
	}
}

// Row holds medians over the passes. A transaction is two branches, one row each.
type Row struct {
	Clients  int            `json:"clients"`
	Passes   int            `json:"passes"`
	PerS     float64        `json:"txn_per_s"`
	P50      float64        `json:"p50_ms"`
	P99      float64        `json:"p99_ms"`
	BarePerS float64        `json:"pgbench_txn_per_s"`
	BareMean float64        `json:"pgbench_mean_ms"`
	Ratio    float64        `json:"ratio"` // of the medians
	Ratios   []float64      `json:"ratios"`
	Cost     Cost           `json:"cost_per_txn"`
	BareCost Cost           `json:"pgbench_cost_per_txn"`
	Budgets  []stats.Budget `json:"budgets"`
}

// pass is one measurement of one side.
type pass struct {
	done     int
	perS     float64
	mean     float64       // milliseconds
	p50, p99 float64       // milliseconds; ours alone
	client   time.Duration // CPU of the process that asked; pgbench's alone, ours is read beside the others
	cost     Cost
}

// Run measures. With an error comes what was measured before it. No process and no file is left.
func Run(ctx context.Context, c Config) (out Result, err error) {
	if err := c.Validate(); err != nil {
		return out, err
	}
	out = Result{Nodes: c.Nodes, DurationS: c.Duration.Seconds(), Server: services.PostgresCurrent, Sides: sides(c.Nodes)}
	pgbench, err := findPgbench()
	if err != nil {
		return out, err
	}
	dir, err := os.MkdirTemp("", "unisink-bench-")
	if err != nil {
		return out, fmt.Errorf("make a directory to measure in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	crew := child.New()
	defer func() { err = errors.Join(err, crew.End()) }()
	l := &lab{c: c, dir: dir, pgbench: pgbench, crew: crew}
	defer func() { err = errors.Join(err, l.close()) }() //nolint:contextcheck // what was started is stopped, whatever ends the run
	if err := l.start(ctx); err != nil {
		return out, err
	}
	if out.Pgbench, err = l.version(ctx); err != nil {
		return out, err
	}
	if err = l.run(ctx, &out); err != nil {
		out.CutOff = "it ended with an error"
	}
	return out, err
}

// run interleaves the two sides, and begins with the other one each time, so that both meet the same noise.
func (l *lab) run(ctx context.Context, out *Result) error {
	tally := map[int]*[2][]pass{}
	var failed error
	for i := 0; i < l.c.Passes && failed == nil; i++ {
		for _, n := range l.c.Clients {
			if tally[n] == nil {
				tally[n] = &[2][]pass{}
			}
			if failed = l.both(ctx, i, n, tally[n]); failed != nil {
				break
			}
		}
	}
	for _, n := range l.c.Clients {
		if t := tally[n]; t != nil && len(t[0]) > 0 && len(t[0]) == len(t[1]) {
			out.Rows = append(out.Rows, l.row(n, t[0], t[1]))
		}
	}
	return failed
}

// both makes one pass of each side, or adds none.
func (l *lab) both(ctx context.Context, i, clients int, t *[2][]pass) error {
	var made [2]pass
	sides := []int{0, 1}
	if i%2 == 1 {
		sides = []int{1, 0}
	}
	for _, side := range sides {
		measure, what := l.ours, "unisink"
		if side == 1 {
			measure, what = l.bare, "pgbench"
		}
		p, err := l.counted(ctx, what, side == 1, func() (pass, error) { return measure(ctx, clients) })
		if err != nil {
			return fmt.Errorf("%s with %d clients: %w", what, clients, err)
		}
		made[side] = p
		l.c.say("pass %d of %d, %d clients, %s: %.0f transactions a second", i+1, l.c.Passes, clients, what, p.perS)
	}
	t[0], t[1] = append(t[0], made[0]), append(t[1], made[1])
	return nil
}

// counted looks whether every table got a row for each transaction.
func (l *lab) counted(ctx context.Context, what string, bare bool, measure func() (pass, error)) (p pass, err error) {
	before, err := l.rows(ctx, bare)
	if err != nil {
		return p, err
	}
	began, err := l.used(ctx)
	if err != nil {
		return p, err
	}
	if p, err = measure(); err != nil {
		return p, err
	}
	ended, err := l.used(ctx)
	if err != nil {
		return p, err
	}
	p.cost = ended.since(began).per(p, bare)
	after, err := l.rows(ctx, bare)
	if err != nil {
		return p, err
	}
	for table, n := range after {
		if got := n - before[table]; got != p.done {
			return p, fmt.Errorf("%s says that it made %d transactions, and table %s has %d more rows", what, p.done, table, got)
		}
	}
	return p, nil
}

func (l *lab) row(clients int, ours, bare []pass) Row {
	middle := func(of []pass, f func(pass) float64) float64 {
		var values []float64
		for _, p := range of {
			values = append(values, f(p))
		}
		return stats.Rounded(stats.Median(values), 2)
	}
	perS := func(p pass) float64 { return p.perS }
	r := Row{
		Clients: clients, Passes: len(ours), PerS: middle(ours, perS), BarePerS: middle(bare, perS),
		P50: middle(ours, func(p pass) float64 { return p.p50 }), P99: middle(ours, func(p pass) float64 { return p.p99 }),
		BareMean: middle(bare, func(p pass) float64 { return p.mean }),
	}
	cost := func(of []pass) Cost {
		return Cost{
			Client: middle(of, func(p pass) float64 { return p.cost.Client }), Nodes: middle(of, func(p pass) float64 { return p.cost.Nodes }),
			Postgres: middle(of, func(p pass) float64 { return p.cost.Postgres }), WAL: middle(of, func(p pass) float64 { return p.cost.WAL }),
			Entries: middle(of, func(p pass) float64 { return p.cost.Entries }),
		}
	}
	r.Cost, r.BareCost = cost(ours), cost(bare)
	r.Ratio = stats.Rounded(r.PerS/r.BarePerS, 3)
	for i := range ours {
		r.Ratios = append(r.Ratios, stats.Rounded(ours[i].perS/bare[i].perS, 3))
	}
	if l.c.Limit > 0 {
		// A budget is the most that a figure may be: how many times as many pgbench makes.
		r.Budgets = append(r.Budgets, stats.Beside("pgbench/unisink", stats.Rounded(r.BarePerS/r.PerS, 3), stats.Rounded(1/l.c.Limit, 3)))
	}
	return r
}
