package app

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) txn() *cli.Command {
	return group("txn", "transactions: run by hand, and epochs that are in doubt",
		&cli.Command{
			Name: "list", Usage: "transactions run by hand; with --in-doubt what is not finished, epochs included",
			Description: "What is undecided (nobody knows yet) and what is unfinished (decided, not proven everywhere) are shown apart.\n" +
				"What a dead process prepared and no vote told of is not known by name before somebody looks into the resource;\n" +
				"the resources where that may be are named below. A scope that is halted for another reason is shown by `unisink pipeline list`.\n" +
				"Exit code 11 if a resource broke its promise, or can no longer tell how a branch ended.",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "in-doubt", Usage: "only what is undecided or not proven"},
				&cli.UintFlag{Name: "limit", Value: 100, Usage: "at most `N`"},
			},
			Action: a.txnList,
		},
		&cli.Command{
			Name: "show", Usage: "one transaction and its branches, what happens next, and what a person may do; changes nothing", ArgsUsage: "ID",
			Description: "Exit code 11 if a resource broke its promise, or can no longer tell how a branch ended.",
			Action:      a.txnShow,
		},
		a.txnBeginCommand(), a.txnCommitCommand(), a.txnAbortCommand(), a.txnOutcomeCommand(), a.txnResolveCommand(),
	)
}

func (a *app) txnList(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Transactions().ListTransactions(ctx, &unisinkv1.ListTransactionsRequest{InDoubt: c.Bool("in-doubt"), Limit: limitOf(c)})
		if err != nil {
			return err
		}
		tables := []func() [][]string{func() [][]string { return txnRows(r.GetTransactions()) }}
		if c.Bool("in-doubt") {
			tables = doubtTables(r.GetTransactions())
		}
		if err := a.show(c, r, tables...); err != nil {
			return err
		}
		if len(tables) == 0 && forPeople(c) {
			fmt.Fprintln(a.out, "Nothing is in doubt.")
		}
		if c.Bool("in-doubt") && forPeople(c) {
			if err := a.tellDebts(ctx, cl); err != nil {
				return err
			}
		}
		return brokenPromises(r.GetTransactions())
	})
}

func txnRows(all []*unisinkv1.Transaction) [][]string {
	rows := [][]string{{"TRANSACTION", "OUTCOME", "BRANCHES", "DECIDED", "STATE"}}
	for _, t := range all {
		rows = append(rows, []string{t.GetTxn(), enumWord(t.GetOutcome().String(), "OUTCOME_"), fmt.Sprint(len(t.GetBranches())), clock(t.GetDecidedAtMs()), txnState(t)})
	}
	return rows
}

// doubtTables keep apart what nobody has decided, what somebody has to finish, and what only a person can end. There
// are none if nothing is in doubt.
func doubtTables(all []*unisinkv1.Transaction) (tables []func() [][]string) {
	undecided := [][]string{{"UNDECIDED", "AGE", "TIME LEFT", "BLOCKED BY", "NEXT"}}
	unfinished := [][]string{{"UNFINISHED", "AGE", "OUTCOME", "BRANCH", "NEXT"}}
	broken := [][]string{{"NEEDS A PERSON", "WHAT HAPPENED"}}
	for _, t := range all {
		age := ago(time.Duration(t.GetAgeMs()) * time.Millisecond)
		if t.GetOutcome() == unisinkv1.Outcome_OUTCOME_PENDING {
			left := ago(time.Duration(t.GetLeftMs()) * time.Millisecond)
			undecided = append(undecided, []string{t.GetTxn(), age, left, dash(cut(strings.Join(t.GetBlockedBy(), ", "), 60)), t.GetNext()})
			continue
		}
		if t.GetHeuristic() != "" {
			broken = append(broken, []string{t.GetTxn(), t.GetHeuristic()})
		}
		for _, b := range t.GetBranches() {
			if b.GetNext() != "" {
				unfinished = append(unfinished, []string{t.GetTxn(), age, enumWord(t.GetOutcome().String(), "OUTCOME_"), branchName(b), b.GetNext()})
			}
		}
	}
	for _, rows := range [][][]string{broken, undecided, unfinished} {
		if len(rows) > 1 {
			tables = append(tables, func() [][]string { return rows })
		}
	}
	return tables
}

// branchName is "member/resource", or the resource alone of a transaction by hand.
func branchName(b *unisinkv1.TransactionBranch) string {
	return strings.TrimPrefix(b.GetMember()+"/"+b.GetResource(), "/")
}

// brokenPromises ends a command that looked with the exit code that calls for a person.
func brokenPromises(all []*unisinkv1.Transaction) error {
	for _, t := range all {
		if t.GetHeuristic() != "" {
			return failf(CodeHuman, "transaction %s needs a person: %s; `unisink txn show %s` says what may be done", t.GetTxn(), t.GetHeuristic(), t.GetTxn())
		}
	}
	return nil
}

