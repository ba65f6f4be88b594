package app

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/bench"
	"github.com/unisink/unisink/cmd/bench/stats"
)

func (a *app) benchState() *cli.Command {
	return &cli.Command{
		Name: "state", Usage: "what keyed state costs: memory, bytes for each epoch, and restarts",
		Description: "Two shapes. orders: many keys in windows of a second of event time, read at --rate, once without a kill\n" +
			"and once with kill -9 and restarts in between; both must make the same. held: all keys in one long\n" +
			"window, of which each epoch changes a share, then kills. Every result is recomputed from the orders,\n" +
			"and a restarted process must read from its restore point on, nothing before it.",
		Flags: append(labFlags(),
			checkFlag(),
			&cli.StringSliceFlag{Name: "shape", Value: cli.NewStringSlice(bench.Shapes()...), Usage: "`SHAPE` to measure, orders or held"},
			&cli.IntFlag{Name: "orders", Value: 10_000_000, Usage: "`N` orders that go through windows of a second"},
			&cli.IntFlag{Name: "keys", Value: 1_000_000, Usage: "`N` keys"},
			&cli.IntFlag{Name: "per-second", Usage: "`N` orders to a second of event time; by default twice the keys"},
			&cli.IntFlag{Name: "rate", Value: 200_000, Usage: "`N` orders per second that are read at most; 0: as many as go"},
			&cli.IntFlag{Name: "kills", Value: 3, Usage: "`N` kills of each disturbed run"},
			&cli.DurationFlag{Name: "epoch", Value: 100 * time.Millisecond, Usage: "`TIME` between barriers"},
			&cli.Float64Flag{Name: "changed", Value: 0.01, Usage: "`SHARE` of the keys that each epoch changes in the long window"},
			&cli.DurationFlag{Name: "watch", Value: 15 * time.Second, Usage: "`TIME` for which that is watched"},
			&cli.IntFlag{Name: "partitions", Value: 4, Usage: "`N` partitions in each topic"},
			profileFlag(),
		),
		Action: a.runBenchState,
	}
}

func (a *app) runBenchState(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	lab, err := a.lab(c)
	if err != nil {
		return err
	}
	cfg := bench.StateConfig{
		Lab: lab, Settings: bench.Settings{Partitions: c.Int("partitions"), Profiles: c.String("profile")},
		Shapes: c.StringSlice("shape"), Epoch: c.Duration("epoch"), Keys: c.Int("keys"), Kills: c.Int("kills"),
		Orders: c.Int("orders"), PerSecond: c.Int("per-second"), Rate: c.Int("rate"), Changed: c.Float64("changed"), Watch: c.Duration("watch"),
	}
	if c.Bool("quick") {
		cfg.Orders, cfg.Keys, cfg.Rate = min(cfg.Orders, 20_000), min(cfg.Keys, 30_000), min(cfg.Rate, 10_000)
		cfg.Kills, cfg.Watch = min(cfg.Kills, 1), min(cfg.Watch, 2*time.Second)
	}
	if c.Bool("quick") && cfg.PerSecond == 0 {
		cfg.PerSecond = cfg.Orders / 2
	}
	if cfg.PerSecond == 0 {
		cfg.PerSecond = 2 * cfg.Keys
	}
	if err := errors.Join(cfg.Validate(), makeProfiles(cfg.Settings.Profiles)); err != nil {
		return withCode(CodeUsage, err)
	}
	out, err := bench.State(c.Context, cfg)
	if len(out.Rows) == 0 && err != nil {
		return err
	}
	shown := a.show(c, out, func() [][]string { return stateCosts(out.Rows) }, func() [][]string { return stateRestarts(out.Rows) })
	if out.CutOff != "" {
		a.note(c, "Cut off: "+out.CutOff+".")
	}
	return errors.Join(err, shown, judged(c, 0, budgetsOf(out.Rows, func(r *bench.StateRow) []stats.Budget { return r.Budgets })...))
}

func stateCosts(rows []bench.StateRow) [][]string {
	table := [][]string{{"SHAPE", "KILLS", "KEYS", "RECORDS/S", "PEAK MIB", "EPOCHS", "DECIDED P50 MS", "P99", "MAX", "KIB/EPOCH", "MOST", "STATE MIB", "SHARE", "CHANGED", "BUDGET"}}
	for _, r := range rows {
		changed := "-"
		if r.Store.ChangedShare > 0 {
			changed = percent(r.Store.ChangedShare)
		}
		table = append(table, []string{
			r.Shape, fmt.Sprint(r.Kills), fmt.Sprint(r.Keys), fmt.Sprintf("%.0f", r.RecordsPerS), fmt.Sprintf("%.0f", r.PeakRSSMB), fmt.Sprint(r.Epochs.Count),
			fmt.Sprintf("%.1f", r.Epochs.P50), fmt.Sprintf("%.1f", r.Epochs.P99), fmt.Sprintf("%.1f", r.Epochs.Max), fmt.Sprintf("%.0f", r.Store.PerEpochKB),
			fmt.Sprintf("%.0f", r.Store.MostPerEpochKB), fmt.Sprintf("%.1f", r.Store.FullMB), percent(r.Store.Share), changed, stats.Verdict(r.Budgets),
		})
	}
	return table
}

func stateRestarts(rows []bench.StateRow) [][]string {
	table := [][]string{{"SHAPE", "KILLS", "RESTARTED AFTER S", "RESTORED MIB", "RECORDS", "RESULTS", "DIGEST"}}
	for _, r := range rows {
		var restarts []string
		for _, s := range r.Restarts {
			restarts = append(restarts, fmt.Sprintf("%.2f", s))
		}
		table = append(table, []string{
			r.Shape, fmt.Sprint(r.Kills), dash(strings.Join(restarts, " ")), fmt.Sprintf("%.1f", r.RestoredMB),
			fmt.Sprint(r.Records), fmt.Sprint(r.Results), r.Digest,
		})
	}
	return table
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }
