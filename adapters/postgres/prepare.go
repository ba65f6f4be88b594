package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// asking is a Prepare under way. It goes on when its caller stops waiting: a statement that is cut
// short in the middle leaves nothing but doubt.
type asking struct {
	done chan struct{} // closed when vote and err stand
	vote participant.Vote
	err  error
}

// Prepare makes the branch durable: its marker and PREPARE TRANSACTION go in one round trip. What the
// server refuses is No, with its sentence. An answer that is lost is looked up until it is found,
// behind the caller's back if ctx ends before; the next call waits for the same answer.
func (b *Branch) Prepare(ctx context.Context) (participant.Vote, error) {
	a, err := b.ask(ctx)
	if err != nil {
		return participant.Vote{}, fmt.Errorf("prepare %s: %w", b.gid, err)
	}
	select {
	case <-a.done:
		if a.err != nil {
			return participant.Vote{}, fmt.Errorf("prepare %s: %w", b.gid, a.err)
		}
		return a.vote, nil
	case <-ctx.Done():
		return participant.Vote{}, fmt.Errorf("prepare %s: %w", b.gid, context.Cause(ctx))
	}
}

// ask starts a Prepare, or joins the one that is under way or has its vote.
func (b *Branch) ask(ctx context.Context) (*asking, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.vote != nil {
		a := &asking{done: make(chan struct{}), vote: *b.vote}
		close(a.done)
		return a, nil
	}
	if b.asking != nil {
		return b.asking, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	a := &asking{done: make(chan struct{})}
	if !b.d.start(func() { b.decide(context.WithoutCancel(ctx), a) }) {
		return nil, fmt.Errorf("the database is closed: %w", participant.ErrBug)
	}
	b.asking = a
	return a, nil
}

// decide brings a Prepare to its end.
func (b *Branch) decide(ctx context.Context, a *asking) {
	vote, err := b.prepare(ctx)
	b.mu.Lock()
	if err == nil {
		b.vote = &vote
	}
	a.vote, a.err = vote, err
	b.asking = nil
	b.mu.Unlock()
	if err == nil {
		b.d.forget(b)
	}
	close(a.done)
}

func (b *Branch) prepare(ctx context.Context) (participant.Vote, error) {
	work, leave, err := b.enter(ctx)
	if err != nil {
		if errors.Is(err, participant.ErrFenced) { // by a newer generation of this very object
			return b.no(err), nil
		}
		return participant.Vote{}, err
	}
	if b.rows != nil && !b.tx.asked && b.failure() == nil {
		leave() // flushing takes the turn for each statement
		if err := b.rows.flush(ctx); err != nil {
			b.fail(err)
		}
		b.rows = nil
		return b.prepare(ctx)
	}
	defer leave()
	vote, err := b.conclude(work)
	if err != nil && errors.Is(context.Cause(work), participant.ErrFenced) {
		return b.no(context.Cause(work)), nil
	}
	return vote, err
}

// conclude asks the server. Whoever holds the turn.
func (b *Branch) conclude(ctx context.Context) (participant.Vote, error) {
	if b.tx.asked {
		return b.settle(ctx, errors.New("the answer was lost"))
	}
	if err := b.failure(); err != nil {
		return b.refuse(ctx, err), nil
	}
	if b.tx.conn == nil {
		return participant.Vote{Kind: participant.ReadOnly}, nil
	}
	if s := b.tx.conn.Conn().PgConn().TxStatus(); s != 'T' && !b.tx.conn.Conn().IsClosed() && !mutant.On("postgres/tag-checked") {
		return b.refuse(ctx, fmt.Errorf("the transaction has ended or failed before it could be prepared (status %c): %w", s, participant.ErrBug)), nil
	}
	if !b.tx.changed {
		if empty, err := b.isEmpty(ctx); err != nil || empty {
			if err == nil {
				b.drop(ctx, b.tx.dirty)
				return participant.Vote{Kind: participant.ReadOnly}, nil
			}
			return b.refuse(ctx, err), nil
		}
	}
	if b.d.o.Mode == Staged && !mutant.On("postgres/rehearsal") {
		if err := b.rehearse(ctx); err != nil {
			return b.refuse(ctx, err), nil
		}
	}
	return b.send(ctx)
}

// isEmpty reports whether the transaction has written nothing: then it has no id.
func (b *Branch) isEmpty(ctx context.Context) (bool, error) {
	got, err := b.d.pipeline(ctx, b.tx.conn.Conn(), []step{{name: "unisink_empty", sql: "SELECT pg_current_xact_id_if_assigned()"}})
	if err != nil {
		return false, err
	}
	return got[0].one() == "", nil
}

// ending is the statements that make the branch durable, and the tag of the last.
func (b *Branch) ending() ([]step, string, error) {
	if b.d.o.Mode == Staged {
		return b.stagedEnding()
	}
	mark := step{name: "unisink_mark", sql: "INSERT INTO unisink.commits (gid) VALUES ($1) RETURNING xid", args: []string{b.gid}}
	if mutant.On("postgres/marker-in-branch") {
		mark = step{sql: "SELECT pg_current_xact_id() WHERE $1 <> ''", args: []string{b.gid}}
	}
	return []step{mark, {sql: "PREPARE TRANSACTION " + literal(b.gid)}}, "PREPARE TRANSACTION", nil
}

// send asks once, and reads the answer.
func (b *Branch) send(ctx context.Context) (participant.Vote, error) {
	steps, want, err := b.ending()
	if err != nil {
		return b.refuse(ctx, err), nil
	}
	c := b.tx.conn.Conn()
	groups := [][]step{steps}
	if b.tx.dirty && !b.d.o.Pooler {
		groups = append(groups, b.d.o.reset()) // in the same round trip
	}
	fault.Point("postgres/before-prepare")
	b.tx.asked = true
	got, err := b.d.pipeline(ctx, c, groups...)
	fault.Point("postgres/after-prepare")
	if len(got) >= len(steps) {
		// PREPARE of a transaction that has failed answers ROLLBACK, without an error.
		if tag := got[len(steps)-1].tag; tag != want && !mutant.On("postgres/tag-checked") {
			return b.refuse(ctx, fmt.Errorf("the server answered %s instead of %s: the transaction had failed before", tag, want)), nil
		}
		b.tx.xid = got[0].one()
		if err != nil { // of the reset
			_ = c.Close(ctx)
		}
		return b.yes()
	}
	if no := serverError(c, err); no != nil {
		if no.Code == codeDuplicateObject || no.Code == codeUniqueViolation && no.TableName == "commits" && no.SchemaName == "unisink" {
			err = fmt.Errorf("a branch of this name was prepared before: %w: %w", participant.ErrBug, err)
		}
		return b.refuse(ctx, err), nil
	}
	return b.settle(ctx, err)
}

// yes gives the connection back and makes the handle.
func (b *Branch) yes() (participant.Vote, error) {
	if b.tx.conn != nil {
		b.tx.conn.Release()
		b.tx.conn = nil
	}
	h, err := newHandle(b.t.id, b.name, body{Mode: b.d.o.Mode.String(), XID: b.tx.xid, Tables: b.tx.tables})
	if err != nil {
		return participant.Vote{}, err
	}
	return participant.Vote{Kind: participant.Yes, Handle: h}, nil
}

// refuse drops the transaction and says no, for good.
func (b *Branch) refuse(ctx context.Context, why error) participant.Vote {
	lost := b.tx.conn != nil && b.tx.conn.Conn().IsClosed()
	b.drop(ctx, b.tx.dirty)
	if lost && !errors.Is(why, participant.ErrFenced) {
		why = b.lostBy(ctx, why)
	}
	return b.no(why)
}

func (b *Branch) no(why error) participant.Vote {
	return participant.Vote{Kind: participant.No, Reason: fmt.Errorf("%s: %w", b.gid, classed(why))}
}

// lostBy says why a transaction is gone: a newer generation has ended it, or something else.
func (b *Branch) lostBy(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := b.standing(ctx)
	if errors.Is(err, participant.ErrFenced) {
		return fmt.Errorf("%w: %w", err, why)
	}
	return fmt.Errorf("the connection was lost, and the transaction with it: %w: %w", participant.ErrLost, why)
}

// settle finds out what became of a branch whose answer was lost. First the backend that was asked
// must be done with it: it is the one that holds the branch's lock under its process id. Then the
// list tells: prepared is Yes, absent is No.
func (b *Branch) settle(ctx context.Context, why error) (participant.Vote, error) {
	if b.tx.conn != nil {
		_ = b.tx.conn.Conn().Close(ctx)
		b.tx.conn.Release()
		b.tx.conn = nil
	}
	wait := pause{next: 2 * time.Millisecond, most: time.Second}
	for {
		busy, found, err := b.askAgain(ctx)
		switch {
		case err == nil && found:
			return b.yes()
		case err == nil && !busy:
			return b.no(b.lostBy(ctx, why)), nil
		}
		if ended := wait.wait(ctx); ended != nil {
			return participant.Vote{}, fmt.Errorf("nobody knows yet whether it is prepared: %w", errors.Join(why, err, ended))
		}
	}
}

// askAgain looks for the backend first and for the branch second.
func (b *Branch) askAgain(ctx context.Context) (busy, found bool, err error) {
	err = b.d.read(ctx, func(c *pgx.Conn) error {
		end := "pg_terminate_backend(pid)"
		if b.d.o.Pooler {
			end = "false" // the backend may be at somebody else's work already
		}
		got, err := b.d.pipeline(ctx, c, []step{{
			sql:  "SELECT " + end + " FROM pg_locks WHERE " + ofFence + " AND objid::bigint = $2 AND pid = $3",
			args: []string{b.t.fence, b.t.turn, b.tx.pid},
		}})
		if err != nil {
			return err
		}
		if busy = len(got[0].rows) > 0; busy {
			return nil
		}
		if b.d.o.Mode == Staged {
			staged, err := b.d.ask(ctx, c, "SELECT 'staged' FROM unisink.staged WHERE gid = $1", b.gid)
			found = staged != ""
			return err
		}
		got, err = b.d.pipeline(ctx, c, []step{{sql: `SELECT transaction, pg_snapshot_xmax(pg_current_snapshot()) FROM pg_prepared_xacts
			WHERE gid = $1 AND database = current_database()`, args: []string{b.gid}}})
		if found = err == nil && len(got[0].rows) > 0; found {
			b.tx.xid, err = wide(got[0].rows[0][0], got[0].rows[0][1])
		}
		return err
	})
	return busy, found, err
}

// wide makes a transaction id of 32 bits one of 64, by the next one that will be given out.
func wide(narrow, next string) (string, error) {
	low, err := strconv.ParseUint(narrow, 10, 32)
	if err != nil {
		return "", fmt.Errorf("read transaction id %q: %w", narrow, err)
	}
	top, err := strconv.ParseUint(next, 10, 64)
	if err != nil {
		return "", fmt.Errorf("read transaction id %q: %w", next, err)
	}
	full := top&^0xffffffff | low
	if full > top && full >= 1<<32 {
		full -= 1 << 32
	}
	return strconv.FormatUint(full, 10), nil
}
