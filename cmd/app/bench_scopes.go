package app

import (
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/bench/decisions"
	"github.com/unisink/unisink/cmd/bench/stats"
)

func (a *app) benchScopes() *cli.Command {
	return &cli.Command{
		Name: "scopes", Usage: "what many scopes cost the coordinators: at work, idle, and behind a long history",
		Description: "Members of many scopes, each with a few bytes in memory as its resource, in this process; the nodes are\n" +
			"processes. First a few scopes alone, then beside many idle ones, then all at work, then the same backwards,\n" +
			"so that the cost of a decision is compared within one run. Linux only: memory and CPU are read from /proc.",
		Flags: append(decisionsFlags(),
			&cli.IntFlag{Name: "nodes", Value: 3, Usage: "`N` coordinator nodes, 1 or 3"},
			&cli.IntFlag{Name: "scopes", Value: 1000, Usage: "`N` scopes with one member each"},
			&cli.IntFlag{Name: "rate", Value: 10, Usage: "`EPOCHS` per second that each scope wants"},
			&cli.DurationFlag{Name: "duration", Value: time.Minute, Usage: "`TIME` of the load; nodes look once in a minute or two whether a snapshot is due"},
			&cli.DurationFlag{Name: "step", Usage: "`TIME` of each smaller measurement; default a twelfth of --duration, 2s to 10s"},
		),
		Action: a.runBenchScopes,
	}
}

func (a *app) runBenchScopes(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	lab, err := a.decisionsLab(c)
	if err != nil {
		return err
	}
	cfg := decisions.ScopesConfig{Lab: lab, Scopes: c.Int("scopes"), Rate: c.Int("rate"), Duration: c.Duration("duration"), Step: c.Duration("step")}
	if c.Bool("quick") {
		cfg.Scopes, cfg.Duration, cfg.Step = min(cfg.Scopes, 50), min(cfg.Duration, 3*time.Second), time.Second
	}
	if err := cfg.Validate(); err != nil {
		return withCode(CodeUsage, err)
	}
	r, err := decisions.Scopes(c.Context, cfg)
	if err != nil && len(r.Idle) == 0 {
		return err
	}
	return errors.Join(err, a.show(c, r, scopesTables(r)...), judged(c, r.Errors, r.Budgets))
}

// scopesTables show the load, the nodes, the snapshots, idle members, and what a decision costs.
func scopesTables(r decisions.ScopesResult) []func() [][]string {
	f := func(v float64) string { return fmt.Sprintf("%.4g", v) }
	load := func() [][]string {
		l := r.Load
		return [][]string{
			{"DECISIONS/S", "WANTED", "P50 MS", "P99 MS", "MAX MS", "NODES CPU US", "LEADER", "MEMBERS", "PER ENTRY", "LEADER MIB/S", "NET B", "LONGEST GAP MS", "ATTACH S", "RESTARTS", "ERRORS", "BUDGETS"},
			{
				f(l.DecisionsPerS), fmt.Sprint(r.Scopes * r.Rate), f(l.P50), f(l.P99), f(l.Max), f(l.NodesCPU), f(l.LeaderCPU), f(l.MembersCPU), f(l.PerEntry), f(l.WrittenPerS),
				f(l.NetBytes), f(l.Gap), f(r.AttachS), fmt.Sprint(r.Restarts), fmt.Sprint(r.Errors), stats.Verdict(r.Budgets),
			},
		}
	}
	nodes := func() [][]string {
		table := [][]string{{"NODE", "STEADY MIB", "PEAK MIB", "OWN", "DIR FROM MIB", "TO", "MOST", "SNAPSHOTS"}}
		for _, n := range r.Disks {
			table = append(table, []string{n.Node, f(n.SteadyMiB), f(n.PeakMiB), f(n.OwnMiB), f(n.DirFromMiB), f(n.DirToMiB), f(n.DirMostMiB), fmt.Sprint(n.Snapshots)})
		}
		return table
	}
	snapshots := func() [][]string {
		table := [][]string{{"SNAPSHOT OF", "AT S", "MIB", "WRITTEN IN MS", "LONGEST GAP MS"}}
		for _, s := range r.Snaps {
			table = append(table, []string{s.Node, f(s.AtS), f(s.MiB), f(s.WriteMS), f(s.PauseMS)})
		}
		return table
	}
	idle := func() [][]string {
		table := [][]string{{"IDLE", "SCOPES", "LEADER CPU %", "NODES CPU %", "NET KIB/S", "LEADER WRITES KIB/S", "ENTRIES/S", "LEADER MIB"}}
		for _, i := range r.Idle {
			table = append(table, []string{i.What, fmt.Sprint(i.Scopes), f(i.LeaderCPU), f(i.CPU), f(i.NetPerS), f(i.WrittenPerS), f(i.EntriesPerS), f(i.LeaderMiB)})
		}
		return table
	}
	cost := func() [][]string {
		table := [][]string{{"A DECISION", "IDLE SCOPES", "DECISIONS BEFORE", "NODES CPU US", "TO FIRST", "P50 MS", "P99 MS"}}
		for _, k := range r.Cost {
			table = append(table, []string{k.What, fmt.Sprint(k.Idle), fmt.Sprint(k.History), f(k.CPU), f(k.ToFirst), f(k.P50), f(k.P99)})
		}
		return table
	}
	return []func() [][]string{load, nodes, snapshots, idle, cost}
}
