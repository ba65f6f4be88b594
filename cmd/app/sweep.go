package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/resolver"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) resourceSweepCommand() *cli.Command {
	return &cli.Command{
		Name: "sweep", Usage: "list what is prepared in the resources of a resolver's file, and roll back what is dead", ArgsUsage: "FILE",
		Description: "What is to become of each thing is said by the ledger: what no decision lists, of a generation that is closed, is dead. What is\n" +
			"decided is finished too, and what was announced by hand, is aborted, and was never told of as prepared: it is looked for by the\n" +
			"name that the file gives its resource. What is current, newer, or another group's is left alone. A running resolver does all\n" +
			"this by itself.",
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "list and judge, and change nothing"}},
		Action: a.resourceSweep,
	}
}

// withResolver makes a resolver of a file for one look, and closes what it reached.
func (a *app) withResolver(c *cli.Context, file string, f func(ctx context.Context, x *resolver.Resolver) error) error {
	r, err := a.readReach(c.Context, file, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	err = a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		x, err := resolver.New(resolver.Config{Client: cl, Resources: r.resources, Name: "cli", Version: version})
		if err != nil {
			return err
		}
		return f(ctx, x)
	})
	return errors.Join(err, r.close())
}

// sweptRow is one thing found prepared, or announced and not found, as JSON shows it.
type sweptRow struct {
	Resource string `json:"resource"`
	Name     string `json:"name"`
	Text     string `json:"text"`
	AgeMS    int64  `json:"age_ms"` // -1: not known
	Sentence string `json:"sentence"`
	Why      string `json:"why"`
	Done     string `json:"done"` // empty: nothing was
}

func (a *app) resourceSweep(c *cli.Context) error {
	file, err := oneArg(c, "file that lists the resources")
	if err != nil {
		return err
	}
	dry := c.Bool("dry-run")
	return a.withResolver(c, file, func(ctx context.Context, x *resolver.Resolver) error {
		all, err := a.look(ctx, x, dry)
		finished := map[string]string{}
		var announced []resolver.Finished
		if !dry {
			done, finishErr := x.Finish(ctx, "")
			err = errors.Join(err, unheard(err, finishErr))
			for _, f := range done {
				if f.Handle.GetName() != "" {
					finished[f.Handle.GetName()] = doneText(f)
				} else if f.Resource != "" { // else it is in none of these
					announced = append(announced, f)
				}
			}
		}
		rows, failed, doubtful := []sweptRow{}, 0, 0
		for _, p := range all {
			row := sweptRow{Resource: p.Resource, Name: p.Name.String(), Text: p.Handle.Text, AgeMS: -1, Sentence: enumWord(p.Sentence.String(), "SENTENCE_"), Why: p.Why}
			if !p.Since.IsZero() {
				row.AgeMS = time.Since(p.Since).Milliseconds()
			}
			switch {
			case p.Err != nil:
				row.Done = p.Err.Error()
				failed++
			case p.Ended:
				row.Done = "rolled back"
			case p.Sentence == unisinkv1.Sentence_SENTENCE_COMMIT:
				row.Done = finished[p.Handle.Name]
			case p.Sentence == unisinkv1.Sentence_SENTENCE_IN_DOUBT:
				doubtful++
			}
			rows = append(rows, row)
		}
		left := 0
		for _, f := range announced {
			rows = append(rows, announcedRow(f))
			if f.Err != nil {
				left++
			}
		}
		if len(rows) == 0 && err == nil && forPeople(c) {
			fmt.Fprintln(a.out, "Nothing is prepared.")
			return nil
		}
		return errors.Join(a.show(c, rows, func() [][]string { return sweptRows(rows) }), sweepError(err, failed, doubtful, left))
	})
}

// announcedRow is a branch of an aborted transaction that was announced, and of which nothing was found at first.
func announcedRow(f resolver.Finished) sweptRow {
	return sweptRow{
		Resource: f.Resource, Name: f.Branch.GetTxn() + "/" + f.Branch.GetResource(), AgeMS: -1,
		Sentence: enumWord(unisinkv1.Sentence_SENTENCE_ROLL_BACK.String(), "SENTENCE_"),
		Why:      "it was announced, its transaction is aborted, and nobody has told that it was prepared", Done: doneText(f),
	}
}

