package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/unisink/unisink/participant"
)

// rowWriter is what a table writer keeps for a branch. It is set once, before the first row.
type rowWriter interface {
	// flush sends what is buffered, by the branch's run or stage. It is called once, at the
	// head of Prepare; its error makes the vote No.
	flush(ctx context.Context) error
}

// Branch is the database's share of one transaction. One goroutine uses it at a time.
type Branch struct {
	d    *Database
	t    *tenure
	name participant.BranchName
	gid  string
	rows rowWriter // nil until a table writer sets it

	turn chan struct{} // holds one token while a call is at work; Open and Close wait for it
	tx   transaction   // of whoever holds the turn

	mu     sync.Mutex // guards what follows; held for memory only
	cancel context.CancelCauseFunc
	failed error // the first error of a write: the vote is No
	vote   *participant.Vote
	ended  error // dropped: why
	asking *asking
}

// transaction is a branch's own transaction in the database.
type transaction struct {
	conn    *pgxpool.Conn // nil before the first statement and after the end
	pid     string        // of the backend
	changed bool          // something was surely written, so it has an id
	dirty   bool          // a user's statements may have left something in the session
	asked   bool          // PREPARE TRANSACTION, or staged mode's COMMIT, was sent
	xid     string
	tables  []string // for handles
	moves   []Move   // staged mode
	ord     int64    // rows staged
}

func newBranch(d *Database, t *tenure, name participant.BranchName) *Branch {
	return &Branch{d: d, t: t, name: name, gid: name.String(), turn: make(chan struct{}, 1)}
}

// Exec runs one statement of SQL in the branch's transaction and returns the number of rows it changed.
// The transaction begins with the first statement. An error makes Prepare answer No. The statement may
// not end the transaction. Mode Prepared only.
func (b *Branch) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	var first func(ctx context.Context) (pgconn.CommandTag, error)
	if b.d.joins(args) {
		first = func(ctx context.Context) (pgconn.CommandTag, error) { return b.first(ctx, sql, args) }
	}
	tag, err := b.runFirst(ctx, true, first, func(ctx context.Context, c *pgx.Conn) (pgconn.CommandTag, error) {
		if len(args) == 0 { // pgx would take a script
			res := c.PgConn().ExecParams(ctx, sql, nil, nil, nil, nil).Read()
			return res.CommandTag, res.Err
		}
		return c.Exec(ctx, sql, args...)
	})
	if err != nil {
		return 0, err
	}
	if err := allowed(tag.String(), sql); err != nil {
		err = fmt.Errorf("write %s: %w", b.gid, err)
		b.fail(err)
		return 0, err
	}
	return tag.RowsAffected(), nil
}

// allowed judges a statement by what the server says it was: what leaves us in a transaction that is not
// the branch's, or without our prepared statements. What left us in none is found by the session's state.
func allowed(tag, sql string) error {
	word, _, _ := strings.Cut(tag, " ")
	chained := word == "ROLLBACK" && strings.Contains(strings.ToLower(sql), "chain") // else it went to a savepoint
	switch {
	case word == "COMMIT" || chained:
		return errEnded
	case word == "DEALLOCATE" || word == "DISCARD":
		return fmt.Errorf("the statement removes what the session has prepared, which is not the branch's own: %w", participant.ErrBug)
	}
	return nil
}

var errEnded = fmt.Errorf("the statement ended the branch's transaction, which is Prepare's to do: %w", participant.ErrBug)

// wrote names a table for the handle's text.
func (b *Branch) wrote(table string) {
	for _, t := range b.tx.tables {
		if t == table {
			return
		}
	}
	b.tx.tables = append(b.tx.tables, table)
}

// run has one statement run in the transaction, which it begins if need be.
func (b *Branch) run(ctx context.Context, theirs bool, do func(ctx context.Context, c *pgx.Conn) (pgconn.CommandTag, error)) (pgconn.CommandTag, error) {
	return b.runFirst(ctx, theirs, nil, do)
}

// runFirst is run for a statement that, if it is the transaction's first one, begins it as well: by first, if not nil.
func (b *Branch) runFirst(ctx context.Context, theirs bool, first func(context.Context) (pgconn.CommandTag, error),
	do func(context.Context, *pgx.Conn) (pgconn.CommandTag, error),
) (tag pgconn.CommandTag, err error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return tag, err
	}
	defer leave()
	if err := b.usable(theirs); err != nil {
		return tag, err
	}
	if b.tx.conn == nil && first != nil {
		tag, err = first(ctx)
	} else {
		if b.tx.conn == nil {
			err = b.open(ctx)
		}
		if err == nil {
			watch := b.watch(ctx)
			tag, err = do(ctx, b.tx.conn.Conn())
			err = b.blocked(err, watch())
		}
	}
	if b.tx.conn == nil { // it was not begun
		b.fail(err)
		return tag, err
	}
	b.tx.dirty = b.tx.dirty || theirs && !isDML(tag)
	if err == nil && b.tx.conn.Conn().PgConn().TxStatus() != 'T' {
		err = errEnded
	}
	if err != nil {
		err = fmt.Errorf("write %s: %w", b.gid, err)
		b.fail(err)
		return tag, err
	}
	b.tx.changed = b.tx.changed || !tag.Select() && tag.RowsAffected() > 0
	return tag, nil
}

