package postgres_test

import (
	"context"
	"fmt"
	"log"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/participant"
)

// A transaction by hand writes with SQL of its own; the coordinator's client decides it and finishes it.
func Example() {
	accounts, err := postgres.New(postgres.Options{DSN: "postgres://app@db1/accounts"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = accounts.Close() }()
	transfer := func(ctx context.Context, client *participant.Client, ns participant.Namespace, txn string) error {
		b, err := accounts.Begin(ctx, participant.BranchName{Namespace: ns, Txn: txn, Resource: "accounts"})
		if err != nil {
			return err
		}
		n, err := b.(*postgres.Branch).Exec(ctx, "UPDATE account SET balance = balance - $1 WHERE id = $2 AND balance >= $1", 10, "alice")
		if err != nil || n == 0 {
			return fmt.Errorf("no money was taken: %w", err)
		}
		_, err = client.RunTxn(ctx, txn, []participant.TxnBranch{{Name: "accounts", Resource: accounts, Branch: b}})
		return err
	}
	_ = transfer // after client.Open(ctx, "bank-1", map[string]participant.Resource{"accounts": accounts})
}

// A finisher needs the connection string and nothing else: it never opens.
func ExampleDatabase_Commit() {
	d, err := postgres.New(postgres.Options{DSN: "postgres://resolver@db1/accounts"})
	if err != nil {
		log.Fatal(err)
	}
	finish := func(ctx context.Context, decided participant.Handle) error {
		proof, err := d.Commit(ctx, decided)
		switch {
		case err != nil:
			return err // unknown: ask again
		case proof.Verdict == participant.RolledBack:
			return fmt.Errorf("decided, and rolled back by somebody: %s", proof.Evidence)
		}
		return nil
	}
	_ = finish
}

func ExampleOptions_Validate() {
	err := postgres.Options{Mode: postgres.Staged}.Validate()
	fmt.Println(err)
	// Output: postgres: misconfigured: the connection string is not set
}
