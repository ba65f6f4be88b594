package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
)

// Row O2.
func TestO2_WhatIsNotFoundIsToldByItsMarker(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	d := r.opened(1)
	kept, dropped := r.prepared(r.begin(d, 1, 1, "kept")), r.prepared(r.begin(d, 1, 2, "dropped"))
	r.query("COMMIT PREPARED "+literal(kept.Name), "ROLLBACK PREPARED "+literal(dropped.Name), "SELECT ''")
	if p := r.commit(d, kept); !strings.Contains(p.Evidence, "unisink.commits") {
		t.Errorf("the evidence is %q", p.Evidence)
	}
	r.is(d, kept, participant.StateCommitted)
	if p, err := d.Rollback(r.ctx, kept); err != nil || p.Verdict != participant.Committed {
		t.Errorf("rollback of what is committed: verdict %d, error %v", p.Verdict, err)
	}
	p, err := d.Commit(r.ctx, dropped)
	if err != nil || p.Verdict != participant.RolledBack || !strings.Contains(p.Evidence, "commit log") {
		t.Errorf("commit of what a stranger rolled back: verdict %d, evidence %q, error %v; want the proof of the opposite", p.Verdict, p.Evidence, err)
	}
	r.is(d, dropped, participant.StateRolledBack)
	r.sees("kept")
}

// Row O10: a marker that somebody removed proves nothing by its absence.
func TestO10_AMarkerThatIsGoneIsNoRollback(t *testing.T) {
	for _, mode := range []Mode{Prepared, Staged} {
		for what, remove := range map[string]string{
			"deleted": "DELETE FROM unisink.commits", "truncated": "TRUNCATE unisink.commits", "dropped": "DROP SCHEMA unisink CASCADE",
		} {
			t.Run(mode.String()+"/"+what, func(t *testing.T) {
				r := newRig(t, services.PostgresCurrent, mode)
				d := r.opened(1)
				h := r.prepared(r.begin(d, 1, 1, "a"))
				r.commit(d, h)
				r.query(remove, "SELECT ''")
				if p, err := d.Commit(r.ctx, h); !errors.Is(err, participant.ErrUndeterminable) {
					t.Errorf("commit: verdict %d by %q, error %v; want that nobody can tell", p.Verdict, p.Evidence, err)
				}
				r.is(d, h, participant.Unknown)
				r.sees("a")
				if what != "deleted" {
					return
				}
				// The marker comes back: then it is told.
				r.query("INSERT INTO unisink.commits (gid) VALUES ("+literal(h.Name)+")", "SELECT ''")
				r.commit(d, h)
			})
		}
	}
}

