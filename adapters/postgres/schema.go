package postgres

// Schema is the SQL that makes what this adapter keeps in a database: schema unisink with the tables
// commits, fences, staged and staged_rows. It may be run again.
func Schema() string { return schema }

const schema = `CREATE SCHEMA IF NOT EXISTS unisink;

-- The marker of a branch, written by the branch's own transaction: its presence proves the commit.
-- Rows are removed after the retention of whoever opens the database.
CREATE TABLE IF NOT EXISTS unisink.commits (
    gid        text PRIMARY KEY,
    xid        text NOT NULL DEFAULT pg_current_xact_id()::text,
    at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS commits_at ON unisink.commits (at);

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
`
