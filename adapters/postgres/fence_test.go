package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/participant"
)

// stays checks that a branch of an older generation gets no yes.
func (r *rig) fencedOff(b *Branch) {
	r.Helper()
	v, err := b.Prepare(r.ctx)
	if err == nil && v.Kind == participant.Yes {
		r.Fatalf("%s was prepared after a newer generation had been opened", b.gid)
	}
	if err := errors.Join(err, v.Reason); !errors.Is(err, participant.ErrFenced) {
		r.Errorf("%s ends with %v, want fenced", b.gid, err)
	}
}

// Row Z2: a process that was paused wakes up in every state that a branch can have.
func TestZ2_AZombieWritesNothing(t *testing.T) {
	for _, mode := range []Mode{Prepared, Staged} {
		t.Run(mode.String(), func(t *testing.T) {
			r := newRig(t, services.PostgresCurrent, mode)
			zombie := r.opened(1)
			prepared, written, begun := r.prepared(r.begin(zombie, 1, 1, "decided")), r.begin(zombie, 1, 2, "written"), r.begin(zombie, 1, 3)
			fresh := r.opened(2)
			r.fencedOff(written)
			if err := put(r.ctx, begun, "late"); !errors.Is(err, participant.ErrFenced) {
				t.Errorf("a zombie's write: %v, want fenced", err)
			}
			r.fencedOff(begun)
			new := r.begin(zombie, 1, 4)
			if err := put(r.ctx, new, "later"); !errors.Is(err, participant.ErrFenced) {
				t.Errorf("a zombie's write: %v, want fenced", err)
			}
			r.fencedOff(new)
			if err := zombie.Open(r.ctx, generation(1)); !errors.Is(err, participant.ErrFenced) {
				t.Errorf("opening generation 1 again: %v, want fenced", err)
			}
			r.commit(fresh, prepared)
			r.commit(fresh, r.prepared(r.begin(fresh, 2, 1, "new")))
			r.sees("decided", "new")
		})
	}
}

// Row P12: between the end of the older backends and the raise a zombie could begin; so the fence is
// raised first.
func TestP12_TheFenceIsRaisedFirst(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	zombie, fresh := r.opened(1), r.process()
	var late *Branch
	fresh.hook = func(step string) {
		if step == "open: between raise and clear" {
			late = r.begin(zombie, 1, 1)
			if err := put(r.ctx, late, "late"); err != nil && !errors.Is(err, participant.ErrFenced) {
				t.Errorf("a zombie's write: %v", err)
			}
		}
	}
	if err := fresh.Open(r.ctx, generation(2)); err != nil {
		t.Fatal(err)
	}
	r.fencedOff(late)
	r.sees()
}

// Row P12: under REPEATABLE READ the fence would be read as it was when the lock was asked for.
func TestP12_AZombieReadsTheFenceAsItIs(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	zombie := r.opened(1, func(o *Options) {
		o.DSN += "&options=-c%20default_transaction_isolation%3Drepeatable%5C%20read"
		o.LockTimeout = time.Minute
	})
	// Somebody delays the zombie's lock, so that its snapshot, had it one, is older than the raise.
	holder, err := pgx.Connect(r.ctx, r.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close(context.Background()) }()
	if _, err := holder.Exec(r.ctx, "SELECT pg_advisory_lock("+zombie.t.fence+", "+zombie.t.turn+")"); err != nil {
		t.Fatal(err)
	}
	late := r.begin(zombie, 1, 1)
	written := make(chan error, 1)
	go func() { written <- put(r.ctx, late, "late") }()
	r.until("SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid::bigint = "+zombie.t.fence, "1")
	r.opened(2)
	if _, err := holder.Exec(r.ctx, "SELECT pg_advisory_unlock_all()"); err != nil {
		t.Fatal(err)
	}
	if err := <-written; !errors.Is(err, participant.ErrFenced) {
		t.Errorf("the zombie's write: %v, want fenced", err)
	}
	r.fencedOff(late)
	r.sees()
}

// Row P12: what an older generation has prepared is waited for by nobody.
func TestP12_OpenWaitsForNothingThatIsPrepared(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	first := r.opened(1)
	h := r.prepared(r.begin(first, 1, 1, "a"))
	second := r.opened(2)
	r.is(second, h, participant.Undecided)
	if got := r.query("SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid IS NULL AND classid::bigint = " + first.t.fence); got[0] != "1" {
		t.Errorf("%s prepared branches hold the fence's lock, want 1", got[0])
	}
	r.rollback(second, h)
	r.sees()
}

func TestOlderBackendsAreEnded(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	zombie := r.opened(1)
	b := r.begin(zombie, 1, 1, "a")
	pid := b.tx.pid
	r.opened(2)
	if got := r.query("SELECT count(*)::text FROM pg_stat_activity WHERE pid = " + pid); got[0] != "0" {
		t.Errorf("backend %s of the older generation still lives", pid)
	}
	r.fencedOff(b)
}

func TestTwoMembersDoNotFenceEachOther(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	one, two := r.opened(1), r.process()
	o := generation(2)
	o.Member = "sink-eu"
	if err := two.Open(r.ctx, o); err != nil {
		t.Fatal(err)
	}
	r.commit(one, r.prepared(r.begin(one, 1, 1, "a")))
	r.sees("a")
}

// Row L6.
func TestL6_AWaitForALockNamesWhoHoldsIt(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	r.query("CREATE TABLE totals (k text PRIMARY KEY, n int)", "INSERT INTO totals VALUES ('x', 1)", "SELECT ''")
	quick := func(o *Options) { o.LockTimeout = time.Second }
	d := r.opened(1, quick)
	first := r.begin(d, 1, 1)
	if _, err := first.Exec(r.ctx, "UPDATE totals SET n = 2 WHERE k = $1", "x"); err != nil {
		t.Fatal(err)
	}
	h := r.prepared(first)
	for what, sql := range map[string]string{"a row": "UPDATE totals SET n = 3 WHERE k = 'x'", "a table": "LOCK TABLE totals"} {
		second := r.begin(d, 1, 2)
		_, err := second.Exec(r.ctx, sql)
		if err == nil || !strings.Contains(err.Error(), "the prepared transaction "+h.Name) {
			t.Errorf("waiting for %s: %v; want the name of %s", what, err, h.Name)
		}
		if why := r.refused(second); !strings.Contains(why.Error(), h.Name) {
			t.Errorf("the reason of the no: %v", why)
		}
	}
	holder := r.begin(d, 1, 3)
	if _, err := holder.Exec(r.ctx, "LOCK TABLE out"); err != nil {
		t.Fatal(err)
	}
	waiter := r.begin(d, 1, 4)
	if err := put(r.ctx, waiter, "a"); err == nil || !strings.Contains(err.Error(), "backend "+holder.tx.pid+" (unisink)") {
		t.Errorf("waiting for a living branch: %v; want its backend %s", err, holder.tx.pid)
	}
	r.rollback(d, h)
}
