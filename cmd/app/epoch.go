package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) epoch() *cli.Command {
	return group("epoch", "list and show the numbered checkpoints of a scope",
		&cli.Command{
			Name: "list", Usage: "decided epochs, newest first", ArgsUsage: "PIPELINE[/SHARD]",
			Flags: []cli.Flag{
				&cli.UintFlag{Name: "limit", Value: 20, Usage: "at most `N`"},
				&cli.BoolFlag{Name: "in-doubt", Usage: "only those that are not proven yet"},
			},
			Action: a.epochList,
		},
		&cli.Command{
			Name: "show", Usage: "one epoch: branches, proofs, positions", ArgsUsage: "PIPELINE[/SHARD] GENERATION.N",
			Description: "Epochs that are resolved are shown for as long as they are restore points or the nodes' --keep says (1h)." + forExample("unisink epoch show orders 7.12"),
			Action:      a.epochShow,
		},
		&cli.Command{
			Name: "cut", Usage: "the proven cut: how far every sink may be read so that all show the same epochs", ArgsUsage: "PIPELINE",
			Description: "The newest epoch of each scope before which, itself included, every branch is proven, with each sink's offsets, manifest or marker for it.",
			Action:      a.epochCut,
		},
	)
}

func (a *app) epochList(c *cli.Context) error {
	text, err := oneArg(c, "pipeline")
	if err != nil {
		return err
	}
	scope, err := parseScope(text)
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Pipelines().ListEpochs(ctx, &unisinkv1.ListEpochsRequest{Scope: scope, Limit: limitOf(c), InDoubt: c.Bool("in-doubt")})
		if err != nil {
			return err
		}
		return a.show(c, r, func() [][]string {
			rows := [][]string{{"EPOCH", "DECIDED", "PROVEN", "BRANCHES", ""}}
			for _, e := range r.GetEpochs() {
				rows = append(rows, []string{epochText(e.GetEpoch()), clock(e.GetDecidedAtMs()), provenText(e), fmt.Sprint(len(e.GetBranches())), epochNotes(e)})
			}
			return rows
		})
	})
}

// epochNotes says what is special about an epoch.
func epochNotes(e *unisinkv1.EpochRecord) string {
	var notes []string
	switch {
	case e.GetRestorePoint():
		notes = append(notes, "restore point")
	case e.GetKept():
		notes = append(notes, "kept restore point")
	}
	if e.GetPinned() {
		notes = append(notes, "pinned")
	}
	if e.GetFinal() {
		notes = append(notes, "final")
	}
	return strings.Join(notes, ", ")
}

func provenText(e *unisinkv1.EpochRecord) string {
	if e.GetProvenAtMs() == 0 {
		return "unfinished"
	}
	return fmt.Sprintf("after %dms", max(0, e.GetProvenAtMs()-e.GetDecidedAtMs()))
}

// clock is a time of this machine's day, with the day where that is not plain.
func clock(ms int64) string {
	if ms == 0 {
		return "-"
	}
	at := time.UnixMilli(ms)
	if time.Since(at).Abs() > 12*time.Hour {
		return at.Format(time.DateTime)
	}
	return at.Format("15:04:05.000")
}

func (a *app) epochShow(c *cli.Context) error {
	if c.NArg() != 2 {
		return usagef("name the pipeline and the epoch: `unisink epoch show orders 7.12`")
	}
	scope, err := parseScope(c.Args().Get(0))
	if err != nil {
		return err
	}
	epoch, err := parseEpoch(c.Args().Get(1))
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Pipelines().GetEpoch(ctx, &unisinkv1.GetEpochRequest{Scope: scope, Epoch: epoch})
		if err != nil {
			return err
		}
		e := r.GetEpoch()
		return a.show(c, r, func() [][]string {
			rows := [][]string{{"WHAT", "WHO", "STATE"}}
			rows = append(rows, []string{"epoch " + epochText(e.GetEpoch()), scopeText(e.GetScope()), enumWord(e.GetOutcome().String(), "OUTCOME_") + " at " + clock(e.GetDecidedAtMs())})
			for _, b := range e.GetBranches() {
				rows = append(rows, []string{"branch: " + handleText(b.GetHandle()), b.GetMember() + "/" + b.GetResource(), proofText(b.GetProof())})
			}
			for _, p := range e.GetPositions() {
				rows = append(rows, []string{"position " + p.GetSplit(), p.GetResource(), fmt.Sprint(p.GetOffset())})
			}
			for _, p := range e.GetParts() {
				rows = append(rows, []string{"state " + p.GetId(), p.GetOperator(), fmt.Sprintf("key groups %d-%d, %d bytes", p.GetKeyGroupFirst(), p.GetKeyGroupLast(), len(p.GetBody()))})
			}
			return rows
		})
	})
}

func (a *app) epochCut(c *cli.Context) error {
	name, err := oneArg(c, "pipeline")
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Pipelines().ProvenCut(ctx, &unisinkv1.ProvenCutRequest{Pipeline: name})
		if err != nil {
			return err
		}
		return a.show(c, r, func() [][]string {
			rows := [][]string{{"SCOPE", "EPOCH", "WHO", "READ UP TO", "PROOF"}}
			for _, s := range r.GetScopes() {
				scope := scopeText(s.GetScope())
				if s.GetEpoch() == nil {
					rows = append(rows, []string{scope, "-", "", "nothing is proven yet", ""})
					continue
				}
				for _, b := range s.GetBranches() {
					rows = append(rows, []string{scope, epochText(s.GetEpoch()), b.GetMember() + "/" + b.GetResource(), handleText(b.GetHandle()), proofText(b.GetProof())})
				}
				for _, p := range s.GetPositions() {
					rows = append(rows, []string{scope, epochText(s.GetEpoch()), p.GetResource(), fmt.Sprintf("position %s: %d", p.GetSplit(), p.GetOffset()), ""})
				}
			}
			return rows
		})
	})
}

func proofText(p *unisinkv1.Proof) string {
	if p == nil {
		return "not proven"
	}
	how := "read"
	if p.GetAsserted() {
		how = "asserted"
	}
	return fmt.Sprintf("%s (%s: %s)", enumWord(p.GetVerdict().String(), "VERDICT_"), how, p.GetEvidence())
}
