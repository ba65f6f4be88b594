package app

import (
	"context"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) txnResolveCommand() *cli.Command {
	return &cli.Command{
		Name: "resolve", Usage: "finish a decided transaction from here, or take a branch of it for resolved by force", ArgsUsage: "ID",
		Description: "With --resources its branches are committed, or rolled back, as was decided, in the resources that a resolver's file names.\n" +
			"With --force a branch counts as resolved although its resource does not show it; that is kept as evidence, with who and why,\n" +
			"and refused for a branch that went as decided. accept-loss: what was decided is not in the resource, and that is accepted.\n" +
			"write-off: the resource is gone for good." +
			forExample("unisink txn resolve orders/0@7.12 --resources reach.yaml",
				"unisink txn resolve orders/0@7.12 --force accept-loss --branch main/totals --why 'looked at the rows'"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "resources", Usage: "`FILE` of a resolver, with the resources and how they are reached"},
			&cli.StringFlag{Name: "force", Usage: "`ACTION`: accept-loss or write-off"},
			&cli.StringFlag{Name: "branch", Usage: "with --force: `MEMBER/RESOURCE`, or the resource alone of a transaction by hand"},
			&cli.StringFlag{Name: "why", Usage: "with --force: `REASON`, which the log keeps"},
		},
		Action: a.txnResolve,
	}
}

// txnResolve finishes, or forces.
func (a *app) txnResolve(c *cli.Context) error {
	id, err := oneArg(c, "transaction")
	if err != nil {
		return err
	}
	switch forced, file := c.IsSet("force"), c.IsSet("resources"); {
	case forced && file:
		return usagef("--force and --resources are two ways; say one")
	case forced:
		return a.txnForce(c, id)
	case file:
		return a.txnFinish(c, id)
	default:
		return usagef("say how: --resources FILE finishes it as was decided, --force ACTION takes a branch for resolved")
	}
}

func forceAction(text string) (unisinkv1.ForceAction, error) {
	switch text {
	case "accept-loss":
		return unisinkv1.ForceAction_FORCE_ACTION_ACCEPT_LOSS, nil
	case "write-off":
		return unisinkv1.ForceAction_FORCE_ACTION_WRITE_OFF, nil
	default:
		return 0, usagef("--force %q is not accept-loss or write-off", text)
	}
}

// branchRef names a branch of a transaction as people write it.
func branchRef(txn, branch string) (*unisinkv1.BranchRef, error) {
	scopeName, epochName, isEpoch := strings.Cut(txn, "@")
	if !isEpoch {
		return &unisinkv1.BranchRef{Txn: txn, Resource: branch}, nil
	}
	scope, err := parseScope(scopeName)
	if err != nil {
		return nil, err
	}
	epoch, err := parseEpoch(epochName)
	if err != nil {
		return nil, err
	}
	member, resource, ok := strings.Cut(branch, "/")
	if !ok {
		return nil, usagef("--branch %q is no branch of an epoch; one looks like sink/totals (member/resource)", branch)
	}
	return &unisinkv1.BranchRef{Scope: scope, Epoch: epoch, Member: member, Resource: resource}, nil
}

func (a *app) txnForce(c *cli.Context, id string) (err error) {
	for _, flag := range []string{"branch", "why"} {
		if err := need(c, flag); err != nil {
			return err
		}
	}
	req := &unisinkv1.ForceRequest{Why: c.String("why")}
	if req.Action, err = forceAction(c.String("force")); err != nil {
		return err
	}
	if req.Branch, err = branchRef(id, c.String("branch")); err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		req.Meta = cl.NewMeta()
		if _, err := cl.Resolution().Force(ctx, req); err != nil {
			return err
		}
		v := map[string]string{"txn": id, "branch": c.String("branch"), "forced": c.String("force"), "why": req.GetWhy()}
		return a.show(c, v, func() [][]string {
			return [][]string{{"TRANSACTION", "BRANCH", "FORCED", "WHY"}, {id, c.String("branch"), c.String("force"), req.GetWhy()}}
		})
	})
}

