package app

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) audit() *cli.Command {
	return &cli.Command{
		Name: "audit", Usage: "who did what, when and why",
		Description: "The newest thousand acts of operators and changes of the group, oldest first. Names are those in\n" +
			"certificates; without certificates they are what callers said of themselves." +
			forExample("unisink audit --pipeline orders --since 2h"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "pipeline", Usage: "`NAME` of the only pipeline of interest"},
			&cli.StringFlag{Name: "actor", Usage: "`NAME` of the only person of interest"},
			&cli.StringFlag{Name: "since", Usage: "`TIME` from which on: 2h, 2026-11-30 or 2026-11-30T22:00:00Z"},
			&cli.UintFlag{Name: "limit", Usage: "`NUMBER` of acts at most, the newest"},
		},
		Action: a.auditList,
	}
}

// sinceTime reads how long ago something was, or when.
func sinceTime(text string, now time.Time) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d).UnixMilli(), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMilli(), nil
		}
	}
	return 0, usagef("--since %q is no time; say 2h, 2026-11-30 or 2026-11-30T22:00:00Z", text)
}

func (a *app) auditList(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	since, err := sinceTime(c.String("since"), time.Now())
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Audit().List(ctx, &unisinkv1.AuditListRequest{
			Pipeline: c.String("pipeline"), Actor: c.String("actor"), SinceMs: since, Limit: limitOf(c),
		})
		switch {
		case err != nil:
			return fmt.Errorf("list acts: %w", err)
		case r.GetFeatureLevel() < 2:
			return failf(CodeRefused, "the group is at feature level %d and keeps no trail; once every node is upgraded, `unisink cluster raise` lets it", r.GetFeatureLevel())
		case c.String("output") == outputJSONL:
			for _, x := range r.GetActs() {
				if err := a.printLine(x); err != nil {
					return err
				}
			}
			return nil
		}
		if n := r.GetForgotten(); n > 0 && forPeople(c) {
			fmt.Fprintf(a.err, "%d older acts are kept no more\n", n)
		}
		return a.show(c, r, func() [][]string { return actRows(r.GetActs()) })
	})
}

func actRows(acts []*unisinkv1.Act) [][]string {
	rows := [][]string{{"N", "TIME", "ACTOR", "ACT", "PIPELINE", "WHAT", "WHY"}}
	for _, x := range acts {
		rows = append(rows, []string{
			strconv.FormatUint(x.GetN(), 10), time.UnixMilli(x.GetAtMs()).UTC().Format(time.RFC3339), x.GetActor(), x.GetKind(), dash(x.GetPipeline()), x.GetWhat(), dash(x.GetWhy()),
		})
	}
	return rows
}

func (a *app) clusterRaise(c *cli.Context) error {
	level := uint64(0)
	if c.NArg() > 0 {
		arg, err := oneArg(c, "feature level")
		if err != nil {
			return err
		}
		if level, err = strconv.ParseUint(arg, 10, 32); err != nil || level == 0 {
			return usagef("%q is no feature level; it is a number from 1 on", arg)
		}
	}
	return a.changing(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Cluster().RaiseFeatureLevel(ctx, &unisinkv1.RaiseFeatureLevelRequest{Meta: cl.NewMeta(), Level: uint32(level)})
		if err != nil {
			return fmt.Errorf("raise the feature level: %w", err)
		}
		return a.show(c, r, func() [][]string { return [][]string{{"LEVEL"}, {fmt.Sprint(r.GetLevel())}} })
	})
}
