package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

func (d *doctor) versions(context.Context) {
	d.judge(d.version >= oldest, Wrong, Finding{
		Subject: d.server, Setting: "version", Found: strconv.Itoa(d.version / 10000), Wanted: "15 or newer", Why: "older ones are not tested",
	})
}

// prepared looks at what may be prepared and at what is. Rows L4 and L7.
func (d *doctor) prepared(ctx context.Context) {
	var limit, now int
	var oldest float64
	var name *string
	err := d.one(ctx, `SELECT current_setting('max_prepared_transactions')::int, count(*)::int, coalesce(extract(epoch FROM now() - min(prepared)), 0)::float8,
		(array_agg(gid ORDER BY prepared))[1] FROM pg_catalog.pg_prepared_xacts`, &limit, &now, &oldest, &name)
	if err != nil {
		d.unknown(d.server, "prepared transactions", "room for more", err)
		return
	}
	need := d.cfg.Members * d.cfg.MaxPending
	if d.cfg.Options.Mode == Staged {
		d.judge(true, Note, Finding{Subject: d.server, Setting: "max_prepared_transactions", Found: strconv.Itoa(limit), Wanted: "any: the mode is staged"})
	} else {
		d.judge(limit > 0, Wrong, Finding{
			Subject: d.server, Setting: "max_prepared_transactions", Found: strconv.Itoa(limit), Wanted: fmt.Sprintf("at least %d", need),
			Why: "nothing can be prepared; set it and restart the server, or use the mode staged",
		})
		d.judge(limit == 0 || limit-now >= need, Warning, Finding{
			Subject: d.server, Setting: "room for prepared transactions", Found: fmt.Sprintf("%d of %d in use", now, limit), Wanted: fmt.Sprintf("%d free", need),
			Why: "an epoch that finds no room fails; raise max_prepared_transactions, which needs a restart, or finish what is prepared",
		})
	}
	age := time.Duration(oldest * float64(time.Second)).Round(time.Second)
	f := Finding{Subject: d.server, Setting: "oldest prepared transaction", Found: "none", Wanted: "younger than " + d.cfg.InDoubt.String()}
	if name != nil {
		f.Found = fmt.Sprintf("%s, since %s", *name, age)
		f.Why = "it holds locks, and vacuum removes nothing that is newer, in no table of the server; see `unisink txn list` whether it is ours and who may finish it"
	}
	d.judge(age <= d.cfg.InDoubt, Warning, f)
	d.restart(ctx, now)
}

// restart looks for a limit in the server's files that is lower than what is prepared: it would not start.
func (d *doctor) restart(ctx context.Context, now int) {
	if now == 0 {
		return
	}
	var next *int
	wanted := fmt.Sprintf("at least %d", now)
	err := d.one(ctx, `SELECT (SELECT setting::int FROM pg_catalog.pg_file_settings WHERE name = 'max_prepared_transactions' AND error IS DISTINCT FROM 'syntax error' ORDER BY seqno DESC LIMIT 1)`, &next)
	switch {
	case err != nil:
		d.unknown(d.server, "max_prepared_transactions after a restart", wanted, err)
	case next != nil:
		d.judge(*next >= now, Wrong, Finding{
			Subject: d.server, Setting: "max_prepared_transactions after a restart", Found: strconv.Itoa(*next), Wanted: wanted,
			Why: fmt.Sprintf("%d are prepared, and a server with a lower limit does not start; finish them first, or leave the limit", now),
		})
	}
}

func (d *doctor) durability(ctx context.Context) {
	got, err := d.settings(ctx, "fsync", "full_page_writes", "synchronous_commit")
	if err != nil {
		d.unknown(d.server, "fsync", "on", err)
		return
	}
	d.judge(got["fsync"] == "on", Warning, Finding{Subject: d.server, Setting: "fsync", Found: got["fsync"], Wanted: "on", Why: "what was promised is lost when the machine loses its power"})
	d.judge(got["full_page_writes"] == "on", Warning, Finding{Subject: d.server, Setting: "full_page_writes", Found: got["full_page_writes"], Wanted: "on", Why: "pages may be torn when the machine loses its power, unless its file system prevents that"})
	sync := got["synchronous_commit"]
	if o := d.cfg.Options; o.Pooler && o.Mode != Staged {
		d.judge(strong(sync), Wrong, Finding{
			Subject: "role " + d.role, Setting: "synchronous_commit", Found: sync, Wanted: "on",
			Why: "through a pooler nothing can be set for COMMIT PREPARED, and a fail-over may take back what was proven; ALTER ROLE, or use mode staged",
		})
		return
	}
	d.judge(sync != "off", Note, Finding{Subject: "role " + d.role, Setting: "synchronous_commit", Found: sync, Wanted: "on", Why: "it is set to on in the transactions that prepare and commit; others of the role may be lost"})
}

