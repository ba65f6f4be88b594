package postgres

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/participant"
)

// standing runs f on a server that stands still.
func standing(t *testing.T, s *services.PostgresServer, f func() error) {
	t.Helper()
	if err := errors.Join(s.Kill(), f(), s.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// copyAll copies a directory with its owners.
func copyAll(from, to string) error {
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	if err != nil {
		return errors.New(string(out))
	}
	return nil
}

// A backup of the whole server is restored. What was prepared before it was taken is finished once more and is there once;
// what came after it is never taken for committed, whether its transaction ids are free or were given to others since.
func setBack(t *testing.T, s *services.PostgresServer) {
	data := queryOn(t, s.DSN(), "SHOW data_directory")[0]
	backup := data + ".backup"
	rigs, processes := map[Mode]*rig{}, map[Mode]*Database{}
	type work struct{ before, committed, decided participant.Handle }
	done := map[Mode]*work{}
	modes := []Mode{Prepared, Staged}
	for _, mode := range modes {
		name := "back_" + mode.String()
		queryOn(t, s.DSN(), "CREATE DATABASE "+name, "SELECT ''")
		r := rigOn(t, s.Database(name), mode)
		rigs[mode], processes[mode] = r, r.opened(1)
		done[mode] = &work{before: r.prepared(r.begin(processes[mode], 1, 1, "a"))}
	}
	standing(t, s, func() error { return copyAll(data, backup) })
	for _, mode := range modes {
		r, d, w := rigs[mode], processes[mode], done[mode]
		r.commit(d, w.before)
		w.committed, w.decided = r.prepared(r.begin(d, 1, 2, "b")), r.prepared(r.begin(d, 1, 3, "c"))
		r.commit(d, w.committed)
		r.sees("a", "b")
	}
	standing(t, s, func() error { return errors.Join(os.RemoveAll(data), os.Rename(backup, data)) })

	never := func(t *testing.T, r *rig, d *Database, h participant.Handle) {
		t.Helper()
		p, err := d.Commit(r.ctx, h)
		if err == nil && p.Verdict == participant.Committed {
			t.Errorf("%s is taken for committed by %q", h.Name, p.Evidence)
		}
		if err != nil {
			oneSentence(t, err)
		}
		if mode := r.mode; mode == Prepared && err == nil && !strings.Contains(p.Evidence, "set back") {
			t.Errorf("the evidence is %q, and the server was set back", p.Evidence)
		}
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			r, d, w := rigs[mode], processes[mode], done[mode]
			r.sees()
			r.is(d, w.before, participant.Undecided)
			found, err := d.List(r.ctx, epoch(1, 1).Namespace)
			if err != nil || len(found) != 1 || found[0].Handle.Name != w.before.Name {
				t.Errorf("it lists %v, %v", found, err)
			}
			never(t, r, d, w.decided)
			never(t, r, d, w.committed)
			r.commit(d, w.before)
			r.sees("a")
			// Others do what takes the ids that were given out before.
			for range 8 {
				r.query("INSERT INTO out VALUES ('z')", "SELECT ''")
			}
			for _, h := range []participant.Handle{w.decided, w.committed} {
				if p, err := d.Commit(r.ctx, h); err == nil && p.Verdict == participant.Committed {
					t.Errorf("%s is taken for committed by %q", h.Name, p.Evidence)
				}
			}
			r.query("DELETE FROM out WHERE v = 'z'", "SELECT ''")
			r.sees("a")
		})
	}
}

// A table is dropped while rows are staged for it: the branch waits, and says for what.
func TestATableThatIsDroppedUnderStagedWork(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Staged)
	d := r.opened(1)
	h := r.prepared(r.begin(d, 1, 1, "a"))
	open := r.begin(d, 1, 2, "b")
	r.query("DROP TABLE out", "SELECT ''")
	for range 2 {
		p, err := d.Commit(r.ctx, h)
		if err == nil {
			t.Fatalf("commit into a table that is gone: verdict %d by %q", p.Verdict, p.Evidence)
		}
		oneSentence(t, err, "was dropped (public.out)", "unisink.staged_rows")
	}
	r.is(d, h, participant.Undecided)
	oneSentence(t, r.refused(open), "out")
	if found, err := d.List(r.ctx, epoch(1, 1).Namespace); err != nil || len(found) != 1 {
		t.Errorf("it lists %v, %v; want what is decided", found, err)
	}
	// The rows are still there for a person who makes room elsewhere, or gives up.
	if got := r.query("SELECT count(*)::text FROM unisink.staged_rows"); got[0] != "1" {
		t.Errorf("%s rows are staged", got[0])
	}
	if p, err := d.Rollback(r.ctx, h); err != nil || p.Verdict != participant.RolledBack {
		t.Errorf("rollback: verdict %d, %v", p.Verdict, err)
	}
	if got := r.query("SELECT count(*)::text FROM unisink.staged_rows"); got[0] != "0" {
		t.Errorf("%s rows are left staged", got[0])
	}
}
