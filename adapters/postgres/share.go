package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Shares reports whether another resource is the same database, so that its records belong into the branches of this
// one: see Branch.WriteFor. Two branches of one epoch in one database could wait for each other's locks, and once the
// first is prepared no deadlock detector sees that. The error is participant.ErrMisconfigured if the two are
// one database and are set up differently, else it says that one of them could not be asked who it is.
func (d *Database) Shares(ctx context.Context, other participant.Resource) (bool, error) {
	o, ok := other.(*Database)
	if !ok {
		return false, nil
	}
	if o == d {
		return true, nil
	}
	mine, err := d.known(ctx)
	if err != nil {
		return false, err
	}
	theirs, err := o.known(ctx)
	if err != nil || mine.String() != theirs.String() {
		return false, err
	}
	return true, differs(d.o, o.o)
}

// Together reports, without connecting, whether two options lead to the same database under the same address. The error
// says what differs between them and must not, as that of Shares does, or that one cannot be read.
func Together(a, b Options) (bool, error) {
	where := func(o Options) (string, error) {
		if err := checkDSN(o.DSN); err != nil {
			return "", err
		}
		c, err := pgx.ParseConfig(o.DSN)
		if err != nil {
			return "", fmt.Errorf("the connection string can't be read: %w", participant.ErrMisconfigured)
		}
		return strings.ToLower(whereOf(c)), nil
	}
	here, err := where(a)
	if err != nil {
		return false, err
	}
	there, err := where(b)
	if err != nil || here != there {
		return false, err
	}
	return true, differs(a.withDefaults(), b.withDefaults())
}

// differs says in what two that share their branches must not differ, and do.
func differs(a, b Options) error {
	var what []string
	add := func(setting string, x, y any) {
		if x != y {
			what = append(what, fmt.Sprintf("%s is %v and %v", setting, x, y))
		}
	}
	add("mode", a.Mode, b.Mode)
	add("lock_timeout", a.LockTimeout, b.LockTimeout)
	add("retention", a.Retention, b.Retention)
	add("pooler", a.Pooler, b.Pooler)
	one, err := pgx.ParseConfig(a.DSN)
	if err == nil {
		var two *pgx.ConnConfig
		if two, err = pgx.ParseConfig(b.DSN); err == nil {
			add("the role", one.User, two.User)
			if other := unlike(one.RuntimeParams, two.RuntimeParams); len(other) > 0 {
				what = append(what, "the parameters of the session ("+strings.Join(other, ", ")+") are not the same")
			}
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("the connection string can't be read: %w", participant.ErrMisconfigured)
	case len(what) == 0:
		return nil
	}
	return fmt.Errorf("what one epoch writes to one database is one transaction, and %s: say the same for both: %w", strings.Join(what, ", "), participant.ErrMisconfigured)
}

// unlike names the parameters that differ; what a session calls itself does not matter.
func unlike(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	delete(all, "application_name")
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(k string) bool {
		x, here := a[k]
		y, there := b[k]
		return here && there && x == y
	})
}

// WriteFor is Write of records of another Database that this one Shares: they go to its one table, as part of this
// branch, which is then the only one of both.
func (b *Branch) WriteFor(ctx context.Context, other participant.Resource, records []stream.Record) error {
	o, ok := other.(*Database)
	if !ok || len(o.o.Tables) != 1 {
		return fmt.Errorf("write records to %s for another: it has to be a database with one table: %w", b.name, participant.ErrBug)
	}
	if o == b.d {
		return b.Write(ctx, records)
	}
	return b.add(ctx, o.o.Tables[0].Name, func(w *writing) (*tableWriter, error) { return w.of(ctx, o) }, records)
}

// of returns the writer for the table of another database, which is made with the first record for it.
func (w *writing) of(ctx context.Context, o *Database) (*tableWriter, error) {
	if t := w.others[o]; t != nil {
		return t, nil
	}
	targets, err := o.tables.get(ctx, o)
	if err != nil {
		return nil, err
	}
	t := w.writer(targets[0])
	if w.others == nil {
		w.others = map[*Database]*tableWriter{}
	}
	w.others[o] = t
	w.tables = append(w.tables, t)
	return t, nil
}
