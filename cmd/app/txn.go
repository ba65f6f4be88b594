package app

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) txn() *cli.Command {
	return group("txn", "transactions: run by hand, and epochs that are in doubt",
		&cli.Command{
			Name: "list", Usage: "transactions run by hand; with --in-doubt what is not finished, epochs included",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "in-doubt", Usage: "only what is undecided or not proven"},
				&cli.UintFlag{Name: "limit", Value: 100, Usage: "at most `N`"},
			},
			Action: a.txnList,
		},
		&cli.Command{Name: "show", Usage: "one transaction and its branches; changes nothing", ArgsUsage: "ID", Action: a.txnShow},
		a.txnBeginCommand(), a.txnCommitCommand(), a.txnAbortCommand(), a.txnOutcomeCommand(),
	)
}

func (a *app) txnList(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Transactions().ListTransactions(ctx, &unisinkv1.ListTransactionsRequest{InDoubt: c.Bool("in-doubt"), Limit: uint32(c.Uint("limit"))})
		if err != nil {
			return err
		}
		return a.show(c, r, func() [][]string {
			rows := [][]string{{"TRANSACTION", "OUTCOME", "BRANCHES", "DECIDED", "STATE"}}
			for _, t := range r.GetTransactions() {
				rows = append(rows, []string{t.GetTxn(), enumWord(t.GetOutcome().String(), "OUTCOME_"), fmt.Sprint(len(t.GetBranches())), clock(t.GetDecidedAtMs()), txnState(t)})
			}
			return rows
		})
	})
}

func txnState(t *unisinkv1.Transaction) string {
	switch {
	case t.GetHeuristic() != "":
		return "heuristic: " + t.GetHeuristic()
	case t.GetOutcome() == unisinkv1.Outcome_OUTCOME_PENDING:
		return "undecided until " + clock(t.GetDeadlineUnixMs())
	case t.GetResolved():
		return "resolved"
	default:
		return "unfinished"
	}
}

func (a *app) txnShow(c *cli.Context) error {
	id, err := oneArg(c, "transaction")
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Transactions().GetTransaction(ctx, &unisinkv1.GetTransactionRequest{Txn: id})
		if err != nil {
			return err
		}
		t := r.GetTransaction()
		return a.show(c, r, func() [][]string {
			rows := [][]string{{"WHAT", "WHO", "STATE"}, {"transaction " + t.GetTxn(), "", enumWord(t.GetOutcome().String(), "OUTCOME_") + ", " + txnState(t)}}
			if t.GetScope() == nil {
				rows = append(rows, []string{"begun", "", clock(t.GetBegunAtMs())}, []string{"decided", "", clock(t.GetDecidedAtMs())})
			}
			for _, b := range t.GetBranches() {
				who := strings.TrimPrefix(b.GetMember()+"/"+b.GetResource(), "/")
				rows = append(rows, []string{"branch: " + branchText(t, b), who, proofText(b.GetProof())})
			}
			return rows
		})
	})
}

// branchText says what a branch is; one that was announced and not committed has no handle.
func branchText(t *unisinkv1.Transaction, b *unisinkv1.TransactionBranch) string {
	switch {
	case b.GetHandle().GetName() != "":
		return b.GetHandle().GetText()
	case t.GetOutcome() == unisinkv1.Outcome_OUTCOME_PENDING:
		return "announced"
	default:
		return "announced, not committed"
	}
}

func parseScope(text string) (*unisinkv1.Scope, error) {
	name, shard, found := strings.Cut(text, "/")
	if !found {
		return &unisinkv1.Scope{Pipeline: name}, nil
	}
	n, err := strconv.ParseUint(shard, 10, 32)
	if err != nil {
		return nil, usagef("%q is no scope: the shard after / is a number", text)
	}
	return &unisinkv1.Scope{Pipeline: name, Shard: uint32(n)}, nil
}

func parseEpoch(text string) (*unisinkv1.Epoch, error) {
	g, n, ok := strings.Cut(text, ".")
	gen, err1 := strconv.ParseUint(g, 10, 64)
	num, err2 := strconv.ParseUint(n, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return nil, usagef("%q is no epoch; one looks like 7.12 (generation.number)", text)
	}
	return &unisinkv1.Epoch{Generation: gen, N: num}, nil
}
