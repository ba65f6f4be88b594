package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

// targetOf is the database of a world "mode connection-string", for the process that made it and others.
func targetOf(t testing.TB, world string) participanttest.Target {
	name, dsn, _ := strings.Cut(world, " ")
	mode, err := ParseMode(name)
	if err != nil {
		t.Fatal(err)
	}
	make := func(t testing.TB, o Options) participant.Resource {
		o.DSN, o.Mode = dsn, mode
		d, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return participanttest.Target{
		World:   world,
		Process: func(t testing.TB) participant.Resource { return make(t, Options{}) },
		Stepped: func(t testing.TB, at func(string) error) participant.Resource {
			return make(t, Options{dial: participanttest.StepDialer(nil, at)})
		},
		Write: func(t testing.TB, b participant.Branch, record string) {
			if err := put(context.Background(), b.(*Branch), record); err != nil {
				t.Fatalf("write: %v", err)
			}
		},
		Points: func(at func(string)) {
			if fault.Enabled {
				fault.Set(func(point string) error { at(point); return nil })
			}
		},
	}
}

func conform(t *testing.T, version string, mode Mode, branches, kills int) {
	participanttest.Run(t, participanttest.Kit{Branches: branches, Kills: kills, New: func(t testing.TB) participanttest.Target {
		dsn := strings.Replace(servicestest.Postgres(t, version), "postgres@", "postgres:sesame-42@", 1) // trusted, whatever it says
		r := rigOn(t, dsn, mode)
		id, err := r.process().known(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		target := targetOf(t, mode.String()+" "+dsn)
		target.Secrets = []string{"sesame-42"}
		target.Read = func(testing.TB) []string { return r.query("SELECT v FROM out") }
		target.NeverPrepared = func(name participant.BranchName) participant.Handle {
			h, err := newHandle(id, name, body{Mode: mode.String()})
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		target.Drop = func(_ testing.TB, h participant.Handle) {
			if mode == Prepared {
				r.query("ROLLBACK PREPARED "+literal(h.Name), "SELECT ''")
				return
			}
			r.query("DELETE FROM unisink.staged WHERE gid = "+literal(h.Name), "SELECT ''")
		}
		target.Recreate = func(testing.TB) {
			for _, gid := range r.query("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()") {
				r.query("ROLLBACK PREPARED "+literal(gid), "SELECT ''") // its locks would keep the table
			}
			r.query("DROP TABLE out", "CREATE TABLE out (v text)", "SELECT ''")
		}
		return target
	}})
}

func TestConformance(t *testing.T) {
	for _, mode := range []Mode{Prepared, Staged} {
		t.Run(mode.String(), func(t *testing.T) { conform(t, services.PostgresCurrent, mode, 0, 24) })
	}
}

func TestConformanceOfTheOldestServer(t *testing.T) {
	for _, mode := range []Mode{Prepared, Staged} {
		t.Run(mode.String(), func(t *testing.T) { conform(t, services.PostgresOlder, mode, 100, 4) })
	}
}
