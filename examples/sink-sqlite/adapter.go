package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// SQLite prepares no transactions. So a prepared branch is rows that are staged beside the table, and its
// commit moves them and sets the branch's state, the marker, in one transaction of the database.
const schema = `
CREATE TABLE IF NOT EXISTS unisink_id (id TEXT);
INSERT INTO unisink_id SELECT '%[2]s' WHERE NOT EXISTS (SELECT * FROM unisink_id);
CREATE TABLE IF NOT EXISTS unisink_fences (holder TEXT PRIMARY KEY, generation INTEGER);
CREATE TABLE IF NOT EXISTS unisink_branches (handle TEXT PRIMARY KEY, state INTEGER, since INTEGER);
CREATE TABLE IF NOT EXISTS unisink_staged (handle TEXT, n INTEGER, key TEXT, value TEXT, PRIMARY KEY (handle, n));
CREATE TABLE IF NOT EXISTS "%[1]s" (key TEXT, value TEXT);`

// Sink is one table of one database, for any number of processes.
type Sink struct {
	path, table string
	db          *sql.DB
	mu          sync.Mutex // guards identity
	identity    string
}

// NewSink touches nothing yet. Transactions lock the database at their begin and are synced at their end.
func NewSink(path, table string) (*Sink, error) {
	if path == "" || table == "" || strings.ContainsAny(table, `"%`) {
		return nil, fmt.Errorf("%w: name the database's file and a table, not %q and %q", participant.ErrMisconfigured, path, table)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	return &Sink{path: path, table: table, db: db}, err
}

// Describe makes what is missing. The identity is the database's own, wherever its file is moved.
func (s *Sink) Describe(ctx context.Context) (participant.Description, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity == "" {
		_, err := s.db.ExecContext(ctx, fmt.Sprintf(schema, s.table, rand.Text()))
		if err == nil {
			err = s.db.QueryRowContext(ctx, "SELECT id || '/' || ? FROM unisink_id", s.table).Scan(&s.identity)
		}
		if err != nil {
			return participant.Description{}, fmt.Errorf("make the tables in %s: %w", s.path, err)
		}
	}
	return participant.Description{Kind: "sqlite", Identity: s.identity, Text: "table " + s.table + " in " + s.path, CanList: true}, nil
}

// tx runs f in a transaction, once the tables are there.
func (s *Sink) tx(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	if _, err := s.Describe(ctx); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err == nil {
		if err = f(tx); err == nil {
			err = tx.Commit()
		}
		_ = tx.Rollback() // does nothing after a commit
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w", what, s.path, err)
	}
	return nil
}

// Open raises the fence, at which every Prepare looks in the transaction that makes it durable.
func (s *Sink) Open(ctx context.Context, o participant.Opening) error {
	return s.tx(ctx, "open "+o.Scope, func(tx *sql.Tx) error {
		return raise(ctx, tx, o.Namespace, o.Scope, o.Member, o.Resource, o.Generation)
	})
}

// raise sets the fence of a holder to a generation, unless it is higher.
func raise(ctx context.Context, tx *sql.Tx, ns participant.Namespace, scope, member, resource string, mine uint64) (err error) {
	newest, holder := mine, fmt.Sprint(ns, "/", scope, "/", member, "/", resource)
	err = tx.QueryRowContext(ctx, `INSERT INTO unisink_fences VALUES (?, ?) ON CONFLICT DO UPDATE
		SET generation = max(generation, excluded.generation) RETURNING generation`, holder, mine).Scan(&newest)
	if newest > mine {
		err = fmt.Errorf("%w by generation %d", participant.ErrFenced, newest)
	}
	return err
}

// Begin starts a branch in memory. A repeat has a handle of its own.
func (s *Sink) Begin(_ context.Context, name participant.BranchName) (participant.Branch, error) {
	return &branch{sink: s, name: name, handle: name.String() + "#" + rand.Text()}, nil
}

// Commit moves the rows and sets the marker.
func (s *Sink) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	return s.proof(s.end(ctx, h, participant.StateCommitted))
}

// Rollback drops the rows. Its marker keeps a Prepare out that comes later.
func (s *Sink) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	return s.proof(s.end(ctx, h, participant.StateRolledBack))
}

func (s *Sink) proof(is participant.State, err error) (participant.Proof, error) {
	if is == participant.StateCommitted {
		return participant.Proof{Verdict: participant.Committed, Evidence: "marked as committed in " + s.path}, err
	}
	return participant.Proof{Verdict: participant.RolledBack, Evidence: "marked as rolled back in " + s.path}, err
}

// Inspect reads the marker.
func (s *Sink) Inspect(ctx context.Context, h participant.Handle) (participant.State, error) {
	return s.end(ctx, h, participant.Unknown)
}

