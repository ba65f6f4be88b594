package app

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/bench/decisions"
	"github.com/unisink/unisink/cmd/bench/stats"
)

// decisionsLab says with what `bench failover` and `bench scopes` measure.
func (a *app) decisionsLab(c *cli.Context) (decisions.LabConfig, error) {
	exe, err := os.Executable()
	if err != nil {
		return decisions.LabConfig{}, fmt.Errorf("find this binary: %w", err)
	}
	return decisions.LabConfig{
		Exe: exe, Nodes: c.Int("nodes"), Dir: c.String("dir"), Progress: func(s string) { fmt.Fprintln(a.err, s) },
	}, nil
}

// decisionsFlags are those of the laboratory.
func decisionsFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "dir", Usage: "`DIR` for logs and data, which is kept; a temporary one by default"},
		&cli.BoolFlag{Name: "quick", Usage: "as little as shows that it works; the figures mean nothing"},
		checkFlag(),
	}
}

func (a *app) benchFailover() *cli.Command {
	return &cli.Command{
		Name: "failover", Usage: "how long nobody is told a decision when the leader is killed under load",
		Description: "Three coordinator nodes, members of scopes and callers by hand. The leader is killed with -9 at a random\n" +
			"moment, and started again once every writer has been told a decision of the next one. Measured from the\n" +
			"kill; no writer may be restarted or told an error, and what was told committed is asked for again.",
		Flags: append(decisionsFlags(),
			&cli.IntFlag{Name: "kills", Value: 100, Usage: "the leader is killed `N` times; each takes three to four seconds"},
			&cli.IntFlag{Name: "scopes", Value: 16, Usage: "`N` scopes that make epochs"},
			&cli.DurationFlag{Name: "epoch", Value: 100 * time.Millisecond, Usage: "`TIME` between barriers of a scope"},
			&cli.IntFlag{Name: "callers", Value: 16, Usage: "`N` callers that run transactions by hand"},
			&cli.DurationFlag{Name: "pace", Value: 20 * time.Millisecond, Usage: "`TIME` between the transactions of a caller"},
			&cli.Uint64Flag{Name: "seed", Usage: "`SEED` of the pauses between kills; by default the time, and it is shown"},
		),
		Action: a.runBenchFailover,
	}
}

func (a *app) runBenchFailover(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	lab, err := a.decisionsLab(c)
	if err != nil {
		return err
	}
	lab.Nodes = 3
	cfg := decisions.FailoverConfig{
		Lab: lab, Kills: c.Int("kills"), Scopes: c.Int("scopes"), Epoch: c.Duration("epoch"), Callers: c.Int("callers"), Pace: c.Duration("pace"),
		Seed: c.Uint64("seed"),
	}
	if !c.IsSet("seed") {
		cfg.Seed = uint64(time.Now().UnixMilli())
	}
	if c.Bool("quick") {
		cfg.Kills = min(cfg.Kills, 3)
	}
	if err := cfg.Validate(); err != nil {
		return withCode(CodeUsage, err)
	}
	r, err := decisions.Failover(c.Context, cfg)
	if err != nil && r.Kills == 0 {
		return err
	}
	return errors.Join(err, a.show(c, r, func() [][]string {
		s := func(v float64) string { return fmt.Sprintf("%.2f", v) }
		return [][]string{
			{"KILLS", "DECISIONS/S", "NEXT P50 S", "P99", "MAX", "EVERY P50 S", "P99", "MAX", "LONGEST GAP", "RESTARTS", "ERRORS", "LOST", "BUDGETS", "SEED"},
			{
				fmt.Sprint(r.Kills), fmt.Sprintf("%.0f", r.DecisionsPerS), s(r.Next.P50), s(r.Next.P99), s(r.Next.Max), s(r.Every.P50), s(r.Every.P99), s(r.Every.Max),
				s(r.LongestGap), fmt.Sprint(r.Restarts), fmt.Sprint(r.Errors), fmt.Sprintf("%d of %d", r.Lost, r.Told), stats.Verdict(r.Budgets), fmt.Sprint(r.Seed),
			},
		}
	}), judged(c, r.Errors, r.Budgets))
}
