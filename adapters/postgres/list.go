package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/participant"
)

// listSQL lists what is prepared in this database, and how full the server's list is.
const listSQL = `SELECT 'prepared', gid, extract(epoch FROM prepared) FROM pg_prepared_xacts WHERE database = current_database()`

const listStagedSQL = `SELECT 'staged', gid, extract(epoch FROM at) FROM unisink.staged`

// List names what is prepared or staged in this database under a namespace.
func (d *Database) List(ctx context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	id, err := d.known(ctx)
	if err != nil {
		return nil, err
	}
	all, err := d.all(ctx, id)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(l participant.Listed) bool { return l.Name.Namespace != ns }), nil
}

// all lists every namespace. Names of others can't be parsed and are left out (L9).
func (d *Database) all(ctx context.Context, id identity) ([]participant.Listed, error) {
	var rows [][]string
	err := d.read(ctx, func(c *pgx.Conn) error {
		got, err := d.pipeline(ctx, c, []step{{sql: listSQL}})
		if err != nil {
			return err
		}
		staged, err := d.pipeline(ctx, c, []step{{sql: listStagedSQL}})
		if err := missing(err); err != nil {
			return err
		}
		rows = got[0].rows
		for _, a := range staged {
			rows = append(rows, a.rows...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list what is prepared in database %s: %w", id.database, err)
	}
	var out []participant.Listed
	for _, row := range rows {
		name, err := participant.ParseBranchName(row[1])
		if err != nil {
			continue // somebody else's
		}
		l := participant.Listed{Name: name}
		if since, err := strconv.ParseFloat(row[2], 64); err == nil {
			l.Since = time.UnixMicro(int64(since * 1e6))
		}
		if l.Handle, err = newHandle(id, name, body{Mode: row[0]}); err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// Figures are what an operator watches.
type Figures struct {
	// Prepared and Staged count this adapter's unfinished branches in the database, of all namespaces.
	Prepared, Staged int
	// Oldest is how long the oldest of them has been waiting, by the server's clock. What is prepared
	// keeps locks, and keeps vacuum from removing dead rows in every table (L4): alert on it.
	Oldest     time.Duration
	OldestName string
	// Slots is how many prepared transactions the whole server holds, whoever prepared them, and
	// Limit its max_prepared_transactions.
	Slots, Limit int
}

// Figures asks the server.
func (d *Database) Figures(ctx context.Context) (Figures, error) {
	id, err := d.known(ctx)
	if err != nil {
		return Figures{}, err
	}
	all, err := d.all(ctx, id)
	if err != nil {
		return Figures{}, err
	}
	var f Figures
	var now float64
	err = d.read(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, `SELECT extract(epoch FROM clock_timestamp())::float8, (SELECT count(*) FROM pg_prepared_xacts),
			current_setting('max_prepared_transactions')::int`).Scan(&now, &f.Slots, &f.Limit)
	})
	if err != nil {
		return Figures{}, fmt.Errorf("read the figures of database %s: %w", id.database, err)
	}
	for _, l := range all {
		if b, err := id.readHandle(l.Handle); err == nil && b.Mode == Staged.String() {
			f.Staged++
		} else {
			f.Prepared++
		}
		if age := time.UnixMicro(int64(now * 1e6)).Sub(l.Since); f.OldestName == "" || age > f.Oldest {
			f.Oldest, f.OldestName = age, l.Name.String()
		}
	}
	return f, nil
}

// capacity refuses a server that can't hold what the member may have prepared at once (L7).
func (d *Database) capacity(ctx context.Context, id identity, o participant.Opening) error {
	if d.o.Mode == Staged {
		return nil
	}
	need := max(o.MaxPending, 1)
	var limit, slots int
	err := d.read(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT current_setting('max_prepared_transactions')::int, (SELECT count(*)::int FROM pg_prepared_xacts)").Scan(&limit, &slots)
	})
	switch {
	case err != nil:
		return fmt.Errorf("ask how many prepared transactions the server takes: %w", err)
	case limit < need:
		return fmt.Errorf("the server at %s takes %d prepared transactions (max_prepared_transactions) and this member alone may have %d; raise the setting and restart the server, or use mode staged: %w",
			id.where, limit, need, participant.ErrMisconfigured)
	case limit-slots < need:
		d.o.Logger.WarnContext(ctx, "few prepared transactions are left on the server", obsSlots(slots), obsLimit(limit))
	}
	return nil
}
