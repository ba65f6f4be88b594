package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/jackc/pgx/v5"
)

// LeftPrepared asks a PostgreSQL server, in words of its own, what is prepared there by whomever, and what lies in the
// tables in which branches are staged.
func LeftPrepared(ctx context.Context, dsn string) (left []string, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("ask PostgreSQL what is left: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for _, q := range []string{
		"SELECT 'prepared in PostgreSQL since ' || prepared || ': ' || gid FROM pg_prepared_xacts",
		"SELECT 'staged in PostgreSQL since ' || at || ': ' || gid FROM unisink.staged",
		"SELECT count(*) || ' rows staged in PostgreSQL: ' || gid FROM unisink.staged_rows GROUP BY gid",
	} {
		rows, err := conn.Query(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("ask PostgreSQL what is left: %w", err)
		}
		some, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("ask PostgreSQL what is left: %w", err)
		}
		left = append(left, some...)
	}
	return left, nil
}

// InDoubt asks with `unisink txn list --in-doubt` what the group does not know the end of. The exit code alone does not
// tell: it is 0 as long as nobody has broken a promise.
func InDoubt(ctx context.Context, bin string, coordinators []string) (left []string, err error) {
	args := []string{"txn", "list", "--in-doubt", "-o", "json"}
	for _, c := range coordinators {
		args = append(args, "--coordinator", c)
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		left = append(left, "unisink txn list --in-doubt says "+strings.TrimSpace(said.String()))
	case err != nil:
		return nil, fmt.Errorf("run unisink txn list: %w", err)
	}
	var list struct {
		Transactions []struct{ Txn, Outcome, Next string }
	}
	if err := json.Unmarshal(out, &list); err != nil {
		if len(left) > 0 {
			return left, nil // it could not answer, and said why
		}
		return nil, fmt.Errorf("read what unisink txn list says: %w", err)
	}
	for _, t := range list.Transactions {
		left = append(left, fmt.Sprintf("in doubt: transaction %s is %s: %s", t.Txn, t.Outcome, t.Next))
	}
	return left, nil
}
