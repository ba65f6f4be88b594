package app

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) participant() *cli.Command {
	return group("participant", "the processes that prepare, commit and roll back",
		&cli.Command{
			Name: "list", Usage: "every member of every pipeline: its process, its lease, what it waits for",
			Flags:  []cli.Flag{&cli.StringFlag{Name: "pipeline", Usage: "only those of `PIPELINE`"}},
			Action: a.participantList,
		},
	)
}

// participantRow is one member, as JSON shows it.
type participantRow struct {
	Scope       string `json:"scope"`
	Member      string `json:"member"`
	Instance    string `json:"instance"`
	Attached    bool   `json:"attached"`
	Phase       string `json:"phase"`
	LeaseLeftMS int64  `json:"lease_left_ms"`
	Lag         int64  `json:"lag"`
	WaitingFor  string `json:"waiting_for"`
}

func (a *app) participantList(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Pipelines().ListPipelines(ctx, &unisinkv1.ListPipelinesRequest{})
		if err != nil {
			return err
		}
		only, found := c.String("pipeline"), false
		members := []participantRow{}
		for _, p := range r.GetPipelines() {
			if only != "" && p.GetPipeline().GetName() != only {
				continue
			}
			found = true
			for _, s := range p.GetScopes() {
				for _, m := range s.GetMembers() {
					members = append(members, participantRow{
						Scope: scopeText(s.GetScope()), Member: m.GetName(), Instance: m.GetInstance(), Attached: m.GetAttached(),
						Phase: m.GetPhase(), LeaseLeftMS: m.GetLeaseLeftMs(), Lag: m.GetLag(), WaitingFor: m.GetWaitingFor(),
					})
				}
			}
		}
		if only != "" && !found {
			return failf(CodeNotFound, "there is no pipeline %q; `unisink pipeline list` shows those that there are", only)
		}
		return a.show(c, members, func() [][]string {
			rows := [][]string{{"SCOPE", "MEMBER", "PROCESS", "PHASE", "LEASE LEFT", "LAG", "WAITS FOR"}}
			for _, m := range members {
				rows = append(rows, []string{
					m.Scope, m.Member, processText(m), dash(m.Phase), leaseText(m.Instance, m.LeaseLeftMS),
					numberOrDash(m.Lag), dash(m.WaitingFor),
				})
			}
			return rows
		})
	})
}

// leaseText is what is left of the lease of a process, if there is one.
func leaseText(instance string, leftMS int64) string {
	if instance == "" {
		return "-"
	}
	return ago(time.Duration(leftMS) * time.Millisecond)
}

// processText names the process that holds a member's name, or says that none does.
func processText(m participantRow) string {
	switch {
	case m.Instance == "":
		return "none"
	case !m.Attached:
		return shorten(m.Instance) + " (not attached)"
	default:
		return shorten(m.Instance)
	}
}