// isDML reports whether a statement was one that changes rows, and nothing in the session: a reset after
// each of them would cost more than they do.
func isDML(tag pgconn.CommandTag) bool {
	word, _, _ := strings.Cut(tag.String(), " ")
	return word == "INSERT" || word == "UPDATE" || word == "DELETE" || word == "MERGE"
}

// usable says why nothing can be written.
func (b *Branch) usable(theirs bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.vote != nil || b.tx.asked:
		return fmt.Errorf("write to %s after its vote: %w", b.gid, participant.ErrBug)
	case b.failed != nil:
		return fmt.Errorf("write to %s, which has failed before: %w", b.gid, b.failed)
	case theirs && b.d.o.Mode == Staged:
		return fmt.Errorf("write to %s: in staged mode rows are staged, and no SQL of one's own can be: %w", b.gid, participant.ErrMisconfigured)
	}
	return nil
}

// open begins the transaction and takes its place under the fence: the shared lock first, then, in a
// second statement, the row. Whoever raised the row before the second statement is seen by it; whoever
// raises it later sees the lock. One round trip.
func (b *Branch) open(ctx context.Context) error {
	dead, err := b.openOn(ctx)
	if dead && ctx.Err() == nil && b.d.afresh(ctx) {
		_, err = b.openOn(ctx) // the connection had died while nobody used it; nothing was written yet
	}
	return err
}

func (b *Branch) openOn(ctx context.Context) (dead bool, err error) {
	conn, err := b.d.acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("begin %s: %w", b.gid, err)
	}
	steps := append(b.d.begin(), b.t.lock(), b.t.read())
	got, err := b.d.pipeline(ctx, conn.Conn(), steps)
	if err != nil {
		if isCode(err, codeNoStatement) {
			_ = conn.Conn().Close(ctx) // somebody removed what this session had prepared
		}
		dead := conn.Conn().IsClosed()
		b.d.giveBack(ctx, conn)
		return dead, fmt.Errorf("begin %s: %w", b.gid, classed(err))
	}
	b.tx.pid = got[len(got)-2].one()
	if err := b.t.check(got[len(got)-1]); err != nil {
		b.d.giveBack(ctx, conn)
		return false, fmt.Errorf("begin %s: %w", b.gid, err)
	}
	b.tx.conn = conn
	return false, nil
}

// giveBack returns a connection whose transaction, if any, is rolled back.
func (d *Database) giveBack(ctx context.Context, conn *pgxpool.Conn) {
	c := conn.Conn()
	if !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
			_ = c.Close(ctx) // the server rolls back what its client has left
		}
	}
	conn.Release() // what is closed or still in a transaction is not used again
}

// patience is how long a rollback may take before its connection is closed instead.
const patience = 5 * time.Second

// drop ends the transaction without a trace. Whoever holds the turn.
func (b *Branch) drop(ctx context.Context, theirs bool) {
	conn := b.tx.conn
	if conn == nil {
		return
	}
	b.tx.conn = nil
	if theirs && !b.d.o.Pooler && !conn.Conn().IsClosed() {
		_ = conn.Conn().Close(context.WithoutCancel(ctx)) // its settings are nobody else's
	}
	b.d.giveBack(ctx, conn)
}

// errDropped is the cause of ended branches.
var errDropped = errors.New("the branch was dropped")

// enter waits for the branch's turn. The context ends when the branch is dropped.
func (b *Branch) enter(ctx context.Context) (context.Context, func(), error) {
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != nil {
		cancel(b.ended)
		<-b.turn
		return nil, nil, fmt.Errorf("branch %s has ended: %w", b.gid, b.ended)
	}
	b.cancel = cancel
	return ctx, func() {
		b.mu.Lock()
		b.cancel = nil
		b.mu.Unlock()
		cancel(nil)
		<-b.turn
	}, nil
}

// end drops the branch, cutting short what is at work in it. It does nothing to one that has voted yes,
// and reports that.
func (b *Branch) end(ctx context.Context, why error) (prepared bool) {
	b.mu.Lock()
	if b.vote != nil && b.vote.Kind == participant.Yes {
		b.mu.Unlock()
		return true
	}
	if b.ended == nil {
		b.ended = why
	}
	if b.cancel != nil {
		b.cancel(why)
	}
	b.mu.Unlock()
	b.turn <- struct{}{} // soon: its context has ended
	b.drop(ctx, b.tx.dirty)
	<-b.turn
	b.d.forget(b)
	return false
}

// Discard drops a branch that was not prepared.
func (b *Branch) Discard(ctx context.Context) error {
	if b.end(ctx, errDropped) {
		return fmt.Errorf("discard %s: %w", b.gid, participant.ErrPrepared)
	}
	return nil
}

// fail keeps the first error of a write: the vote is then No.
func (b *Branch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		b.failed = err
	}
}

func (b *Branch) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}
