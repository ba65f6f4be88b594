package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/unisink/unisink/participant"
)

// rowWriter is what a table writer keeps for a branch. It is set once, before the first row.
type rowWriter interface {
	// flush sends what is buffered, by the branch's exec, copyFrom or stage. It is called once, at the
	// head of Prepare; its error makes the vote No.
	flush(ctx context.Context) error
}

// Branch is the database's share of one transaction. One goroutine uses it at a time.
type Branch struct {
	d    *Database
	name participant.BranchName
	rows rowWriter // nil until a table writer sets it
}

var errNotYet = errors.New("not built yet")

// Exec runs one statement of SQL in the branch's transaction and returns the number of rows it changed.
// The transaction begins with the first statement. An error makes Prepare answer No. Mode Prepared only.
func (b *Branch) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	tag, err := b.exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

// exec is Exec for statements of our own, which leave nothing in the session.
func (b *Branch) exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errNotYet
}

// copyFrom copies rows into a table in the branch's transaction. Mode Prepared only.
func (b *Branch) copyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, errNotYet
}

// stage appends rows of one table, in order, to the staging table. Each row is a JSON object with the
// names of m's columns, of which a deletion needs the key only; values are in PostgreSQL's own text
// form or JSON's. ops has one Op per row, or is nil when all are OpPut. Mode Staged only.
func (b *Branch) stage(context.Context, Move, []Op, [][]byte) error { return errNotYet }

// fail keeps the first error of a write: the vote is then No.
func (b *Branch) fail(error) {}

// Prepare implements participant.Branch.
func (b *Branch) Prepare(context.Context) (participant.Vote, error) {
	return participant.Vote{}, errNotYet
}

// Discard drops a branch that was not prepared.
func (b *Branch) Discard(context.Context) error { return errNotYet }