// look lists and, unless it is dry, ends what is dead. It leaves half of the time to what is finished after it.
func (a *app) look(ctx context.Context, x *resolver.Resolver, dry bool) ([]resolver.Prepared, error) {
	if end, ok := ctx.Deadline(); ok && !dry {
		limited, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		ctx = limited
	}
	return x.Look(ctx, !dry)
}

// unheard are the errors of the finishing without those of resources that had not answered the look either.
func unheard(look, finish error) error {
	silent := map[string]bool{}
	for _, err := range joined(look) {
		if n := (*resolver.NoAnswer)(nil); errors.As(err, &n) {
			silent[n.Resource] = true
		}
	}
	var out error
	for _, err := range joined(finish) {
		if n := (*resolver.NoAnswer)(nil); !errors.As(err, &n) || !silent[n.Resource] {
			out = errors.Join(out, err)
		}
	}
	return out
}

// joined are the parts of an error that errors.Join made.
func joined(err error) []error {
	if parts, ok := err.(interface{ Unwrap() []error }); ok {
		return parts.Unwrap()
	}
	return []error{err}
}

func sweptRows(rows []sweptRow) [][]string {
	out := [][]string{{"PREPARED", "RESOURCE", "AGE", "SENTENCE", "WHY", "DONE"}}
	for _, r := range rows {
		out = append(out, []string{r.Name, r.Resource, ago(time.Duration(r.AgeMS) * time.Millisecond), r.Sentence, r.Why, dash(r.Done)})
	}
	return out
}

// sweepError says how a sweep ended that did not end well.
func sweepError(err error, failed, doubtful, left int) error {
	switch {
	case err != nil:
		return err
	case doubtful > 0:
		return failf(CodeHuman, "%s in doubt: a person must look at what was found", plural.Of(doubtful, "thing"))
	case failed > 0:
		return failf(CodeUnhealthy, "dead and not to be rolled back: %s", plural.Of(failed, "thing"))
	case left > 0:
		return failf(CodeUnhealthy, "announced, aborted and not proven: %s", plural.Of(left, "branch"))
	default:
		return nil
	}
}

func doneText(f resolver.Finished) string {
	switch {
	case f.Err != nil:
		return f.Err.Error()
	case f.Proof.Verdict == participant.Committed:
		return "committed: " + f.Proof.Evidence
	default:
		return "rolled back: " + f.Proof.Evidence
	}
}

// txnFinish finishes one transaction's branches, as was decided.
func (a *app) txnFinish(c *cli.Context, id string) error {
	return a.withResolver(c, c.String("resources"), func(ctx context.Context, x *resolver.Resolver) error {
		done, err := x.Finish(ctx, id)
		if err == nil && len(done) == 0 {
			return failf(CodeNotFound, "there is nothing to finish of transaction %s: it is not decided, or every branch is proven; `unisink txn show %s` tells", id, id)
		}
		rows, failed := [][]string{{"BRANCH", "HANDLE", "DECIDED", "DONE"}}, 0
		out := []map[string]string{}
		for _, f := range done {
			name := branchName(&unisinkv1.TransactionBranch{Member: f.Branch.GetMember(), Resource: f.Branch.GetResource()})
			decided := enumWord(f.Outcome.String(), "OUTCOME_")
			rows = append(rows, []string{name, handleText(f.Handle), decided, doneText(f)})
			out = append(out, map[string]string{"branch": name, "handle": f.Handle.GetName(), "decided": decided, "done": doneText(f)})
			if f.Err != nil {
				failed++
			}
		}
		if err := errors.Join(a.show(c, out, func() [][]string { return rows }), err); err != nil {
			return err
		}
		if failed > 0 {
			return withCode(CodeUnhealthy, fmt.Errorf("not finished: %d of %s", failed, plural.Of(len(done), "branch")))
		}
		return nil
	})
}
