package app

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/bench"
)

func (a *app) benchRecover() *cli.Command {
	return &cli.Command{
		Name: "recover", Usage: "how long output and readers wait when something dies",
		Description: "A pipeline copies records while its process is killed and started again, is paused beyond its lease\n" +
			"with a second one standing by, while the leader of the coordinators is killed, and the broker. Each\n" +
			"event happens several times, in turns; at the end every record must have come out once.",
		Flags: append(labFlags(),
			&cli.StringSliceFlag{Name: "event", Value: cli.NewStringSlice(bench.Events()...), Usage: "`EVENT` to let happen"},
			&cli.IntFlag{Name: "repeats", Value: 5, Usage: "each event happens `N` times"},
			&cli.DurationFlag{Name: "epoch", Value: 100 * time.Millisecond, Usage: "`TIME` between barriers"},
			&cli.IntFlag{Name: "rate", Value: 2000, Usage: "`RECORDS` per second"},
			&cli.IntFlag{Name: "partitions", Value: 4, Usage: "`N` partitions in each topic"},
		),
		Action: a.runBenchRecover,
	}
}

func (a *app) runBenchRecover(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	lab, err := a.lab(c)
	if err != nil {
		return err
	}
	cfg := bench.RecoverConfig{
		Lab: lab, Settings: bench.Settings{Partitions: c.Int("partitions"), Compression: "none"}, Events: c.StringSlice("event"),
		Epoch: c.Duration("epoch"), Rate: c.Int("rate"), Repeats: c.Int("repeats"),
	}
	if !c.IsSet("event") && len(lab.Brokers) > 0 {
		cfg.Events = []string{bench.EventKilled, bench.EventPaused, bench.EventLeader} // a user's broker is not killed
	}
	if c.Bool("quick") {
		cfg.Repeats = 1
	}
	if err := cfg.Validate(); err != nil {
		return withCode(CodeUsage, err)
	}
	rows, err := bench.Recover(c.Context, cfg)
	if err != nil {
		return err
	}
	out := struct {
		Rows []bench.RecoverRow `json:"rows"`
	}{rows}
	return a.show(c, out, func() [][]string {
		table := [][]string{{"EVENT", "EPOCH", "VISIBLE S", "MAX", "UNBLOCKED S", "MAX", "REPEATS"}}
		for _, r := range rows {
			table = append(table, []string{
				r.Event, (time.Duration(r.EpochMS) * time.Millisecond).String(), fmt.Sprintf("%.2f", r.VisibleMedian), fmt.Sprintf("%.2f", r.VisibleMax),
				fmt.Sprintf("%.2f", r.UnblockedMedian), fmt.Sprintf("%.2f", r.UnblockedMax), fmt.Sprint(r.Repeats),
			})
		}
		return table
	})
}
