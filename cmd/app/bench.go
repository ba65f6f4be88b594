package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/coordinator/raftnode"
)

func (a *app) bench() *cli.Command {
	return group("bench", "measure, side by side with what there is to compare with",
		&cli.Command{
			Name: "decide", Usage: "decisions per second of three nodes with fsync, beside raw raft entries",
			Flags: []cli.Flag{
				&cli.IntSliceFlag{Name: "callers", Value: cli.NewIntSlice(1, 16, 128, 512), Usage: "callers at once, a row for each `N`"},
				&cli.DurationFlag{Name: "duration", Value: 10 * time.Second, Usage: "`TIME` for each row, shared by both sides"},
				&cli.StringFlag{Name: "dir", Usage: "`DIR` on the disk to measure; the system's temporary one by default"},
			},
			Action: a.benchDecide,
		},
		a.benchFailover(), a.benchPipeline(), a.benchPostgres(), a.benchRecover(), a.benchScopes(), a.benchState(), a.benchWorker(), a.benchHeld(),
	)
}

// decideRow is one row of the measurement, in the form that scripts read.
type decideRow struct {
	Callers       int     `json:"callers"`
	DecisionsPerS float64 `json:"decisions_per_s"`
	P50           float64 `json:"p50_ms"`
	P99           float64 `json:"p99_ms"`
	RawPerS       float64 `json:"raw_per_s"`
	RawP50        float64 `json:"raw_p50_ms"`
	RawP99        float64 `json:"raw_p99_ms"`
	SyncsPerTxn   float64 `json:"syncs_per_txn"`
}

func (a *app) benchDecide(c *cli.Context) (err error) {
	if err := noArgs(c); err != nil {
		return err
	}
	if slices.Min(c.IntSlice("callers")) < 1 || c.Duration("duration") < 100*time.Millisecond {
		return usagef("--callers must be 1 or more, --duration 100ms or more")
	}
	dir, err := os.MkdirTemp(c.String("dir"), "unisink-bench-")
	if err != nil {
		return fmt.Errorf("make a directory to measure in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rows, err := raftnode.Bench(c.Context, raftnode.BenchConfig{
		Dir: filepath.Clean(dir), Callers: c.IntSlice("callers"), Duration: c.Duration("duration"),
		Progress: func(s string) { fmt.Fprintln(a.err, s) },
	})
	if err != nil {
		return err
	}
	out := struct {
		Rows []decideRow `json:"rows"`
	}{Rows: make([]decideRow, len(rows))}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	for i, r := range rows {
		out.Rows[i] = decideRow{
			Callers: r.Callers, DecisionsPerS: r.DecisionsPerS, P50: ms(r.P50), P99: ms(r.P99),
			RawPerS: r.RawPerS, RawP50: ms(r.RawP50), RawP99: ms(r.RawP99), SyncsPerTxn: r.SyncsPerTxn,
		}
	}
	return a.show(c, out, func() [][]string {
		table := [][]string{{"CALLERS", "DECISIONS/S", "P50 MS", "P99 MS", "RAW/S", "RAW P50", "RAW P99", "RATIO", "SYNCS/TXN"}}
		for _, r := range out.Rows {
			table = append(table, []string{
				fmt.Sprint(r.Callers), fmt.Sprintf("%.0f", r.DecisionsPerS), fmt.Sprintf("%.2f", r.P50), fmt.Sprintf("%.2f", r.P99),
				fmt.Sprintf("%.0f", r.RawPerS), fmt.Sprintf("%.2f", r.RawP50), fmt.Sprintf("%.2f", r.RawP99),
				fmt.Sprintf("%.2f", r.DecisionsPerS/r.RawPerS), fmt.Sprintf("%.3f", r.SyncsPerTxn),
			})
		}
		return table
	})
}
