package app

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/bench/pairs"
	"github.com/unisink/unisink/cmd/bench/stats"
)

func (a *app) benchPostgres() *cli.Command {
	return &cli.Command{
		Name: "postgres", Usage: "transactions over two PostgreSQL databases, beside bare pairs of PREPARE and COMMIT PREPARED by pgbench",
		Description: "Starts PostgreSQL (fetched on first use) and coordinator nodes, fsync on, in the system's temporary directory.\n" +
			"One side is transactions by hand: a row in each of two databases, both prepared, one decision of the nodes, both\n" +
			"committed. The other is pgbench, which must be installed: each of its clients, on one connection to one database,\n" +
			"does the bare minimum for two branches, one statement after the other: begin, insert, prepare, twice, and commit\n" +
			"both, with no marker, no fence and nobody who could finish what a crash leaves. Every row is counted afterwards.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "nodes", Value: 3, Usage: "`N` coordinator nodes, 1 or 3"},
			&cli.IntSliceFlag{Name: "clients", Value: cli.NewIntSlice(1, 16), Usage: "clients at once, a row for each `N`"},
			&cli.DurationFlag{Name: "duration", Value: 6 * time.Second, Usage: "`TIME` of one pass of one side, whole seconds"},
			&cli.IntFlag{Name: "passes", Value: 5, Usage: "`N` passes of each side, interleaved; medians count"},
			&cli.StringFlag{Name: "profile", Usage: "`DIR` for CPU profiles of the clients' process"},
			&cli.BoolFlag{Name: "short", Usage: "3 passes of 5s, about a minute and a half"},
			&cli.BoolFlag{Name: "quick", Usage: "as little as shows that it works; the figures mean nothing"},
			checkFlag(),
		},
		Action: a.runBenchPostgres,
	}
}

// leastOfPgbench is the budget of README: two branches through us beside bare pairs.
const leastOfPgbench = 0.7

func (a *app) runBenchPostgres(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	cfg := pairs.Config{
		Exe: exe, Nodes: c.Int("nodes"), Clients: c.IntSlice("clients"), Duration: c.Duration("duration"), Passes: c.Int("passes"),
		Limit: leastOfPgbench, Profile: c.String("profile"), Progress: func(s string) { fmt.Fprintln(a.err, s) },
	}
	if c.Bool("short") {
		cfg.Duration, cfg.Passes = min(cfg.Duration, 5*time.Second), min(cfg.Passes, 3)
	}
	if c.Bool("quick") {
		cfg.Duration, cfg.Passes, cfg.Limit = time.Second, 1, 0
	}
	if err := cfg.Validate(); err != nil {
		return withCode(CodeUsage, err)
	}
	r, err := pairs.Run(c.Context, cfg)
	if err != nil && len(r.Rows) == 0 {
		return err
	}
	return errors.Join(err, a.show(c, r, func() [][]string {
		table := [][]string{{"CLIENTS", "PASSES", "TXN/S", "P50 MS", "P99 MS", "PGBENCH/S", "MEAN MS", "RATIO", "OF EACH PASS", "CPU MS", "PGBENCH CPU MS", "BUDGETS"}}
		f := func(v float64) string { return fmt.Sprintf("%.4g", v) }
		cpu := func(c pairs.Cost) string {
			return fmt.Sprintf("client %.3g, nodes %.3g, server %.3g", c.Client, c.Nodes, c.Postgres)
		}
		for _, row := range r.Rows {
			table = append(table, []string{
				fmt.Sprint(row.Clients), fmt.Sprint(row.Passes), f(row.PerS), f(row.P50), f(row.P99), f(row.BarePerS), f(row.BareMean),
				f(row.Ratio), fmt.Sprint(row.Ratios), cpu(row.Cost), cpu(row.BareCost), stats.Verdict(row.Budgets),
			})
		}
		return table
	}), judged(c, 0, budgetsOf(r.Rows, func(r *pairs.Row) []stats.Budget { return r.Budgets })...))
}
