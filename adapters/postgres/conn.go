package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// manyConns is the pool's own bound. What is really used is bounded by the branches that are open
// and by Options.Finishers; a pool that is smaller would let them wait for each other.
const manyConns = 1 << 12

// newPool makes the pool; it connects to nothing.
func (o Options) newPool(ctx context.Context) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("read the connection string: %w: %w", participant.ErrMisconfigured, err)
	}
	c.MinConns, c.MinIdleConns, c.MaxConns = 0, 0, manyConns
	if c.ConnConfig.RuntimeParams["application_name"] == "" && !o.Pooler {
		c.ConnConfig.RuntimeParams["application_name"] = "unisink"
	}
	if o.dial != nil {
		c.ConnConfig.DialFunc = o.dial
	}
	if o.Pooler {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		c.ConnConfig.StatementCacheCapacity, c.ConnConfig.DescriptionCacheCapacity = 0, 0
	} else {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, o.settings(false))
			return err
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("make the connection pool: %w", err)
	}
	return pool, nil
}

// settings is the statement that sets what every transaction of ours needs, in the session or
// (through a pooler) in the transaction alone. Roles and databases may have asynchronous commit by
// default; what is stricter than "on" stays.
func (o Options) settings(local bool) string {
	sync := "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END"
	if mutant.On("postgres/synchronous-commit") {
		sync = "current_setting('synchronous_commit')"
	}
	return fmt.Sprintf("SELECT set_config('synchronous_commit', %s, %t), set_config('lock_timeout', '%dms', %t)",
		sync, local, max(o.LockTimeout.Milliseconds(), 1), local)
}

// reset undoes what a user's own statements may have left in a session: SET without LOCAL survives
// PREPARE TRANSACTION, and so do session locks and open cursors.
func (o Options) reset() []step {
	return []step{
		{sql: "RESET SESSION AUTHORIZATION"},
		{sql: "RESET ALL"},
		{sql: "UNLISTEN *"},
		{sql: "CLOSE ALL"},
		{sql: "SELECT pg_advisory_unlock_all()"},
		{sql: o.settings(false)},
	}
}

// begin is the head of every transaction of ours. READ COMMITTED is said, whatever the role's
// default: under a snapshot taken earlier the fence would be read as it was before it was raised (P12).
func (d *Database) begin() []step {
	begin := "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	if mutant.On("postgres/read-committed") {
		begin = "BEGIN"
	}
	steps := []step{{name: "unisink_begin", sql: begin}}
	if d.o.Pooler {
		steps = append(steps, step{sql: d.o.settings(true)})
	}
	return steps
}

// conns is the pool, made with the first call.
func (d *Database) conns(ctx context.Context) (*pgxpool.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("postgres: the database is closed: %w", participant.ErrBug)
	}
	if d.pool == nil {
		pool, err := d.o.newPool(ctx)
		if err != nil {
			return nil, err
		}
		d.pool, d.cached = pool, pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
	}
	return d.pool, nil
}

// acquire takes a connection for a branch.
func (d *Database) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	pool, err := d.conns(ctx)
	if err != nil {
		return nil, err
	}
	c, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", classed(err))
	}
	return c, nil
}

