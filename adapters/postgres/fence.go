package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// The fence of a member is a row with its newest generation, and a shared advisory lock that each of
// its branches takes before it reads the row. A branch that read the row before it was raised holds the
// lock by then; so whoever has raised the row finds every older branch in pg_locks, ends the backends
// of those that are still being written, and needs to wait for nothing that is prepared (P12).
//
// The lock's two keys are 32 bits wide, so the second is not the generation but its turn: how often
// the row was raised.

// tenure is one generation of a member, as it was opened.
type tenure struct {
	id         identity
	holder     string
	generation uint64
	fence      string // the row's id, the lock's first key
	turn       string // the lock's second key
}

// holder names the member. Its resources on one database share the fence, as they share branches.
func holder(o participant.Opening) string {
	return strings.Join([]string{o.Namespace.String(), strings.ReplaceAll(o.Scope, "/", "."), o.Member}, ".")
}

// lock takes the lock and answers the backend's process id.
func (t *tenure) lock() step {
	return step{
		name: "unisink_lock", args: []string{t.fence, t.turn},
		sql: "SELECT pg_backend_pid(), pg_advisory_xact_lock_shared($1, $2)",
	}
}

// read reads the row.
func (t *tenure) read() step {
	return step{
		name: "unisink_fence", args: []string{t.fence},
		sql: "SELECT generation, current_setting('transaction_isolation') FROM unisink.fences WHERE id = $1",
	}
}

// check judges what read has read.
func (t *tenure) check(a answer) error {
	if len(a.rows) == 0 {
		return fmt.Errorf("the fence of %s is gone from unisink.fences; open the database again: %w", t.holder, participant.ErrFenced)
	}
	now, err := strconv.ParseUint(a.rows[0][0], 10, 64)
	if err != nil {
		return fmt.Errorf("read the fence of %s: %w", t.holder, err)
	}
	if now > t.generation && !mutant.On("postgres/fence") {
		return fmt.Errorf("generation %d of %s is open, this branch is of %d: %w", now, t.holder, t.generation, participant.ErrFenced)
	}
	if level := a.rows[0][1]; level != "read committed" && !mutant.On("postgres/read-committed") {
		return fmt.Errorf("the transaction runs as %s, not as read committed: %w", level, participant.ErrBug)
	}
	return nil
}

// raise sets the row to a generation where it is lower.
func (d *Database) raise(ctx context.Context, t *tenure) error {
	return d.read(ctx, func(c *pgx.Conn) error {
		steps := append(d.begin(),
			step{
				sql: `INSERT INTO unisink.fences AS f (holder, generation) VALUES ($1, $2) ON CONFLICT (holder)
				DO UPDATE SET generation = excluded.generation, turn = f.turn + 1, raised_at = now() WHERE f.generation < excluded.generation`,
				args: []string{t.holder, strconv.FormatUint(t.generation, 10)},
			},
			step{sql: "SELECT id, turn, generation FROM unisink.fences WHERE holder = $1", args: []string{t.holder}},
			step{sql: "COMMIT"})
		got, err := d.pipeline(ctx, c, steps)
		if err != nil {
			return fmt.Errorf("raise the fence of %s to generation %d: %w", t.holder, t.generation, classed(err))
		}
		row := got[len(got)-2].rows[0]
		t.fence, t.turn = row[0], row[1]
		if now, err := strconv.ParseUint(row[2], 10, 64); err != nil || now > t.generation {
			return errors.Join(err, fmt.Errorf("generation %s of %s is open in database %s, this one is %d: %w", row[2], t.holder, t.id.database, t.generation, participant.ErrFenced))
		}
		return nil
	})
}

