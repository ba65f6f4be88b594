package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// joins reports whether a branch's first statement may travel with its begin: pgx has to know its parameters by then
// (without them it would be one more statement to keep), and whose connection it is.
func (d *Database) joins(args []any) bool {
	if len(args) == 0 || d.o.Pooler {
		return false
	}
	if _, own := args[0].(pgx.QueryExecMode); own {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cached
}

// held is read for a statement that follows in the same round trip: where a newer generation is open it fails, and the
// server skips what comes behind it.
func (t *tenure) held() step {
	sql := "SELECT generation, current_setting('transaction_isolation'), 1 / (generation <= $2)::integer FROM unisink.fences WHERE id = $1"
	if mutant.On("postgres/fence") || mutant.On("postgres/write-behind-fence") {
		sql = "SELECT generation, current_setting('transaction_isolation'), 1 FROM unisink.fences WHERE id = $1 AND $2::bigint <> 0"
	}
	return step{name: "unisink_held", args: []string{t.fence, strconv.FormatUint(t.generation, 10)}, sql: sql}
}

// first is open with the first statement in the same round trip. The order is the same: the lock, the row in a later
// statement, and then what is written, which the server does not begin with where the row shows a newer generation.
func (b *Branch) first(ctx context.Context, sql string, args []any) (pgconn.CommandTag, error) {
	tag, dead, err := b.firstOn(ctx, sql, args)
	if dead && ctx.Err() == nil && b.d.afresh(ctx) {
		tag, _, err = b.firstOn(ctx, sql, args) // what the statement did before the connection died, if anything, is rolled back
	}
	return tag, err
}

func (b *Branch) firstOn(ctx context.Context, sql string, args []any) (tag pgconn.CommandTag, dead bool, err error) {
	conn, err := b.d.acquire(ctx)
	if err != nil {
		return tag, false, fmt.Errorf("begin %s: %w", b.gid, err)
	}
	c := conn.Conn()
	b.tx.pid = strconv.FormatUint(uint64(c.PgConn().PID()), 10)
	watch := b.watch(ctx)
	tag, begun, err := b.d.joined(ctx, c, append(b.d.begin(), b.t.lock(), b.t.held()), b.t.check, sql, args)
	err = b.blocked(err, watch())
	if begun && !c.IsClosed() {
		b.tx.conn = conn
		return tag, false, err
	}
	if isCode(err, codeNoStatement) {
		_ = c.Close(ctx) // somebody removed what this session had prepared
	}
	dead = c.IsClosed()
	b.d.giveBack(ctx, conn)
	if isCode(err, codeDivisionByZero) {
		err = b.overtaken(ctx, err)
	}
	return tag, dead, fmt.Errorf("begin %s: %w", b.gid, classed(err))
}

// joined sends steps, the last of which reads the fence, and a statement behind them. The transaction has begun when
// all steps are done and check has found nothing; what the statement came to is another matter.
func (d *Database) joined(ctx context.Context, c *pgx.Conn, steps []step, check func(answer) error, sql string, args []any) (tag pgconn.CommandTag, begun bool, err error) {
	if err := d.nameSteps(ctx, c, [][]step{steps}); err != nil {
		return tag, false, err
	}
	batch := &pgx.Batch{}
	for _, s := range steps {
		params := make([]any, len(s.args))
		for i, a := range s.args {
			params[i] = a
		}
		batch.Queue(s.name, params...)
	}
	batch.Queue(sql, args...)
	answers := c.SendBatch(ctx, batch)
	defer func() {
		if ended := answers.Close(); err == nil {
			err = ended
		}
	}()
	for range steps[1:] {
		if _, err := answers.Exec(); err != nil {
			return tag, false, err
		}
	}
	var generation int64
	var level string
	var held int32
	var fence answer
	switch err := answers.QueryRow().Scan(&generation, &level, &held); {
	case err == nil:
		fence.rows = [][]string{{strconv.FormatInt(generation, 10), level}}
	case !errors.Is(err, pgx.ErrNoRows):
		return tag, false, err
	}
	if err := check(fence); err != nil {
		return tag, false, err
	}
	tag, err = answers.Exec()
	return tag, true, err
}

// overtaken says which generation is open, after the server has said that it is a newer one.
func (b *Branch) overtaken(ctx context.Context, why error) error {
	if err := b.standing(ctx); err != nil {
		return err
	}
	return fmt.Errorf("generation %d of %s is not the newest any more: %w: %w", b.t.generation, b.t.holder, participant.ErrFenced, why)
}

// standing reads the fence's row on another connection and judges it.
func (b *Branch) standing(ctx context.Context) error {
	return b.d.read(ctx, func(c *pgx.Conn) error {
		got, err := b.d.pipeline(ctx, c, []step{b.t.read()})
		if err != nil {
			return err
		}
		return b.t.check(got[0])
	})
}

// blocked names who holds what a statement has waited for in vain.
func (b *Branch) blocked(err error, blockers string) error {
	if blockers != "" && isCode(err, codeLockNotAvailable) {
		return fmt.Errorf("it waited longer than %s for a lock that is held by %s: %w", b.d.o.LockTimeout, blockers, err)
	}
	return err
}
