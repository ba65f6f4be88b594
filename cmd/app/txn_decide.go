package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// anID is how the id of a transaction looks.
const anID = "0193798e-7d1a-7c30-8a5e-3f6d6c7b1a2e"

func (a *app) txnBeginCommand() *cli.Command {
	return &cli.Command{
		Name: "begin", Usage: "announce a transaction before its branches are prepared", ArgsUsage: "[ID]",
		Description: "Undecided when the time is over, it is aborted. Without an ID a new one is drawn." +
			forExample("unisink txn begin --resource accounts --resource ledger --within 5m"),
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "resource", Usage: "`NAME` of a resource that will have a branch; several times"},
			&cli.DurationFlag{Name: "within", Value: time.Minute, Usage: "`TIME` from now within which it must be committed"},
		},
		Action: a.txnBegin,
	}
}

func (a *app) txnBegin(c *cli.Context) error {
	if c.NArg() > 1 {
		return usagef("one transaction is expected, not also %q", c.Args().Get(1))
	}
	if err := need(c, "resource"); err != nil {
		return err
	}
	if c.Duration("within") < time.Second {
		return usagef("--within %s is too short; a second is the least", c.Duration("within"))
	}
	id := c.Args().First()
	if id == "" {
		var err error
		if id, err = participant.NewTxnID(); err != nil {
			return err
		}
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		deadline, err := cl.Begin(ctx, id, c.StringSlice("resource"), c.Duration("within"))
		if err != nil {
			return unknownCode(err)
		}
		v := map[string]any{"txn": id, "deadline_unix_ms": deadline.UnixMilli()}
		return a.show(c, v, func() [][]string {
			return [][]string{{"TRANSACTION", "ABORTED UNLESS COMMITTED BY"}, {id, clock(deadline.UnixMilli())}}
		})
	})
}

func (a *app) txnCommitCommand() *cli.Command {
	return &cli.Command{
		Name: "commit", Usage: "decide that a transaction commits, with every branch that was prepared", ArgsUsage: "ID",
		Description: "The file is a JSON array of branches, {\"resource\": NAME, \"handle\": {...}} each, as `txn show -o json`\n" +
			"prints them. The answer is in the log; a repeat gives the same one. The branches are then committed by whoever\n" +
			"holds the resources." + forExample("unisink txn commit "+anID+" --branches handles.json"),
		Flags:  []cli.Flag{&cli.StringFlag{Name: "branches", Usage: "`FILE` with the handles; - is standard input"}},
		Action: a.txnCommit,
	}
}

func (a *app) txnCommit(c *cli.Context) error {
	id, err := oneArg(c, "transaction")
	if err != nil {
		return err
	}
	if err := need(c, "branches"); err != nil {
		return err
	}
	branches, err := readBranches(c, c.String("branches"))
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Transactions().Commit(ctx, &unisinkv1.CommitRequest{Meta: cl.NewMeta(), Txn: id, Branches: branches})
		if err != nil {
			return err
		}
		return a.showOutcome(c, id, r.GetOutcome())
	})
}

// readBranches reads handles from a file, in the form in which they are shown.
func readBranches(c *cli.Context, name string) ([]*unisinkv1.HandBranch, error) {
	in := c.App.Reader
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usagef("the branches cannot be read: %v", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, 4<<20))
	if err != nil {
		return nil, usagef("the branches cannot be read: %v", err)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		why := `[{"resource": NAME, "handle": {...}}, ...] is expected, as in .transaction.branches of ` + "`unisink txn show -o json`"
		if bad := (*json.SyntaxError)(nil); errors.As(err, &bad) {
			why = bad.Error()
		}
		return nil, usagef("%s is no JSON array of branches: %s", name, why)
	}
	out := make([]*unisinkv1.HandBranch, len(raw))
	for i, r := range raw {
		out[i] = &unisinkv1.HandBranch{}
		// What show prints beside resource and handle, the proof, is not asked for here.
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(r, out[i]); err != nil {
			return nil, usagef("branch %d in %s is not {\"resource\": NAME, \"handle\": {...}}", i+1, name)
		}
		if out[i].GetResource() == "" || out[i].GetHandle().GetKind() == "" {
			return nil, usagef("branch %d in %s lacks its resource or its handle", i+1, name)
		}
	}
	return out, nil
}