// end ends a branch as wanted, unless it has ended: the first outcome stands. Unknown only looks. Markers are kept,
// so a branch without one was never prepared and cannot be committed.
func (s *Sink) end(ctx context.Context, h participant.Handle, want participant.State) (is participant.State, err error) {
	err = s.tx(ctx, "finish "+h.Name, func(tx *sql.Tx) error {
		if h.Kind != "sqlite" || h.Version != 1 || h.Identity != s.identity {
			return fmt.Errorf("%w: %s version %d of %q", participant.ErrUnknownHandle, h.Kind, h.Version, h.Identity)
		}
		err := tx.QueryRowContext(ctx, "SELECT coalesce(max(state), ?) FROM unisink_branches WHERE handle = ?", participant.Unknown, h.Name).Scan(&is)
		if err != nil || want == participant.Unknown || is == participant.StateCommitted || is == participant.StateRolledBack {
			return err
		}
		if want == participant.StateCommitted && is == participant.Undecided {
			_, err = tx.ExecContext(ctx, `INSERT INTO "`+s.table+`" SELECT key, value FROM unisink_staged WHERE handle = ? ORDER BY n`, h.Name)
		} else {
			want = participant.StateRolledBack
		}
		is = want
		_, err2 := tx.ExecContext(ctx, "DELETE FROM unisink_staged WHERE handle = ?", h.Name)
		_, err3 := tx.ExecContext(ctx, "INSERT OR REPLACE INTO unisink_branches VALUES (?, ?, ?)", h.Name, is, time.Now().UnixMilli())
		return errors.Join(err, err2, err3)
	})
	return is, err
}

// List names what is prepared. Names are read part by part: one may begin with another.
func (s *Sink) List(ctx context.Context, ns participant.Namespace) (out []participant.Listed, err error) {
	err = s.tx(ctx, "list", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT handle, since FROM unisink_branches WHERE state = ?", participant.Undecided)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var handle string
			var since int64
			if err := rows.Scan(&handle, &since); err != nil {
				return err
			}
			text, _, _ := strings.Cut(handle, "#")
			if name, err := participant.ParseBranchName(text); err == nil && name.Namespace == ns {
				out = append(out, participant.Listed{Handle: s.handle(name, handle), Name: name, Since: time.UnixMilli(since)})
			}
		}
		return rows.Err()
	})
	return out, err
}

func (s *Sink) handle(name participant.BranchName, handle string) participant.Handle {
	return participant.Handle{Kind: "sqlite", Version: 1, Identity: s.identity, Alias: name.Resource, Name: handle, Text: "rows for " + s.table + " in " + s.path}
}

// Close implements participant.Resource. What is prepared is in the database, the rest was in memory.
func (s *Sink) Close() error { return s.db.Close() }

// branch is rows in memory until they are staged.
type branch struct {
	sink   *Sink
	name   participant.BranchName
	handle string
	rows   [][2]string
	vote   participant.Vote
}

// Write implements processor.Writer. It keeps copies: the records are the caller's.
func (b *branch) Write(_ context.Context, records []stream.Record) error {
	for _, r := range records {
		b.rows = append(b.rows, [2]string{string(r.Key), string(r.Value)})
	}
	return nil
}

// Prepare stages the rows, unless the fence has been raised or a rollback has left its marker.
func (b *branch) Prepare(ctx context.Context) (participant.Vote, error) {
	if b.vote.Kind == participant.Yes {
		return b.vote, nil
	}
	if len(b.rows) == 0 {
		return participant.Vote{Kind: participant.ReadOnly}, nil
	}
	err := b.sink.tx(ctx, "prepare "+b.handle, func(tx *sql.Tx) error { return b.stage(ctx, tx) })
	switch {
	case errors.Is(err, participant.ErrFenced), errors.Is(err, participant.ErrLost):
		return participant.Vote{Kind: participant.No, Reason: err}, nil
	case err != nil:
		return participant.Vote{}, err // unknown: it is called again
	}
	b.vote = participant.Vote{Kind: participant.Yes, Handle: b.sink.handle(b.name, b.handle)}
	return b.vote, nil
}

// stage may be repeated: it finds its own work done.
func (b *branch) stage(ctx context.Context, tx *sql.Tx) error {
	if n := b.name; n.Txn == "" { // a transaction by hand has no generation
		if err := raise(ctx, tx, n.Namespace, n.Scope(), n.Member, n.Resource, n.Generation); err != nil {
			return err
		}
	}
	var is participant.State
	err := tx.QueryRowContext(ctx, "INSERT INTO unisink_branches VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET since = since RETURNING state",
		b.handle, participant.Undecided, time.Now().UnixMilli()).Scan(&is)
	if err == nil && is != participant.Undecided {
		return fmt.Errorf("%w: it was rolled back meanwhile", participant.ErrLost)
	}
	for i, row := range b.rows {
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO unisink_staged VALUES (?, ?, ?, ?)", b.handle, i, row[0], row[1])
		}
	}
	return err
}

// Discard implements participant.Branch.
func (b *branch) Discard(context.Context) error {
	if b.vote.Kind == participant.Yes {
		return fmt.Errorf("discard %s: %w", b.name, participant.ErrPrepared)
	}
	b.rows = nil
	return nil
}
