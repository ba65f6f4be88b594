package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/participant"
)

// Schema is the SQL that makes what this adapter keeps in a database: schema unisink with the tables
// commits, fences, staged, staged_rows, dropped and state. It may be run again.
func Schema() string { return schema + stateSchema }

const schema = `CREATE SCHEMA IF NOT EXISTS unisink;

-- The marker of a branch, written by the branch's own transaction: its presence proves the commit.
-- Rows are removed after the retention of whoever opens the database.
CREATE TABLE IF NOT EXISTS unisink.commits (
    gid        text PRIMARY KEY,
    xid        text NOT NULL DEFAULT pg_current_xact_id()::text,
    at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS commits_at ON unisink.commits USING brin (at);

-- The newest generation of each member. id and turn are the two keys of the advisory lock that its
-- branches hold; turn counts how often the generation was raised, because a generation needs more
-- bits than a key has. Ids start high to stay clear of other users of two-key advisory locks.
CREATE TABLE IF NOT EXISTS unisink.fences (
    id         integer GENERATED ALWAYS AS IDENTITY (START WITH 1431194112) PRIMARY KEY,
    holder     text NOT NULL UNIQUE,
    generation bigint NOT NULL,
    turn       integer NOT NULL DEFAULT 1,
    raised_at  timestamptz NOT NULL DEFAULT now()
);

-- Staged mode: one row per branch that is prepared, and its rows in order.
CREATE TABLE IF NOT EXISTS unisink.staged (
    gid        text PRIMARY KEY,
    moves      jsonb NOT NULL,
    rows       bigint NOT NULL,
    at         timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS unisink.staged_rows (
    gid        text NOT NULL,
    ord        bigint NOT NULL,
    move       integer NOT NULL,
    op         text NOT NULL,
    row        jsonb NOT NULL,
    PRIMARY KEY (gid, ord)
);

-- Staged mode: a note for each branch that was rolled back; it proves that, as a marker proves a commit.
CREATE TABLE IF NOT EXISTS unisink.dropped (
    gid        text PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now()
);
`

// ownTables are what Schema makes.
var ownTables = []string{"commits", "fences", "staged", "staged_rows", "dropped"}

// schemaLock is the advisory lock under which the schema is made: IF NOT EXISTS alone fails when two
// do it at once.
const schemaLock = "7381240558172631881"

// furnish makes the schema where it is missing.
func (d *Database) furnish(ctx context.Context, id identity) error {
	return d.read(ctx, func(c *pgx.Conn) error {
		missing, err := d.missingTables(ctx, c)
		if err != nil || len(missing) == 0 {
			return err
		}
		_, err = c.Exec(ctx, "BEGIN; SELECT pg_advisory_xact_lock("+schemaLock+");"+schema+"COMMIT")
		if err == nil {
			return nil
		}
		if c.PgConn().TxStatus() != 'I' && !c.IsClosed() {
			if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
				return err
			}
		}
		if isCode(err, codeNoPrivilege) {
			return fmt.Errorf("database %s lacks %s, and this role may not make them; let an owner run what `unisink postgres init` prints: %w: %w",
				id.database, missing[0], participant.ErrMisconfigured, err)
		}
		return fmt.Errorf("make the schema unisink in database %s: %w", id.database, err)
	})
}

func (d *Database) missingTables(ctx context.Context, c *pgx.Conn) ([]string, error) {
	steps := make([]step, len(ownTables))
	for i, t := range ownTables {
		steps[i] = step{sql: "SELECT to_regclass($1) IS NULL", args: []string{"unisink." + t}}
	}
	got, err := d.pipeline(ctx, c, steps)
	if err != nil {
		return nil, fmt.Errorf("look for the schema unisink: %w", classed(err))
	}
	var missing []string
	for i, a := range got {
		if a.one() == "t" {
			missing = append(missing, "the table unisink."+ownTables[i])
		}
	}
	return missing, nil
}

// pruneAtOnce is how many markers one statement removes: a few seconds of locks and log at most.
const pruneAtOnce = 10000

// prune removes markers and notes that are older than the retention.
func (d *Database) prune(ctx context.Context) error {
	age := strconv.FormatInt(int64(d.o.Retention/time.Second), 10)
	for _, table := range []string{"unisink.commits", "unisink.dropped"} {
		for more := true; more; {
			err := d.read(ctx, func(c *pgx.Conn) error {
				got, err := d.pipeline(ctx, c, []step{{args: []string{age, strconv.Itoa(pruneAtOnce)}, sql: "DELETE FROM " + table +
					" WHERE gid IN (SELECT gid FROM " + table + " WHERE at < now() - make_interval(secs => $1) LIMIT $2)"}})
				if err == nil {
					more = got[0].tag == "DELETE "+strconv.Itoa(pruneAtOnce)
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("remove markers older than %s: %w", d.o.Retention, err)
			}
		}
	}
	return nil
}

// Grants is the SQL that lets a role use what Schema makes.
func Grants(role string) string {
	r := pgx.Identifier{role}.Sanitize()
	return "GRANT USAGE ON SCHEMA unisink TO " + r + ";\nGRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA unisink TO " + r + ";\n"
}