func (a *app) txnAbortCommand() *cli.Command {
	return &cli.Command{
		Name: "abort", Usage: "decide against an undecided transaction", ArgsUsage: "ID",
		Description: "One that is decided stays as it is. An epoch (orders/0@7.12) is aborted by closing its generation, and its members start again." +
			forExample("unisink txn abort "+anID+" --why 'its client is gone'"),
		Flags:  []cli.Flag{&cli.StringFlag{Name: "why", Usage: "`REASON`, which the log keeps; needed"}},
		Action: a.txnAbort,
	}
}

func (a *app) txnAbort(c *cli.Context) error {
	id, err := oneArg(c, "transaction")
	if err != nil {
		return err
	}
	if err := need(c, "why"); err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Transactions().Abort(ctx, &unisinkv1.AbortRequest{Meta: cl.NewMeta(), Txn: id, Why: c.String("why")})
		if err != nil {
			return err
		}
		return a.showOutcome(c, id, r.GetOutcome())
	})
}

func (a *app) txnOutcomeCommand() *cli.Command {
	return &cli.Command{
		Name: "outcome", Usage: "ask what became of a transaction; WARNING: asking about one that nobody knows aborts it", ArgsUsage: "ID",
		Description: "One that is in the ledger is answered as it stands, and an epoch (orders/0@7.12) too. One that is not may still be\n" +
			"on its way: its client may be about to commit it. The question then aborts it for good, so it is asked only with\n" +
			"--abort-unknown. `txn show` looks and never aborts.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "abort-unknown", Usage: "ask also if nobody knows the transaction, which aborts it"},
		},
		Action: a.txnOutcome,
	}
}

func (a *app) txnOutcome(c *cli.Context) error {
	id, err := oneArg(c, "transaction")
	if err != nil {
		return err
	}
	if scope, epoch, found := strings.Cut(id, "@"); found {
		return a.epochOutcome(c, id, scope, epoch)
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		if !c.Bool("abort-unknown") {
			r, err := cl.Transactions().GetTransaction(ctx, &unisinkv1.GetTransactionRequest{Txn: id})
			if codeOf(err) == CodeNotFound {
				return failf(CodeNotFound, "nobody has decided or announced transaction %s; its client may be about to commit it, and asking for the outcome aborts it for good: say --abort-unknown to do that", id)
			}
			if err != nil {
				return err
			}
			return a.showOutcome(c, id, r.GetTransaction().GetOutcome())
		}
		out, err := cl.Outcome(ctx, id)
		if err != nil {
			return unknownCode(err)
		}
		return a.showOutcome(c, id, wireOutcome(out))
	})
}

// epochOutcome asks about an epoch, which never aborts anything.
func (a *app) epochOutcome(c *cli.Context, id, scopeText, epochText string) error {
	scope, err := parseScope(scopeText)
	if err != nil {
		return err
	}
	epoch, err := parseEpoch(epochText)
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Pipelines().EpochOutcome(ctx, &unisinkv1.EpochOutcomeRequest{Scope: scope, Epoch: epoch})
		if err != nil {
			return err
		}
		return a.showOutcome(c, id, r.GetOutcome())
	})
}

func (a *app) showOutcome(c *cli.Context, id string, out unisinkv1.Outcome) error {
	word := enumWord(out.String(), "OUTCOME_")
	return a.show(c, map[string]string{"txn": id, "outcome": word}, func() [][]string {
		return [][]string{{"TRANSACTION", "OUTCOME"}, {id, word}}
	})
}

func wireOutcome(o participant.Outcome) unisinkv1.Outcome {
	switch o {
	case participant.OutcomeCommitted:
		return unisinkv1.Outcome_OUTCOME_COMMITTED
	case participant.OutcomeAborted:
		return unisinkv1.Outcome_OUTCOME_ABORTED
	case participant.OutcomePending:
		return unisinkv1.Outcome_OUTCOME_PENDING
	default:
		return unisinkv1.Outcome_OUTCOME_UNSPECIFIED
	}
}

// unknownCode gives a call that was not answered in time its exit code: where nobody was reached
// that one, else "unknown".
func unknownCode(err error) error {
	if code := codeOf(err); code == CodeFailed && errors.Is(err, participant.ErrOutcomeUnknown) {
		return withCode(CodeDeadline, fmt.Errorf("%w; ask again", err))
	}
	return err
}
