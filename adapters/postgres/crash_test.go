package postgres

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
)

// lazy is a server whose default is to make commits durable some time later, as roles may have it.
func lazy(t *testing.T) *services.PostgresServer {
	return servicestest.OwnPostgres(t, services.PostgresConfig{Settings: map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s"}})
}

func restart(t testing.TB, s *services.PostgresServer) {
	t.Helper()
	if err := errors.Join(s.Kill(), s.Restart(context.WithoutCancel(t.Context()))); err != nil {
		t.Fatal(err)
	}
}

func TestAVoteSurvivesTheServer(t *testing.T) {
	s := lazy(t)
	for _, mode := range []Mode{Prepared, Staged} {
		t.Run(mode.String(), func(t *testing.T) {
			name := mode.String()
			queryOn(t, s.DSN(), "CREATE DATABASE "+name, "SELECT ''")
			r := rigOn(t, s.Database(name), mode)
			d := r.opened(1)
			kept, dropped := r.prepared(r.begin(d, 1, 1, "a")), r.prepared(r.begin(d, 1, 2, "b"))
			restart(t, s)
			r.is(d, kept, participant.Undecided)
			r.commit(d, kept)
			r.rollback(d, dropped)
			restart(t, s)
			r.is(d, kept, participant.StateCommitted)
			r.is(d, dropped, participant.StateRolledBack)
			r.sees("a")
		})
	}
}

// Row O3: every error after a commit was sent means unknown, and is looked up.
func TestO3_ALostAnswerIsLookedUp(t *testing.T) {
	for _, mode := range []Mode{Prepared, Staged} {
		word := map[Mode]string{Prepared: "COMMIT PREPARED", Staged: "unisink.commits"}[mode]
		t.Run(mode.String(), func(t *testing.T) {
			r := newRig(t, services.PostgresCurrent, mode)
			w := &wire{}
			d := r.opened(1, w.into)
			done, undone := r.prepared(r.begin(d, 1, 1, "a")), r.prepared(r.begin(d, 1, 2, "b"))
			w.after(word)
			if p := r.commit(d, done); mode == Prepared && !strings.Contains(p.Evidence, "marker") {
				t.Errorf("the evidence is %q, and the answer was lost", p.Evidence)
			}
			w.before(word, func() bool { return false })
			r.commit(d, undone)
			r.sees("a", "b")
		})
	}
}

// Row O3: the same for Prepare: Yes where the server did it, No where it did not.
func TestO3_ALostPrepareIsLookedUp(t *testing.T) {
	for _, mode := range []Mode{Prepared, Staged} {
		word := map[Mode]string{Prepared: "PREPARE TRANSACTION", Staged: "COMMIT"}[mode]
		t.Run(mode.String(), func(t *testing.T) {
			r := newRig(t, services.PostgresCurrent, mode)
			w := &wire{}
			d := r.opened(1, w.into)
			b := r.begin(d, 1, 1, "a")
			w.after(word)
			h := r.prepared(b)
			if own, err := d.t.id.readHandle(h); err != nil || mode == Prepared && own.XID == "" {
				t.Errorf("handle %s of a prepare whose answer was lost: %v", h.Body, err)
			}
			lost := r.begin(d, 1, 2, "b")
			w.before(word, func() bool { return false })
			if why := r.refused(lost); !errors.Is(why, participant.ErrLost) {
				t.Errorf("the reason: %v, want lost", why)
			}
			r.commit(d, h)
			r.sees("a")
		})
	}
}

// Row O3: a backend that is ended (57P01) while it waits for a standby has committed already.
func TestO3_ABackendThatIsEndedInCommit(t *testing.T) {
	s := servicestest.OwnPostgres(t, services.PostgresConfig{})
	r := rigOn(t, s.DSN(), Prepared)
	d, other := r.opened(1), r.process()
	h := r.prepared(r.begin(d, 1, 1, "a"))
	queryOn(t, s.DSN(), "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()::text")
	r.until("SHOW synchronous_standby_names", "nobody")
	type result struct {
		p   participant.Proof
		err error
	}
	got := make(chan result, 1)
	go func() {
		p, err := d.Commit(r.ctx, h)
		got <- result{p, err}
	}()
	r.until("SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "1")
	r.is(other, h, participant.Undecided)
	r.query("SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	if g := <-got; g.err != nil || g.p.Verdict != participant.Committed {
		t.Errorf("commit: verdict %d, error %v", g.p.Verdict, g.err)
	}
	r.is(other, h, participant.StateCommitted)
	r.sees("a")
}

func TestAServerThatIsAwayProvesNothing(t *testing.T) {
	s := servicestest.OwnPostgres(t, services.PostgresConfig{})
	r := rigOn(t, s.DSN(), Prepared)
	d := r.opened(1)
	h := r.prepared(r.begin(d, 1, 1, "a"))
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func(context.Context, participant.Handle) (participant.Proof, error){"commit": d.Commit, "rollback": d.Rollback} {
		if p, err := call(r.ctx, h); err == nil || !errors.Is(err, participant.ErrRetry) {
			t.Errorf("%s without a server: verdict %d, error %v; want an error that says try again", what, p.Verdict, err)
		} else {
			oneSentence(t, err, "connection refused")
		}
	}
	if err := s.Restart(r.ctx); err != nil {
		t.Fatal(err)
	}
	r.commit(d, h)
	r.sees("a")
}

// The server is killed at each step of ours and comes back at once.
func TestEveryStepBearsAKilledServer(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs -tags faults")
	}
	s := lazy(t)
	for _, c := range []struct {
		mode   Mode
		points []string
	}{
		{Prepared, []string{"postgres/before-prepare", "postgres/after-prepare", "postgres/before-finish", "postgres/after-finish"}},
		{Staged, []string{"postgres/before-prepare", "postgres/after-prepare", "postgres/before-move", "postgres/after-move", "postgres/before-drop", "postgres/after-drop"}},
	} {
		for _, point := range c.points {
			t.Run(c.mode.String()+"/"+strings.TrimPrefix(point, "postgres/"), func(t *testing.T) {
				name := "d" + strings.Map(func(r rune) rune { return map[bool]rune{true: r, false: '_'}[r >= 'a' && r <= 'z'] }, c.mode.String()+point)
				queryOn(t, s.DSN(), "CREATE DATABASE "+name, "SELECT ''")
				r := rigOn(t, s.Database(name), c.mode)
				d := r.opened(1)
				keep, drop := r.begin(d, 1, 1, "a"), r.begin(d, 1, 2, "b")
				var struck atomic.Bool
				defer fault.Set(func(at string) error {
					if at == point && !struck.Swap(true) {
						restart(r, s)
					}
					return nil
				})()
				var want []string
				if v, err := keep.Prepare(r.ctx); err != nil {
					t.Fatal(err)
				} else if v.Kind == participant.Yes {
					r.commit(d, v.Handle)
					want = append(want, "a")
				} else if point != "postgres/before-prepare" {
					t.Errorf("vote %d: %v", v.Kind, v.Reason)
				}
				if v, err := drop.Prepare(r.ctx); err != nil {
					t.Fatal(err)
				} else if v.Kind == participant.Yes {
					r.rollback(d, v.Handle)
				}
				if !struck.Load() {
					t.Fatalf("%s was never reached", point)
				}
				r.sees(want...)
				if found, err := r.process().all(r.ctx, d.t.id); err != nil || len(found) != 0 {
					t.Errorf("left behind: %v, %v", found, err)
				}
			})
		}
	}
}
