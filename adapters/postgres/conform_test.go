package postgres

import (
	"testing"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

func conform(t *testing.T, version string, mode Mode) {
	participanttest.Run(t, participanttest.Kit{New: func(t testing.TB) participanttest.Target {
		r := rigOn(t, servicestest.Postgres(t, version), mode)
		id, err := r.process().known(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return participanttest.Target{
			Process: func(t testing.TB) participant.Resource { return r.process() },
			Write: func(t testing.TB, b participant.Branch, record string) {
				if err := put(t.Context(), b.(*Branch), record); err != nil {
					t.Fatalf("write: %v", err)
				}
			},
			Read: func(testing.TB) []string { return r.query("SELECT v FROM out") },
			NeverPrepared: func(name participant.BranchName) participant.Handle {
				h, err := newHandle(id, name, body{Mode: mode.String()})
				if err != nil {
					t.Fatal(err)
				}
				return h
			},
		}
	}})
}

func TestConformance(t *testing.T) {
	for _, mode := range []Mode{Prepared, Staged} {
		t.Run(mode.String(), func(t *testing.T) { conform(t, services.PostgresCurrent, mode) })
	}
}

func TestConformanceOfTheOldestServer(t *testing.T) {
	for _, mode := range []Mode{Prepared, Staged} {
		t.Run(mode.String(), func(t *testing.T) { conform(t, services.PostgresOlder, mode) })
	}
}
