package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// finding is what the database shows of a branch.
type finding uint8

const (
	findingUnset finding = iota
	// isPrepared: in the list of what is prepared or staged.
	isPrepared
	// isCommitted: its marker is there.
	isCommitted
	// isGone: it is not prepared, left no marker, and its transaction is known not to have committed.
	isGone
	// isRunning: its transaction is in no list and still in progress: somebody is ending it.
	isRunning
	// isUnclear: its transaction committed, and its marker is not there. Somebody removed the marker,
	// or the server was set back to a backup and the id belongs to another transaction now.
	isUnclear
	// isUntold: nothing is known of it any more, or nothing ever was.
	isUntold
)

// look finds out how a branch stands. It changes nothing. The list is read first and the marker in a
// later transaction: a commit by another finisher takes a branch from the first to the second, so in
// this order it is seen in one of them at least (P16).
func (d *Database) look(ctx context.Context, id identity, b body) (f finding, evidence string, err error) {
	err = d.read(ctx, func(c *pgx.Conn) error {
		var inList, marked string
		list := func() (err error) { inList, err = d.inList(ctx, c, id, b); return err }
		marker := func() (err error) { marked, err = d.marker(ctx, c, b); return err }
		if mutant.On("postgres/marker-second") {
			list, marker = marker, list
		}
		if err := list(); err != nil {
			return err
		}
		d.reached("look: between list and marker")
		if err := marker(); err != nil {
			return err
		}
		switch {
		case marked != "":
			f, evidence = isCommitted, marked
		case inList != "":
			f, evidence = isPrepared, inList
		default:
			f, evidence, err = d.trace(ctx, c, b)
		}
		return err
	})
	if err != nil {
		return 0, "", fmt.Errorf("look for %s in database %s: %w", b.GID, id.database, err)
	}
	return f, evidence, nil
}

// inList reads whether the branch is prepared, on the server that handles speak of: what is not found
// proves something only if this was the place to look in.
func (d *Database) inList(ctx context.Context, c *pgx.Conn, id identity, b body) (string, error) {
	got, err := d.pipeline(ctx, c, []step{{sql: `SELECT s.system_identifier || '/' || d.oid, pg_is_in_recovery(),
		(SELECT 'prepared at ' || prepared FROM pg_prepared_xacts WHERE gid = $1 AND database = d.datname)
		FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()`, args: []string{b.GID}}})
	if err != nil {
		return "", err
	}
	row := got[0].rows[0]
	if row[0] != id.String() {
		return "", fmt.Errorf("the address leads to database %s now, before it was %s: %w", row[0], id, participant.ErrRetry)
	}
	if row[1] == "t" {
		return "", standby(id.where)
	}
	if row[2] != "" || b.Mode == Prepared.String() {
		return row[2], nil
	}
	return d.ask(ctx, c, "SELECT 'staged at ' || at FROM unisink.staged WHERE gid = $1", b.GID)
}

func (d *Database) marker(ctx context.Context, c *pgx.Conn, b body) (string, error) {
	return d.ask(ctx, c, "SELECT 'marker of ' || at || ' in unisink.commits' FROM unisink.commits WHERE gid = $1", b.GID)
}

// ask reads one value; "" where there is no row, or no table: a database without our tables has no
// marker in them either.
func (d *Database) ask(ctx context.Context, c *pgx.Conn, sql string, args ...string) (string, error) {
	got, err := d.pipeline(ctx, c, []step{{sql: sql, args: args}})
	if isCode(err, codeUndefinedTable, codeInvalidSchema) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return got[0].one(), nil
}

// trace asks what else may tell of a branch that is neither prepared nor marked. Absence alone proves
// nothing (O10): the marker may have been removed. DESIGN.md has the argument for each answer.
func (d *Database) trace(ctx context.Context, c *pgx.Conn, b body) (finding, string, error) {
	if mutant.On("postgres/absence-is-no-proof") {
		return isGone, "it is not prepared and has no marker", nil
	}
	if b.Mode == Staged.String() {
		dropped, err := d.ask(ctx, c, "SELECT 'dropped at ' || at FROM unisink.dropped WHERE gid = $1", b.GID)
		if err != nil || dropped == "" {
			return isUntold, "it is not staged, and neither its marker nor a note that it was dropped is there", err
		}
		return isGone, dropped, nil
	}
	if b.XID == "" {
		return isUntold, "no transaction of that name is prepared, and no marker is there", nil
	}
	status, err := d.ask(ctx, c, "SELECT pg_xact_status($1::xid8)", b.XID)
	if isCode(err, codeInvalidParameter) {
		return isGone, "transaction " + b.XID + " has not happened on this server, which was set back", nil
	}
	if err != nil {
		return 0, "", err
	}
	switch status {
	case "aborted":
		return isGone, "transaction " + b.XID + " was rolled back, says the server's commit log", nil
	case "committed":
		return isUnclear, "transaction " + b.XID + " is committed in the server's commit log, but its marker in unisink.commits is gone: " +
			"somebody removed it, or the server was set back to a backup and the id is another transaction's", nil
	case "in progress":
		return isRunning, "transaction " + b.XID + " is being ended", nil
	}
	return isUntold, "transaction " + b.XID + " is older than the server's commit log, it is not prepared, and no marker is there", nil
}
