package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/unisink/unisink/participant"
)

const usage = `usage: transfer [flags] COMMAND

  open ACCOUNT AMOUNT       a new account with money in it
  move AMOUNT FROM TO       from one account to another
  balance                   what is in all accounts
  sweep                     finish what killed processes have left

amounts look like 12.50
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// run is the program without the process around it.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("transfer", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	coordinators := flags.String("coordinators", env("UNISINK_COORDINATORS", "127.0.0.1:7400"), "client `addresses` of coordinator nodes")
	dir := flags.String("dir", "bank", "`directory` of the accounts")
	process := flags.String("process", "teller", "`name` of this process; two that run at once have two")
	dieWhen := flags.String("die-when", "", "the `moment` at which the process kills itself, as kill -9 would: prepared or decided")
	timeout := flags.Duration("timeout", 2*time.Minute, "longest `time` for all of it; its end means unknown, not failed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client, err := participant.NewClient(participant.ClientConfig{Coordinators: strings.Split(*coordinators, ","), Actor: *process})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is under way on it
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	b := &bank{client: client, dir: *dir, process: *process, dieWhen: *dieWhen}
	args = flags.Args()
	switch {
	case len(args) == 3 && args[0] == "open":
		return b.openAccount(ctx, out, args[1], args[2])
	case len(args) == 4 && args[0] == "move":
		return b.move(ctx, out, args[1], args[2], args[3])
	case len(args) == 1 && args[0] == "balance":
		return b.show(out)
	case len(args) == 1 && args[0] == "sweep":
		done, err := b.sweep(ctx)
		fmt.Fprintf(out, "committed %d, rolled back %d, undecided %d\n", done.Committed, done.RolledBack, done.Undecided)
		return err
	}
	flags.Usage()
	return errors.New("what is to be done? see above")
}

func (b *bank) openAccount(ctx context.Context, out io.Writer, name, amount string) error {
	cents, err := parse(amount)
	if err != nil {
		return err
	}
	txn, err := b.run(ctx, "opened", map[string]int64{name: cents})
	return told(out, txn, fmt.Sprintf("%s opened with %s", name, money(cents)), err)
}

func (b *bank) move(ctx context.Context, out io.Writer, amount, from, to string) error {
	cents, err := parse(amount)
	if err != nil {
		return err
	}
	if from == to {
		return fmt.Errorf("from %s to %s is no way to go", from, to)
	}
	// Nobody locks an account here, so two that move at once may overdraw it: atomic is not isolated.
	have, _, err := b.balance(from)
	if err == nil && have < cents {
		err = fmt.Errorf("%s has %s, not %s", from, money(have), money(cents))
	}
	if err != nil {
		return err
	}
	if _, _, err := b.balance(to); err != nil {
		return err
	}
	txn, err := b.run(ctx, from+" to "+to, map[string]int64{from: -cents, to: cents})
	return told(out, txn, fmt.Sprintf("%s moved from %s to %s", money(cents), from, to), err)
}

// told says what happened, or what is known of it.
func told(out io.Writer, txn, what string, err error) error {
	switch {
	case err == nil:
		fmt.Fprintf(out, "%s (%s)\n", what, txn)
	case errors.Is(err, participant.ErrOutcomeUnknown):
		return fmt.Errorf("whether %s is unknown: look with `unisink txn show %s`, and sweep: %w", what, txn, err)
	case errors.Is(err, participant.ErrUnfinished):
		return fmt.Errorf("%s is decided and not visible everywhere yet; sweep: %w", txn, err)
	}
	return err
}

func (b *bank) show(out io.Writer) error {
	names, err := b.accounts()
	if err != nil {
		return err
	}
	var total int64
	for _, name := range names {
		cents, entries, err := b.balance(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-12s %12s  %d entries\n", name, money(cents), entries)
		total += cents
	}
	fmt.Fprintf(out, "%-12s %12s\n", "total", money(total))
	return nil
}

var amountForm = regexp.MustCompile(`^([0-9]{1,12})(?:\.([0-9]{2}))?$`)

func parse(amount string) (cents int64, err error) {
	m := amountForm.FindStringSubmatch(amount)
	if m == nil {
		return 0, fmt.Errorf("%q is no amount; one looks like 12.50", amount)
	}
	if m[2] == "" {
		m[2] = "00"
	}
	if cents, err = strconv.ParseInt(m[1]+m[2], 10, 64); err != nil || cents == 0 {
		return 0, fmt.Errorf("%q is nothing to move", amount)
	}
	return cents, nil
}

func money(cents int64) string {
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	return fmt.Sprintf("%s%d.%02d", sign, cents/100, cents%100)
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
