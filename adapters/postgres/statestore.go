package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

const stateSchema = `
-- Parts of keyed state, one row each. Name keeps those of one user apart from another's.
CREATE TABLE IF NOT EXISTS unisink.state (
    name       text NOT NULL,
    id         text NOT NULL,
    body       bytea NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, id)
);
ALTER TABLE unisink.state ALTER COLUMN body SET STORAGE EXTERNAL; -- it is compressed already
`

// StateStoreConfig says where a StateStore keeps its parts.
type StateStoreConfig struct {
	// DSN is the connection string: URL or key=value. It holds the secret and appears nowhere else.
	DSN string
	// Store names the set of parts, so that several can share the table unisink.state; default "default".
	Store string
	// Pooler: connections go through a pooler in transaction mode.
	Pooler bool
	// Logger; default discards.
	Logger *slog.Logger
}

// StateStore is a state.Store in the table unisink.state. A part is one row, written with synchronous commit: when Put
// returns it is as durable as the server makes any commit. All methods may be called from several goroutines.
type StateStore struct {
	pool  *pgxpool.Pool
	local string // settings of a transaction, through a pooler
	store string
	where string
}

// OpenStateStore connects and makes the table if it is not there and the role may; else the error says what to do.
// The caller closes the store.
func OpenStateStore(ctx context.Context, cfg StateStoreConfig) (*StateStore, error) {
	o := Options{DSN: cfg.DSN, Pooler: cfg.Pooler, Logger: cfg.Logger, Finishers: 1}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	pool, err := o.newPool(ctx)
	if err != nil {
		return nil, err
	}
	c := pool.Config().ConnConfig
	s := &StateStore{pool: pool, store: cfg.Store, where: fmt.Sprintf("%s@%s:%d", c.Database, c.Host, c.Port)}
	if s.store == "" {
		s.store = "default"
	}
	if cfg.Pooler {
		s.local = o.settings(true)
	}
	if err := s.open(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

func (s *StateStore) open(ctx context.Context) error {
	var there bool
	err := s.pool.QueryRow(ctx, "SELECT to_regclass('unisink.state') IS NOT NULL").Scan(&there)
	if err == nil && !there {
		_, err = s.pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS unisink;"+stateSchema, pgx.QueryExecModeSimpleProtocol)
		if isCode(err, codeNoPrivilege) {
			return fmt.Errorf("postgres state store: table unisink.state is not there, and this role may not make it; let somebody who may run what `unisink postgres init --print` prints: %w: %w",
				participant.ErrMisconfigured, err)
		}
	}
	if err != nil {
		return fmt.Errorf("postgres state store: %w", classed(err))
	}
	return nil
}

// Name is "postgres:" with the store's name, the database and the server.
func (s *StateStore) Name() string { return "postgres:" + s.store + "@" + s.where }

// Close ends the connections. What was put stays.
func (s *StateStore) Close() error {
	s.pool.Close()
	return nil
}

// change runs one statement in a transaction that is durable when it returns. It is tried once more on another
// connection if the first was dead: both statements bear repeats.
func (s *StateStore) change(ctx context.Context, sql string, args ...any) error {
	for again := false; ; again = true {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if s.local != "" {
				if _, err := tx.Exec(ctx, s.local); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, sql, args...)
			return err
		})
		if err == nil || again || ctx.Err() != nil || !dead(err) {
			return classed(err)
		}
		s.pool.Reset()
	}
}

// Put writes a part.
func (s *StateStore) Put(ctx context.Context, id string, body []byte) error {
	err := errors.Join(state.CheckID(id), ctx.Err())
	if err == nil {
		if body == nil {
			body = []byte{}
		}
		err = s.change(ctx, `INSERT INTO unisink.state (name, id, body) VALUES ($1, $2, $3)
			ON CONFLICT (name, id) DO UPDATE SET body = EXCLUDED.body, at = now()`, s.store, id, body)
	}
	if err != nil {
		return fmt.Errorf("put state part %s into %s: %w", id, s.Name(), err)
	}
	return nil
}

// Get reads a part.
func (s *StateStore) Get(ctx context.Context, id string) ([]byte, error) {
	var body []byte
	err := s.ask(ctx, func(q *pgxpool.Pool) error {
		return q.QueryRow(ctx, "SELECT body FROM unisink.state WHERE name = $1 AND id = $2", s.store, id).Scan(&body)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("state part %s in %s: %w", id, s.Name(), state.ErrNoPart)
	case err != nil:
		return nil, fmt.Errorf("get state part %s from %s: %w", id, s.Name(), err)
	}
	return body, nil
}

// Delete removes a part.
func (s *StateStore) Delete(ctx context.Context, id string) error {
	if err := s.change(ctx, "DELETE FROM unisink.state WHERE name = $1 AND id = $2", s.store, id); err != nil {
		return fmt.Errorf("delete state part %s from %s: %w", id, s.Name(), err)
	}
	return nil
}

// List returns the ids with a prefix, in the order of their bytes.
func (s *StateStore) List(ctx context.Context, prefix string) (ids []string, err error) {
	err = s.ask(ctx, func(q *pgxpool.Pool) error {
		rows, err := q.Query(ctx, `SELECT id FROM unisink.state WHERE name = $1 AND starts_with(id, $2) ORDER BY id COLLATE "C"`, s.store, prefix)
		if err != nil {
			return err
		}
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list state parts in %s: %w", s.Name(), err)
	}
	return ids, nil
}

// ask reads, once more on other connections if those that lay idle were dead.
func (s *StateStore) ask(ctx context.Context, read func(*pgxpool.Pool) error) error {
	err := read(s.pool)
	if err != nil && ctx.Err() == nil && dead(err) {
		s.pool.Reset()
		err = read(s.pool)
	}
	return classed(err)
}

// dead reports that a connection broke, rather than that a statement was refused.
func dead(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return isCode(err, "57P01", "57P02", "57P03") // the server is shut down, crashed or starting
	}
	return !errors.Is(err, pgx.ErrNoRows)
}
