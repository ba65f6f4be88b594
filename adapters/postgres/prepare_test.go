package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/participant"
)

// PREPARE of a transaction that has failed or ended is no error: the server answers ROLLBACK.
func TestAStatementThatEndsTheTransactionMakesTheVoteNo(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	d := r.opened(1)
	n := uint64(0)
	for _, sql := range []string{"COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "PREPARE TRANSACTION 'own'", "DEALLOCATE ALL"} {
		n++
		b := r.begin(d, 1, n, "a")
		if _, err := b.Exec(r.ctx, sql); !errors.Is(err, participant.ErrBug) {
			t.Errorf("%s: %v, want a bug of the caller", sql, err)
		}
		if why := r.refused(b); !errors.Is(why, participant.ErrBug) {
			t.Errorf("the reason of the no: %v", why)
		}
	}
	r.query("ROLLBACK PREPARED 'own'", "SELECT ''")
	if _, err := r.begin(d, 1, 20, "a").Exec(r.ctx, "COMMIT; BEGIN"); err == nil {
		t.Error("two statements were taken for one")
	}
	behind := r.begin(d, 1, 21, "lost")
	if _, err := behind.tx.conn.Conn().Exec(r.ctx, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if why := r.refused(behind); !errors.Is(why, participant.ErrBug) {
		t.Errorf("the reason of the no: %v", why)
	}
	if got := r.query("SELECT count(*)::text FROM unisink.commits"); got[0] != "0" {
		t.Errorf("%s markers were left by branches that said no", got[0])
	}
}

// Row O6: what the tables refuse comes up before the vote.
func TestO6_WhatTablesRefuseIsANo(t *testing.T) {
	t.Run("prepared", func(t *testing.T) {
		r := newRig(t, services.PostgresCurrent, Prepared)
		r.query("CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)", "SELECT ''")
		d := r.opened(1)
		b := r.begin(d, 1, 1)
		if _, err := b.Exec(r.ctx, "INSERT INTO child VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		if why := r.refused(b); !strings.Contains(why.Error(), "foreign key constraint") {
			t.Errorf("the reason: %v; want the server's sentence", why)
		}
		temp := r.begin(d, 1, 2)
		if _, err := temp.Exec(r.ctx, "CREATE TEMP TABLE scratch (a int)"); err != nil {
			t.Fatal(err)
		}
		if why := r.refused(temp); !strings.Contains(why.Error(), "temporary") {
			t.Errorf("the reason: %v; want the server's sentence", why)
		}
	})
	t.Run("staged", func(t *testing.T) {
		r := newRig(t, services.PostgresCurrent, Staged)
		r.query("ALTER TABLE out ADD CHECK (v <> 'bad')", "SELECT ''")
		d := r.opened(1)
		if why := r.refused(r.begin(d, 1, 1, "good", "bad")); !strings.Contains(why.Error(), "check constraint") {
			t.Errorf("the reason: %v; want the server's sentence", why)
		}
		r.commit(d, r.prepared(r.begin(d, 1, 2, "good")))
		r.sees("good")
	})
}

// Row O6: after the decision nothing is rolled back, whatever the tables say then.
func TestO6_ADecidedBranchWaitsForItsTable(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Staged)
	d := r.opened(1)
	h := r.prepared(r.begin(d, 1, 1, "a"))
	r.query("ALTER TABLE out ADD CONSTRAINT none CHECK (false)", "SELECT ''")
	if p, err := d.Commit(r.ctx, h); err == nil || !strings.Contains(err.Error(), "make room") {
		t.Fatalf("commit into a table that refuses: verdict %d, error %v", p.Verdict, err)
	}
	r.is(d, h, participant.Undecided)
	r.query("ALTER TABLE out DROP CONSTRAINT none", "SELECT ''")
	r.commit(d, h)
	r.sees("a")
}

