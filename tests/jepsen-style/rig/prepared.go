package rig

import (
	"context"
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

// InDoubt asks with `unisink txn list --in-doubt` what the group does not know the end of.
func InDoubt(ctx context.Context, bin string, coordinators []string) (left []string, err error) {
	args := []string{"txn", "list", "--in-doubt"}
	for _, c := range coordinators {
		args = append(args, "--coordinator", c)
	}
	out, err := exec.CommandContext(ctx, bin, args...).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &exit):
		return []string{"unisink txn list --in-doubt says " + strings.TrimSpace(string(out))}, nil
	}
	return nil, fmt.Errorf("run unisink txn list: %w", err)
}