// patience looks for time-outs that end a transaction which waits for the end of its epoch.
func (d *doctor) patience(ctx context.Context) {
	names := []string{"idle_in_transaction_session_timeout", "statement_timeout", "transaction_timeout"}
	got, err := d.settings(ctx, names...)
	if err != nil {
		d.unknown("role "+d.role, names[0], "0", err)
		return
	}
	for _, n := range names {
		v, has := got[n]
		if !has {
			continue
		}
		d.judge(v == "0", Warning, Finding{
			Subject: "role " + d.role, Setting: n, Found: v, Wanted: "0", Why: "a transaction is open as long as its epoch, and longer when the pipeline is held back; one that is ended by the server fails its epoch",
		})
	}
}

func (d *doctor) replication(ctx context.Context) {
	var standby bool
	var names, level string
	var syncs, slots int
	err := d.one(ctx, `SELECT pg_is_in_recovery(), current_setting('synchronous_standby_names'), current_setting('wal_level'),
		(SELECT count(*)::int FROM pg_catalog.pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
		(SELECT count(*)::int FROM pg_catalog.pg_replication_slots WHERE NOT active)`, &standby, &names, &level, &syncs, &slots)
	if err != nil {
		d.unknown(d.server, "replication", "a primary", err)
		return
	}
	found := map[bool]string{true: "a standby", false: "the primary, wal_level " + level}[standby]
	d.judge(!standby, Wrong, Finding{Subject: d.server, Setting: "role in replication", Found: found, Wanted: "the primary", Why: "a standby can neither write nor prove anything; say target_session_attrs=read-write"})
	if names != "" {
		d.judge(syncs > 0, Note, Finding{
			Subject: d.server, Setting: "synchronous standbys", Found: fmt.Sprintf("%d of %q", syncs, names), Wanted: "at least one",
			Why: "none is seen, by this role at least: without one every commit waits",
		})
	}
	d.judge(slots == 0, Warning, Finding{Subject: d.server, Setting: "replication slots that nobody reads", Found: strconv.Itoa(slots), Wanted: "0", Why: "the server keeps its log for them until its disk is full"})
}

// between looks for a pooler: the process that answers is not the one that the connection was told of.
func (d *doctor) between(ctx context.Context) {
	var pid uint32
	if err := d.one(ctx, "SELECT pg_backend_pid()::int8", &pid); err != nil {
		d.unknown("the connection", "pooler", "known", err)
		return
	}
	pooled := pid != d.c.PgConn().PID()
	f := Finding{Subject: "the connection", Setting: "pooler", Found: "none is seen", Wanted: "as the settings say"}
	if pooled {
		f.Found = "there is one"
	}
	f.Why = "say pooler: true, else what is kept in a session is another client's a moment later; statement pooling is not supported"
	if d.cfg.Options.Pooler {
		f.Why = "the settings say that there is one; without, prepared statements would be used"
	}
	d.judge(pooled == d.cfg.Options.Pooler, map[bool]Severity{true: Warning, false: Note}[pooled], f)
}

// tolerance is how far clocks may be apart.
const tolerance = 5 * time.Second

// clock compares the server's clock with this machine's.
func (d *doctor) clock(ctx context.Context) {
	before := time.Now()
	var theirs time.Time
	if err := d.one(ctx, "SELECT clock_timestamp()", &theirs); err != nil {
		d.unknown(d.server, "clock", "this machine's", err)
		return
	}
	after := time.Now()
	var off time.Duration
	switch { // within the round trip nothing is known
	case theirs.Before(before):
		off = theirs.Sub(before)
	case theirs.After(after):
		off = theirs.Sub(after)
	}
	d.judge(off.Abs() <= tolerance, Warning, Finding{
		Subject: d.server, Setting: "clock", Found: fmt.Sprintf("%s off this machine's", off.Round(time.Millisecond)), Wanted: "within " + tolerance.String(), Why: "ages of prepared transactions and of markers go by it",
	})
}
