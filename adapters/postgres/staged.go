package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// stageAtOnce is how many rows one statement puts into the staging table.
const stageAtOnce = 1000

// stage appends rows of one table, in order, to the staging table. Each row is a JSON object with the
// names of m's columns, of which a deletion needs the key only; values are in PostgreSQL's own text
// form or JSON's. Documents stand apart, as strings of an object with the name "", which no column has. ops has one Op per row, or is nil when all are OpPut. Mode Staged only.
func (b *Branch) stage(ctx context.Context, m Move, ops []Op, rows [][]byte) error {
	for len(rows) > 0 {
		n := min(len(rows), stageAtOnce)
		if err := b.stageSome(ctx, m, ops[:min(n, len(ops))], rows[:n]); err != nil {
			return err
		}
		rows, ops = rows[n:], ops[min(n, len(ops)):]
	}
	return nil
}

func (b *Branch) stageSome(ctx context.Context, m Move, ops []Op, rows [][]byte) error {
	_, err := b.run(ctx, false, func(ctx context.Context, c *pgx.Conn) (pgconn.CommandTag, error) {
		move := slices.IndexFunc(b.tx.moves, m.same)
		if move < 0 {
			move = len(b.tx.moves)
			b.tx.moves = append(b.tx.moves, m)
			b.wrote(m.name())
		}
		texts, does, ords := make([]string, len(rows)), make([]string, len(rows)), make([]int64, len(rows))
		for i, row := range rows {
			texts[i], does[i], ords[i] = string(row), string(OpPut), b.tx.ord+int64(i)
			if i < len(ops) {
				does[i] = string(ops[i])
			}
		}
		b.tx.ord += int64(len(rows))
		return c.Exec(ctx, `INSERT INTO unisink.staged_rows (gid, ord, move, op, row)
			SELECT $1, ord, $2, op, row::jsonb FROM unnest($3::bigint[], $4::text[], $5::text[]) r (ord, op, row)`, b.gid, move, ords, does, texts)
	})
	return err
}

// rehearse moves the rows and takes that back. What the tables refuse must come up before the vote:
// after the decision rolling back is no move any more (O6).
func (b *Branch) rehearse(ctx context.Context) error {
	steps := []step{{sql: "SAVEPOINT unisink_rehearsal"}}
	for i, m := range b.tx.moves {
		steps = append(steps, m.statements(b.gid, i)...)
	}
	steps = append(steps, step{sql: "ROLLBACK TO SAVEPOINT unisink_rehearsal"})
	for _, m := range b.tx.moves {
		steps = append(steps, m.which())
	}
	watch := b.watch(ctx)
	got, err := b.d.pipeline(ctx, b.tx.conn.Conn(), steps)
	if blockers := watch(); blockers != "" && isCode(err, codeLockNotAvailable) {
		err = fmt.Errorf("it waited longer than %s for a lock that is held by %s: %w", b.d.o.LockTimeout, blockers, err)
	}
	if err != nil {
		return refused(err, func(int) string { return "a row that is to be moved into its table" })
	}
	for i, a := range got[len(got)-len(b.tx.moves):] {
		b.tx.moves[i].OID = a.one()
	}
	return nil
}

// stagedEnding is the branch's row, which makes its rows count, and the commit that makes both durable.
func (b *Branch) stagedEnding() ([]step, string, error) {
	moves, err := json.Marshal(b.tx.moves)
	if err != nil {
		return nil, "", fmt.Errorf("say how the rows are moved: %w", err)
	}
	return []step{
		{
			name: "unisink_staged", args: []string{b.gid, string(moves), strconv.FormatInt(b.tx.ord, 10)},
			sql: "INSERT INTO unisink.staged (gid, moves, rows) SELECT $1, $2, $3 RETURNING ''",
		},
		{sql: "COMMIT"},
	}, "COMMIT", nil
}

// moveStaged commits a staged branch: one transaction moves the rows, writes the marker and clears
// the staging table. The branch's row is locked first; where it is gone somebody has ended the branch.
func (d *Database) moveStaged(ctx context.Context, _ identity, b body) (p participant.Proof, err error) {
	err = d.staged(ctx, b, func(c *pgx.Conn, moves []Move, rows string) error {
		if err := d.move(ctx, c, b, moves, rows); err != nil {
			return err
		}
		fault.Point("postgres/before-move")
		got, err := d.pipeline(ctx, c, []step{
			{sql: "INSERT INTO unisink.commits (gid) VALUES ($1)", args: []string{b.GID}},
			{sql: "DELETE FROM unisink.staged WHERE gid = $1", args: []string{b.GID}},
			{sql: "COMMIT"},
		})
		fault.Point("postgres/after-move")
		if err == nil && got[len(got)-1].tag == "COMMIT" {
			p = participant.Proof{Verdict: participant.Committed, Evidence: "its rows were moved, with its marker"}
		}
		return err
	})
	return p, err
}