// with lends a connection to f, for what is not a branch: finishing, listing, looking up. At most
// Options.Finishers are lent at once. f leaves it outside of a transaction.
func (d *Database) with(ctx context.Context, f func(c *pgx.Conn) error) error {
	select {
	case d.finishers <- struct{}{}:
		defer func() { <-d.finishers }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release() // a connection that is closed or in a transaction is not used again
	return f(c.Conn())
}

// read is with for what may be done twice. When a connection turns out to be dead, as all are after the
// server was restarted, the pool is emptied and f is called once more.
func (d *Database) read(ctx context.Context, f func(c *pgx.Conn) error) error {
	var dead bool
	watched := func(c *pgx.Conn) error {
		err := f(c)
		dead = err != nil && c.IsClosed()
		return err
	}
	err := d.with(ctx, watched)
	if dead && ctx.Err() == nil && d.afresh(ctx) {
		err = d.with(ctx, watched)
	}
	return err
}

// afresh empties the pool of connections that may be as dead as one was just now.
func (d *Database) afresh(ctx context.Context) bool {
	pool, err := d.conns(ctx)
	if err != nil {
		return false
	}
	pool.Reset()
	return true
}

// identity says which database of which server this is.
type identity struct {
	system   string // the server's system identifier
	oid      string // of the database
	database string
	version  int // server_version_num
	limit    int // max_prepared_transactions
	where    string
}

func (i identity) String() string { return i.system + "/" + i.oid }

// known returns the identity, asked for once.
func (d *Database) known(ctx context.Context) (identity, error) {
	d.mu.Lock()
	id := d.id
	d.mu.Unlock()
	if id.system != "" {
		return id, nil
	}
	err := d.read(ctx, func(c *pgx.Conn) error {
		got, err := d.pipeline(ctx, c, []step{{sql: `SELECT s.system_identifier, d.oid, d.datname, current_setting('server_version_num'), pg_is_in_recovery(),
			current_setting('max_prepared_transactions'), current_setting('synchronous_commit') FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()`}})
		if err != nil {
			return err
		}
		row := got[0].rows[0]
		id = identity{system: row[0], oid: row[1], database: row[2]}
		if id.version, err = strconv.Atoi(row[3]); err != nil {
			return err
		}
		if id.limit, err = strconv.Atoi(row[5]); err != nil {
			return err
		}
		cfg := c.Config()
		id.where = cfg.Host + ":" + strconv.Itoa(int(cfg.Port))
		if row[4] == "t" {
			return standby(id.where)
		}
		return d.o.waits(row[6], id.where)
	})
	switch {
	case isCode(err, codeNoPrivilege):
		return identity{}, fmt.Errorf("postgres: this role may not ask who the server is; GRANT EXECUTE ON FUNCTION pg_control_system() to it: %w: %w", participant.ErrMisconfigured, err)
	case err != nil:
		return identity{}, fmt.Errorf("postgres: ask the server who it is: %w", err)
	case id.version < oldest:
		return identity{}, fmt.Errorf("postgres: the server at %s has version %d; 15 is the oldest that is supported: %w", id.where, id.version/10000, participant.ErrMisconfigured)
	}
	d.mu.Lock()
	d.id = id
	d.mu.Unlock()
	return id, nil
}

const oldest = 150000

// waits refuses a role whose commits do not wait for what the server is told to wait for, where that can't be set:
// COMMIT PREPARED stands alone, and through a pooler nothing is set for it. A fail-over would bring a branch that is
// proven committed back as prepared.
func (o Options) waits(sync, where string) error {
	if !o.Pooler || o.Mode == Staged || strong(sync) || mutant.On("postgres/pooler-waits") {
		return nil
	}
	return fmt.Errorf("this role has synchronous_commit = %s at %s, and through a pooler COMMIT PREPARED takes it as it is, so a fail-over may take back what was proven; "+
		"ALTER ROLE … SET synchronous_commit = on and have the pooler connect anew, or say mode staged: %w", sync, where, participant.ErrMisconfigured)
}

// strong reports whether a commit waits for what synchronous_standby_names says, and for the standby's disk.
func strong(sync string) bool { return sync == "on" || sync == "remote_apply" }

func standby(where string) error {
	return fmt.Errorf("the server at %s is a standby, which can neither prepare nor prove anything; connect to the primary (target_session_attrs=read-write): %w", where, participant.ErrRetry)
}

// classed puts errors of a connection that only a person can mend into their class.
func classed(err error) error {
	if isCode(err, "28000", "28P01", "3D000", codeNoPrivilege) {
		return fmt.Errorf("%w: %w", participant.ErrMisconfigured, err)
	}
	return err
}

// pause is a growing wait between tries.
type pause struct{ next, most time.Duration }

// wait sleeps, longer each time, or returns the context's error.
func (p *pause) wait(ctx context.Context) error {
	t := time.NewTimer(p.next)
	defer t.Stop()
	p.next = min(p.next*2, p.most)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