func (a *app) pipelineAcceptLoss(c *cli.Context) error {
	text, err := oneArg(c, "pipeline")
	if err != nil {
		return err
	}
	if err := need(c, "why"); err != nil {
		return err
	}
	scope, err := parseScope(text)
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		lost, err := lostBranches(ctx, cl, scope)
		if err != nil {
			return err
		}
		if len(lost) == 0 {
			return failf(CodeRefused, "scope %s has lost nothing that is not accepted already; `unisink pipeline resume %s --why …` ends a halt of another cause", scopeText(scope), scopeText(scope))
		}
		for _, ref := range lost {
			req := &unisinkv1.ForceRequest{Meta: cl.NewMeta(), Branch: ref, Action: unisinkv1.ForceAction_FORCE_ACTION_ACCEPT_LOSS, Why: c.String("why")}
			if _, err := cl.Resolution().Force(ctx, req); err != nil {
				return err
			}
		}
		if err := resumeHalted(ctx, cl, scope, c.String("why")); err != nil {
			return err
		}
		rows := [][]string{{"SCOPE", "EPOCH", "BRANCH", "ACCEPTED AS LOST"}}
		names := []string{}
		for _, ref := range lost {
			rows = append(rows, []string{scopeText(scope), epochText(ref.GetEpoch()), ref.GetMember() + "/" + ref.GetResource(), c.String("why")})
			names = append(names, epochText(ref.GetEpoch())+" "+ref.GetMember()+"/"+ref.GetResource())
		}
		return a.show(c, map[string]any{"scope": scopeText(scope), "accepted": names, "resumed": c.String("why")}, func() [][]string { return rows })
	})
}

// resumeHalted ends a scope's halt. One that somebody has resumed already is as it should be.
func resumeHalted(ctx context.Context, cl *participant.Client, scope *unisinkv1.Scope, why string) error {
	r, err := cl.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: scope.GetPipeline()})
	if err != nil {
		return err
	}
	for _, s := range r.GetScopes() {
		if s.GetScope().GetShard() != scope.GetShard() || s.GetHalted() == "" {
			continue
		}
		_, err = cl.Pipelines().Resume(ctx, &unisinkv1.ResumeRequest{Meta: cl.NewMeta(), Scope: scope, Why: why})
	}
	return err
}

// lostBranches are those of a scope that were decided, and are proven rolled back or cannot be told of, and that nobody
// has accepted as lost.
func lostBranches(ctx context.Context, cl *participant.Client, scope *unisinkv1.Scope) ([]*unisinkv1.BranchRef, error) {
	r, err := cl.Pipelines().ListEpochs(ctx, &unisinkv1.ListEpochsRequest{Scope: scope, Limit: 1000})
	if err != nil {
		return nil, err
	}
	var lost []*unisinkv1.BranchRef
	for _, e := range r.GetEpochs() {
		for _, b := range e.GetBranches() {
			if b.GetProof().GetVerdict() == unisinkv1.Verdict_VERDICT_ROLLED_BACK && b.GetForced() == "" {
				lost = append(lost, &unisinkv1.BranchRef{Scope: scope, Epoch: e.GetEpoch(), Member: b.GetMember(), Resource: b.GetResource()})
			}
		}
	}
	open, err := cl.Transactions().ListTransactions(ctx, &unisinkv1.ListTransactionsRequest{InDoubt: true, Limit: 1000})
	if err != nil {
		return nil, err
	}
	for _, t := range open.GetTransactions() {
		for _, b := range t.GetBranches() {
			if b.GetUndeterminable() != "" && scopeText(t.GetScope()) == scopeText(scope) {
				lost = append(lost, &unisinkv1.BranchRef{Scope: scope, Epoch: t.GetEpoch(), Member: b.GetMember(), Resource: b.GetResource()})
			}
		}
	}
	return lost, nil
}