// ofFence picks from pg_locks who holds the advisory lock with $1 as its first key.
const ofFence = `locktype = 'advisory' AND objsubid = 2 AND mode = 'ShareLock' AND granted AND classid::bigint = $1
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// clear ends the backends that write for older generations, and returns when there is none left. What
// is prepared has no backend and stays. A branch that begins meanwhile reads the raised row.
func (d *Database) clear(ctx context.Context, t *tenure) error {
	if t.fence == "" {
		return nil
	}
	wait := pause{next: time.Millisecond, most: 100 * time.Millisecond}
	for {
		var left []string
		err := d.read(ctx, func(c *pgx.Conn) error {
			got, err := d.pipeline(ctx, c, []step{{
				sql:  "SELECT pid, pg_terminate_backend(pid) FROM pg_locks WHERE " + ofFence + " AND objid::bigint < $2 AND pid IS NOT NULL",
				args: []string{t.fence, t.turn},
			}})
			if err == nil {
				for _, row := range got[0].rows {
					left = append(left, row[0])
				}
			}
			return err
		})
		switch {
		case isCode(err, codeNoPrivilege):
			return fmt.Errorf("an older generation of %s still writes, as another role, and this role may not end its backend; GRANT pg_signal_backend to it, or use one role: %w: %w", t.holder, participant.ErrMisconfigured, err)
		case err != nil:
			return fmt.Errorf("end the backends of older generations of %s: %w", t.holder, err)
		case len(left) == 0:
			return nil
		}
		if err := wait.wait(ctx); err != nil {
			return fmt.Errorf("backends %s write for older generations of %s and do not end: %w", strings.Join(left, ", "), t.holder, err)
		}
	}
}

// watch looks who holds the lock that a statement waits for, while it still waits: afterwards nobody
// knows. The function that it returns ends the watch and says what was seen.
func (b *Branch) watch(ctx context.Context) func() string {
	var seen string
	done := make(chan struct{})
	pid := b.tx.pid
	timer := time.AfterFunc(b.d.o.LockTimeout/2, func() {
		defer close(done)
		seen = b.d.blockers(ctx, pid)
	})
	return func() string {
		if timer.Stop() {
			return ""
		}
		<-done
		return seen
	}
}

// blockers names who holds what a backend waits for; "" when that can't be told.
func (d *Database) blockers(ctx context.Context, pid string) string {
	ctx, cancel := context.WithTimeout(ctx, max(d.o.LockTimeout/2, minLook))
	defer cancel()
	var names []string
	err := d.read(ctx, func(c *pgx.Conn) error {
		got, err := d.pipeline(ctx, c, []step{{sql: blockersSQL, args: []string{pid}}})
		if err == nil {
			for _, row := range got[0].rows {
				names = append(names, row[0])
			}
		}
		return err
	})
	if err != nil {
		return "somebody who could not be looked up (" + err.Error() + ")"
	}
	return strings.Join(names, ", ")
}

const minLook = time.Second

// A prepared transaction holds locks without a backend. Its row in pg_locks has the same virtual
// transaction as the lock on its own id, and that id stands in pg_prepared_xacts.
const blockersSQL = `WITH w AS (SELECT * FROM pg_locks WHERE pid = $1 AND NOT granted)
SELECT DISTINCT coalesce('the prepared transaction ' || p.gid, 'backend ' || h.pid || coalesce(' (' || nullif(a.application_name, '') || ')', ''), 'somebody')
FROM w JOIN pg_locks h ON h.granted AND h.pid IS DISTINCT FROM w.pid AND h.locktype = w.locktype
  AND (h.database, h.relation, h.page, h.tuple, h.virtualxid, h.transactionid, h.classid, h.objid, h.objsubid)
  IS NOT DISTINCT FROM (w.database, w.relation, w.page, w.tuple, w.virtualxid, w.transactionid, w.classid, w.objid, w.objsubid)
LEFT JOIN pg_locks t ON h.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid' AND t.granted AND t.virtualtransaction = h.virtualtransaction
LEFT JOIN pg_prepared_xacts p ON p.transaction = coalesce(h.transactionid, t.transactionid)
LEFT JOIN pg_stat_activity a ON a.pid = h.pid`

// standing reads the row as it stands.
func (d *Database) standing(ctx context.Context, t *tenure) error {
	return d.read(ctx, func(c *pgx.Conn) error {
		got, err := d.pipeline(ctx, c, []step{{sql: "SELECT id, turn + 1 FROM unisink.fences WHERE holder = $1", args: []string{t.holder}}})
		if err == nil && len(got[0].rows) > 0 {
			t.fence, t.turn = got[0].rows[0][0], got[0].rows[0][1]
		}
		return err
	})
}