// move moves the rows out of the staging table in the transaction that is open, and looks then whether
// they were as many as were voted for, since whoever can write there can remove some (T5), and whether
// the tables, which are locked by that, are the ones that were meant.
func (d *Database) move(ctx context.Context, c *pgx.Conn, b body, moves []Move, rows string) error {
	var steps []step
	for i, m := range moves {
		steps = append(steps, m.statements(b.GID, i)...)
	}
	steps = append(steps, step{sql: "DELETE FROM unisink.staged_rows WHERE gid = $1", args: []string{b.GID}})
	for _, m := range moves {
		steps = append(steps, m.which())
	}
	got, err := d.pipeline(ctx, c, steps)
	if isCode(err, codeUndefinedTable, codeInvalidSchema) {
		return fmt.Errorf("the rows of %s are decided, and a table that they are for was dropped (%s): they are in unisink.staged_rows; settle it by hand: %w: %w",
			b.GID, namesOf(moves), participant.ErrRetry, err)
	}
	if serverError(c, err) != nil {
		return fmt.Errorf("the rows of %s are decided, and their tables refuse them now: make room for them: %w", b.GID, err)
	}
	if err != nil {
		return err
	}
	tables := len(got) - len(moves)
	if was := strings.TrimPrefix(got[tables-1].tag, "DELETE "); was != rows && !mutant.On("postgres/all-staged-rows") {
		return fmt.Errorf("%s was prepared with %s rows and unisink.staged_rows has %s of them now: somebody changed it, and none is moved: %w",
			b.GID, rows, was, participant.ErrUndeterminable)
	}
	for i, a := range got[tables:] {
		if m := moves[i]; a.one() != m.OID && !mutant.On("postgres/same-table") {
			return fmt.Errorf("the rows of %s were prepared for table %s, which was dropped and made anew since (oid %s, now %s), and none is moved: %w",
				b.GID, m.name(), m.OID, a.one(), participant.ErrUndeterminable)
		}
	}
	return nil
}

func namesOf(moves []Move) string {
	names := make([]string, len(moves))
	for i, m := range moves {
		names[i] = m.name()
	}
	return strings.Join(names, ", ")
}

// dropStaged rolls a staged branch back and leaves a note, which proves that.
func (d *Database) dropStaged(ctx context.Context, _ identity, b body) (p participant.Proof, err error) {
	err = d.staged(ctx, b, func(c *pgx.Conn, _ []Move, _ string) error {
		fault.Point("postgres/before-drop")
		got, err := d.pipeline(ctx, c, []step{
			{sql: "INSERT INTO unisink.dropped (gid) VALUES ($1) ON CONFLICT DO NOTHING", args: []string{b.GID}},
			{sql: "DELETE FROM unisink.staged_rows WHERE gid = $1", args: []string{b.GID}},
			{sql: "DELETE FROM unisink.staged WHERE gid = $1", args: []string{b.GID}},
			{sql: "COMMIT"},
		})
		fault.Point("postgres/after-drop")
		if err == nil && got[len(got)-1].tag == "COMMIT" {
			p = participant.Proof{Verdict: participant.RolledBack, Evidence: "its staged rows were deleted"}
		}
		return err
	})
	return p, err
}

// staged locks a branch's row and has f end the transaction; without a row f is not called.
func (d *Database) staged(ctx context.Context, b body, f func(c *pgx.Conn, moves []Move, rows string) error) error {
	return d.with(ctx, func(c *pgx.Conn) error {
		got, err := d.pipeline(ctx, c, append(d.begin(), step{sql: "SELECT moves, rows FROM unisink.staged WHERE gid = $1 FOR UPDATE", args: []string{b.GID}}))
		if err != nil {
			err = missing(err) // of our tables, not of those that f writes to
		} else if row := got[len(got)-1]; row.one() != "" {
			var moves []Move
			if err = json.Unmarshal([]byte(row.one()), &moves); err == nil {
				err = f(c, moves, row.rows[0][1])
			}
		}
		if c.IsClosed() || c.PgConn().TxStatus() == 'I' {
			return err
		}
		_, ended := c.Exec(ctx, "ROLLBACK")
		return errors.Join(err, ended)
	})
}

// missing turns the lack of our tables into the lack of a row in them.
func missing(err error) error {
	if isCode(err, codeUndefinedTable, codeInvalidSchema) {
		return nil
	}
	return err
}