// Row E1.
func TestE1_WhatWroteNothingIsReadOnly(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	d := r.opened(1)
	for n, sql := range []string{"", "SELECT * FROM out", "UPDATE out SET v = 'b' WHERE v = 'none'"} {
		b := r.begin(d, 1, uint64(n+1))
		if sql != "" {
			if _, err := b.Exec(r.ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
		if v, err := b.Prepare(r.ctx); err != nil || v.Kind != participant.ReadOnly {
			t.Errorf("%q: vote %d, reason %v, error %v; want read-only", sql, v.Kind, v.Reason, err)
		}
	}
	if got := r.query("SELECT count(*)::text FROM pg_prepared_xacts WHERE database = current_database()"); got[0] != "0" {
		t.Errorf("%s transactions are prepared", got[0])
	}
}

func TestASessionIsCleanForTheNextBranch(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	d := r.opened(1)
	b := r.begin(d, 1, 1, "a")
	for _, sql := range []string{"SET search_path = pg_catalog", "SET synchronous_commit = off", "SELECT pg_advisory_lock(42)"} {
		if _, err := b.Exec(r.ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	pid := b.tx.pid
	first := r.prepared(b)
	next := r.begin(d, 1, 2, "b")
	var path, sync string
	if err := next.tx.conn.QueryRow(r.ctx, "SELECT current_setting('search_path'), current_setting('synchronous_commit')").Scan(&path, &sync); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(path, "pg_catalog") || sync != "on" {
		t.Errorf("search_path %q, synchronous_commit %q are left in the session (backend %s, before %s)", path, sync, next.tx.pid, pid)
	}
	if got := r.query("SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND objsubid = 1"); got[0] != "0" {
		t.Errorf("the lock of an earlier branch is still held")
	}
	if pid != next.tx.pid {
		t.Errorf("the session was thrown away: backend %s, before %s", next.tx.pid, pid)
	}
	r.commit(d, r.prepared(next))
	r.rollback(d, first)
	r.sees("b")
}

// Row I7.
func TestI7_ANameThatDoesNotFitIsRefusedAtOpen(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	o := generation(1)
	o.Member = strings.Repeat("m", 180)
	if err := r.process().Open(r.ctx, o); !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "shorten") {
		t.Fatalf("open with a member of 180 bytes: %v", err)
	}
}

// Row L4.
func TestL4_TheAgeOfTheOldestIsAFigure(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	d := r.opened(1)
	if f, err := d.Figures(r.ctx); err != nil || f.Prepared != 0 || f.Oldest != 0 || f.Limit == 0 {
		t.Fatalf("figures of an empty database: %+v, %v", f, err)
	}
	h := r.prepared(r.begin(d, 1, 1, "a"))
	r.query("SELECT pg_sleep(0.1)::text")
	young := r.prepared(r.begin(d, 1, 2, "b"))
	f, err := d.Figures(r.ctx)
	if err != nil || f.Prepared != 2 || f.OldestName != h.Name || f.Oldest < 100*time.Millisecond || f.Slots < 2 {
		t.Errorf("figures: %+v, %v", f, err)
	}
	r.rollback(d, h)
	r.rollback(d, young)
}

func TestAPrepareGoesOnWithoutItsCaller(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	wire := &wire{}
	d := r.opened(1, wire.into)
	b := r.begin(d, 1, 1, "a")
	ctx, cancel := context.WithCancel(r.ctx)
	wire.before("PREPARE TRANSACTION", func() bool { cancel(); return true })
	if v, err := b.Prepare(ctx); err == nil && v.Kind != participant.Yes {
		t.Fatalf("prepare whose caller went away: vote %d", v.Kind)
	}
	r.commit(d, r.prepared(b))
	r.sees("a")
}

// Row T5.
func TestT5_ATableThatWasMadeAnewTakesNothing(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Staged)
	d := r.opened(1)
	h := r.prepared(r.begin(d, 1, 1, "a"))
	r.query("ALTER TABLE out RENAME TO older", "CREATE TABLE out (v text)", "SELECT ''")
	if p, err := d.Commit(r.ctx, h); err == nil || !strings.Contains(err.Error(), "made anew") {
		t.Errorf("commit into another table of the name: verdict %d, error %v", p.Verdict, err)
	}
	r.is(d, h, participant.Undecided)
	r.sees()
	r.query("DROP TABLE out", "ALTER TABLE older RENAME TO out", "SELECT ''")
	r.commit(d, h)
	r.sees("a")
}

// Row T5.
func TestT5_StagedRowsThatSomebodyRemovedAreMissed(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Staged)
	d := r.opened(1)
	h := r.prepared(r.begin(d, 1, 1, "a", "b"))
	r.query("CREATE TABLE kept AS SELECT * FROM unisink.staged_rows", "DELETE FROM unisink.staged_rows WHERE ord = 1", "SELECT ''")
	if p, err := d.Commit(r.ctx, h); !errors.Is(err, participant.ErrUndeterminable) || !strings.Contains(err.Error(), "prepared with 2 rows and unisink.staged_rows has 1") {
		t.Errorf("commit without one of its rows: verdict %d, error %v", p.Verdict, err)
	}
	r.is(d, h, participant.Undecided)
	r.sees()
	r.query("INSERT INTO unisink.staged_rows SELECT * FROM kept WHERE ord = 1", "SELECT ''")
	r.commit(d, h)
	r.sees("a", "b")
}

// Row L7.
func TestL7_AServerThatTakesTooFewIsToldAtOpen(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	o := generation(1)
	o.MaxPending = 100000
	err := r.process().Open(r.ctx, o)
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "max_prepared_transactions") || !strings.Contains(err.Error(), "mode staged") {
		t.Errorf("open for 100000 branches: %v; want both ways out", err)
	}
	if err := r.process(func(o *Options) { o.Mode = Staged }).Open(r.ctx, o); err != nil {
		t.Errorf("staged mode needs none of them: %v", err)
	}
}