func txnState(t *unisinkv1.Transaction) string {
	switch {
	case len(undeterminable(t)) > 0:
		return "undeterminable: " + t.GetHeuristic()
	case t.GetHeuristic() != "":
		return "heuristic: " + t.GetHeuristic()
	case t.GetOutcome() == unisinkv1.Outcome_OUTCOME_PENDING && t.GetDeadlineUnixMs() != 0:
		return "undecided until " + clock(t.GetDeadlineUnixMs())
	case t.GetOutcome() == unisinkv1.Outcome_OUTCOME_PENDING:
		return "undecided"
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
		if err := a.show(c, r, func() [][]string { return showRows(t) }); err != nil {
			return err
		}
		for _, choice := range choices(t) {
			a.note(c, choice)
		}
		return brokenPromises([]*unisinkv1.Transaction{t})
	})
}

func showRows(t *unisinkv1.Transaction) [][]string {
	rows := [][]string{{"WHAT", "WHO", "STATE"}, {"transaction " + t.GetTxn(), "", enumWord(t.GetOutcome().String(), "OUTCOME_") + ", " + txnState(t)}}
	if t.GetScope() == nil {
		rows = append(rows, []string{"begun", "", clock(t.GetBegunAtMs())}, []string{"decided", "", clock(t.GetDecidedAtMs())})
	}
	if t.GetAgeMs() > 0 {
		rows = append(rows, []string{"in doubt for", "", ago(time.Duration(t.GetAgeMs()) * time.Millisecond)})
	}
	for _, who := range t.GetBlockedBy() {
		rows = append(rows, []string{"blocked by", "", who})
	}
	for _, b := range t.GetBranches() {
		rows = append(rows, []string{"branch: " + branchText(t, b), branchName(b), branchState(b)})
		if b.GetForced() != "" {
			rows = append(rows, []string{"", "", b.GetForced()})
		}
		if b.GetNext() != "" {
			rows = append(rows, []string{"", "", b.GetNext()})
		}
	}
	if t.GetNext() != "" {
		rows = append(rows, []string{"next", "", t.GetNext()})
	}
	return rows
}

// choices are what a person may do about a transaction that is in doubt: what is known and what is
// lost stands above them.
func choices(t *unisinkv1.Transaction) []string {
	scope := scopeText(t.GetScope())
	force := "  unisink txn resolve " + t.GetTxn() + " --force accept-loss --branch "
	switch doubtful := undeterminable(t); {
	case len(doubtful) > 0:
		return untold(t, scope, force, doubtful)
	case t.GetHeuristic() != "" && t.GetScope() != nil:
		return []string{
			"Scope " + scope + " was halted for it; others go on. What that branch should have made visible is not there. A person chooses:\n" +
				"  unisink pipeline resume " + scope + " --why …        go on from the restore point; the loss stays open, and readers' cuts end before it\n" +
				"  unisink pipeline accept-loss " + scope + " --why …   go on, and let the loss be known and accepted: cuts go past it\n" +
				force + "NAME --why …   the same for one branch alone; then resume\n" +
				"  unisink pipeline rewind " + scope + " --to EPOCH --why … --yes  go back to a kept restore point, and resume: everything after it is made again, in every sink",
		}
	case t.GetHeuristic() != "":
		return []string{"What that branch should have made visible is not there, or the reverse. Once it is mended or accepted:\n" + force + "NAME --why …"}
	case t.GetOutcome() == unisinkv1.Outcome_OUTCOME_PENDING:
		return []string{"It ends by itself, as said above. `unisink txn abort " + t.GetTxn() + " --why …` ends it now."}
	default:
		return nil
	}
}

// undeterminable are the branches that nobody can tell of.
func undeterminable(t *unisinkv1.Transaction) (names []string) {
	for _, b := range t.GetBranches() {
		if b.GetUndeterminable() != "" {
			names = append(names, branchName(b))
		}
	}
	return names
}

// untold are the choices where nobody can tell how a branch ended.
func untold(t *unisinkv1.Transaction, scope, force string, branches []string) []string {
	text := "Known: what was decided, and what the other branches show. Not known: whether what that branch should have made visible is there; it may be lost.\n" +
		"Look for it in the resource itself. "
	forced := make([]string, len(branches))
	for i, name := range branches {
		forced[i] = force + name + " --why …"
	}
	if t.GetScope() == nil {
		return []string{text + "Where what is missing is put back the branch is finished by itself. Else, whatever is there:\n" + strings.Join(forced, "\n")}
	}
	return []string{text + "Scope " + scope + " was halted for it; others go on. A person chooses:\n" +
		"  unisink pipeline resume " + scope + " --why …        look again: it goes on if what is missing was put back, and is halted again if not\n" +
		"  unisink pipeline accept-loss " + scope + " --why …   go on whatever is there: what is not is lost, and that is accepted; cuts go past it\n" +
		strings.Join(forced, "\n") + "   the same for that branch alone; then resume\n" +
		"  unisink pipeline rewind " + scope + " --to EPOCH --why … --yes  after that, go back to a kept restore point: everything after it is made again, in every sink"}
}

// branchState is what is known of a branch.
func branchState(b *unisinkv1.TransactionBranch) string {
	if why := b.GetUndeterminable(); why != "" {
		return "undeterminable: " + why
	}
	return proofText(b.GetProof())
}

// branchText says what a branch is; one that was announced and not committed has no handle.
func branchText(t *unisinkv1.Transaction, b *unisinkv1.TransactionBranch) string {
	switch {
	case b.GetHandle().GetName() != "":
		return handleText(b.GetHandle())
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
