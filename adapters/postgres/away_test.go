package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
)

// oneSentence checks that a person is told what is wrong in one line that holds each of the words.
func oneSentence(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil || strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("%v, want one sentence", err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v, want %q in it", err, w)
		}
	}
}

func TestAServerThatComesBack(t *testing.T) {
	// Without autovacuum, which takes transaction ids too.
	s := servicestest.OwnPostgres(t, services.PostgresConfig{Settings: map[string]string{"autovacuum": "off"}})
	t.Run("after an epoch began", func(t *testing.T) { awayInAnEpoch(t, s) })
	t.Run("as it was in a backup", func(t *testing.T) { setBack(t, s) })
	t.Run("not", func(t *testing.T) { awayAtTheStart(t, s) })
}

// The server goes away in the middle of an epoch and comes back: the epoch says no once, what was prepared before is
// still there, and the same process goes on in its next generation.
func awayInAnEpoch(t *testing.T, s *services.PostgresServer) {
	for _, mode := range []Mode{Prepared, Staged} {
		t.Run(mode.String(), func(t *testing.T) {
			name := "away_" + mode.String()
			queryOn(t, s.DSN(), "CREATE DATABASE "+name, "SELECT ''")
			r := rigOn(t, s.Database(name), mode)
			d := r.opened(1)
			kept := r.prepared(r.begin(d, 1, 1, "a"))
			b := r.begin(d, 1, 2, "b")
			restart(t, s)
			oneSentence(t, put(r.ctx, b, "c"), "write ns.orders.0.sink.out.1.2")
			why := r.refused(b)
			oneSentence(t, why, "the connection was lost, and the transaction with it")
			if !errors.Is(why, participant.ErrLost) {
				t.Errorf("the reason: %v, want lost", why)
			}
			if err := d.Open(r.ctx, generation(2)); err != nil {
				t.Fatalf("open after the server came back: %v", err)
			}
			r.commit(d, kept)
			r.commit(d, r.prepared(r.begin(d, 2, 1, "b", "c")))
			r.sees("a", "b", "c")
			if found, err := d.all(r.ctx, d.t.id); err != nil || len(found) != 0 {
				t.Errorf("left behind: %v, %v", found, err)
			}
		})
	}
}

// Away at the start: it is said, and is no setting's fault.
func awayAtTheStart(t *testing.T, s *services.PostgresServer) {
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{DSN: s.DSN()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // nothing is open
	err = d.Open(t.Context(), generation(1))
	oneSentence(t, err, "connect to PostgreSQL", "connection refused")
	if errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("open without a server: %v; that halts for good, and servers come back", err)
	}
}