// A transaction id that the server has not given out yet, or given to somebody else: the server was set back.
func TestAServerThatWasSetBackProvesWhatItLacks(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	d := r.opened(1)
	id, err := d.known(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	of := func(xid string) participant.Handle {
		h, err := newHandle(id, epoch(1, 9), body{Mode: "prepared", XID: xid})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	future := of("9000000000")
	if p, err := d.Commit(r.ctx, future); err != nil || p.Verdict != participant.RolledBack || !strings.Contains(p.Evidence, "set back") {
		t.Errorf("an id of the future: verdict %d, evidence %q, error %v", p.Verdict, p.Evidence, err)
	}
	r.is(d, future, participant.StateRolledBack)
	strangers := r.query("BEGIN", "INSERT INTO out VALUES ('other')", "SELECT pg_current_xact_id()::text") // its client ends, and it aborts
	r.until("SELECT pg_xact_status('"+strangers[0]+"')", "aborted")
	r.is(d, of(strangers[0]), participant.StateRolledBack)
	committed := r.query("INSERT INTO out VALUES ('other') RETURNING pg_current_xact_id()::text")
	if p, err := d.Commit(r.ctx, of(committed[0])); err == nil {
		t.Errorf("an id that committed without a marker proves verdict %d by %q", p.Verdict, p.Evidence)
	}
	r.is(d, of(committed[0]), participant.Unknown)
	r.is(d, of("3"), participant.Unknown) // older than the commit log
}

// Row P16: whoever looks for the marker first can see neither it nor the list's entry.
func TestP16_TheListIsReadFirst(t *testing.T) {
	for _, mode := range []Mode{Prepared, Staged} {
		t.Run(mode.String(), func(t *testing.T) {
			r := newRig(t, services.PostgresCurrent, mode)
			d, other := r.opened(1), r.process()
			h := r.prepared(r.begin(d, 1, 1, "a"))
			var once bool
			d.hook = func(step string) {
				if step == "look: between list and marker" && !once {
					once = true
					r.commit(other, h)
				}
			}
			r.is(d, h, participant.StateCommitted)
			r.sees("a")
		})
	}
}

// Row L5.
func TestL5_AHandleIsOfOneDatabase(t *testing.T) {
	one, two := newRig(t, services.PostgresCurrent, Prepared), newRig(t, services.PostgresCurrent, Prepared)
	here := one.opened(1)
	h := one.prepared(one.begin(here, 1, 1, "a"))
	elsewhere := two.opened(1)
	if _, err := elsewhere.Commit(two.ctx, h); !errors.Is(err, participant.ErrUnknownHandle) {
		t.Errorf("commit in another database of the server: %v, want ErrUnknownHandle", err)
	}
	if found, err := elsewhere.List(two.ctx, h2ns(t, h)); err != nil || len(found) != 0 {
		t.Errorf("another database lists %v, %v", found, err)
	}
	one.commit(here, h)
	one.sees("a")
}

func h2ns(t *testing.T, h participant.Handle) participant.Namespace {
	t.Helper()
	n, err := participant.ParseBranchName(h.Name)
	if err != nil {
		t.Fatal(err)
	}
	return n.Namespace
}

func TestAnotherRoleFinishesAsTheOwnerOrSaysHow(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	suffix := r.query("SELECT current_database()")[0]
	writer, friend, stranger := "w_"+suffix, "f_"+suffix, "s_"+suffix
	r.opened(1) // makes the schema
	for _, role := range []string{writer, friend, stranger} {
		r.query("CREATE ROLE "+role+" LOGIN", "GRANT ALL ON out TO "+role, "GRANT USAGE ON SCHEMA unisink TO "+role,
			"GRANT ALL ON ALL TABLES IN SCHEMA unisink TO "+role, "SELECT ''")
		t.Cleanup(func() { queryOn(t, r.dsn, "DROP OWNED BY "+role, "DROP ROLE "+role, "SELECT ''") })
	}
	r.query("GRANT "+writer+" TO "+friend, "SELECT ''")
	as := func(role string) func(*Options) {
		return func(o *Options) { o.DSN = strings.Replace(o.DSN, "postgres@", role+"@", 1) }
	}
	d := r.opened(2, as(writer))
	h := r.prepared(r.begin(d, 2, 1, "a"))
	_, err := r.process(as(stranger)).Commit(r.ctx, h)
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "GRANT "+writer) {
		t.Errorf("a stranger's commit: %v; want misconfigured, with the grant that helps", err)
	}
	f := r.process(as(friend))
	r.commit(f, h)
	r.sees("a")
	// The session that became the owner is not used for anything else.
	var who string
	pool, err := f.conns(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.QueryRow(r.ctx, "SELECT current_user").Scan(&who); err != nil || who != friend {
		t.Errorf("the next session is %s's, %v", who, err)
	}
}

func TestASchemaThatMayNotBeMadeIsToldInOneSentence(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	role := "plain_" + r.query("SELECT current_database()")[0]
	r.query("CREATE ROLE "+role+" LOGIN", "GRANT ALL ON out TO "+role, "SELECT ''")
	t.Cleanup(func() { queryOn(t, r.dsn, "DROP OWNED BY "+role, "DROP ROLE "+role, "SELECT ''") })
	d := r.process(func(o *Options) { o.DSN = strings.Replace(o.DSN, "postgres@", role+"@", 1) })
	err := d.Open(r.ctx, generation(1))
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "unisink postgres init") {
		t.Fatalf("open without the right to make the schema: %v", err)
	}
	queryOn(t, r.dsn, Schema(), Grants(role), "SELECT ''")
	if err := d.Open(r.ctx, generation(1)); err != nil {
		t.Fatalf("open after an owner has made it: %v", err)
	}
	r.commit(d, r.prepared(r.begin(d, 1, 1, "a")))
	r.sees("a")
}

func TestOldMarkersGoAndYoungOnesStay(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	d := r.opened(1)
	old, young := r.prepared(r.begin(d, 1, 1, "a")), r.prepared(r.begin(d, 1, 2, "b"))
	r.commit(d, old)
	r.commit(d, young)
	r.query("UPDATE unisink.commits SET at = now() - interval '31 days' WHERE gid = "+literal(old.Name), "SELECT ''")
	r.opened(2)
	if got := r.query("SELECT gid FROM unisink.commits"); len(got) != 1 || got[0] != young.Name {
		t.Errorf("markers left: %q", got)
	}
}

func TestAnotherServerAtTheSameAddressProvesNothing(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	d := r.opened(1)
	h := r.prepared(r.begin(d, 1, 1, "a"))
	other := servicestest.Postgres(t, services.PostgresCurrent)
	pool, err := Options{DSN: other}.withDefaults().newPool(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	mine := d.pool
	d.pool = pool // as if the name in the connection string led there now
	d.mu.Unlock()
	if p, err := d.Commit(r.ctx, h); err == nil {
		t.Errorf("commit proves verdict %d by %q", p.Verdict, p.Evidence)
	}
	d.mu.Lock()
	d.pool = mine
	d.mu.Unlock()
	pool.Close()
	r.commit(d, h)
}

// Through a pooler nothing can be set for COMMIT PREPARED: a role that does not wait is refused before anything is
// prepared, and so is a finisher's.
func TestARoleThatDoesNotWaitIsRefusedThroughAPooler(t *testing.T) {
	for _, sync := range []string{"off", "local", "remote_write", "on", "remote_apply"} {
		r := newRig(t, services.PostgresCurrent, Prepared)
		h := r.prepared(r.begin(r.opened(1), 1, 1, "a"))
		name := pgx.Identifier{r.query("SELECT current_database()::text")[0]}.Sanitize()
		r.query("ALTER DATABASE "+name+" SET synchronous_commit = "+sync, "SELECT ''")
		pooled := func(o *Options) { o.Pooler = true }
		opened := r.process(pooled).Open(r.ctx, generation(2))
		_, committed := r.process(pooled).Commit(r.ctx, h)
		for what, err := range map[string]error{"open": opened, "commit": committed} {
			if refused := errors.Is(err, participant.ErrMisconfigured); refused != !strong(sync) {
				t.Errorf("%s with synchronous_commit = %s: %v", what, sync, err)
			} else if refused {
				oneSentence(t, err, "synchronous_commit = "+sync, "ALTER ROLE", "mode staged")
			}
		}
		for _, f := range []func(*Options){func(*Options) {}, func(o *Options) { o.Pooler, o.Mode = true, Staged }} {
			if err := r.process(f).Open(r.ctx, generation(3)); err != nil {
				t.Errorf("it is set where it can be, with synchronous_commit = %s: %v", sync, err)
			}
		}
		if committed != nil {
			r.commit(r.process(), h)
		}
	}
}
