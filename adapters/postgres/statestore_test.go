package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/state/statetest"
)

func openStore(t testing.TB, cfg StateStoreConfig) *StateStore {
	t.Helper()
	s, err := OpenStateStore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformanceOfTheStateStore(t *testing.T) {
	for name, pooler := range map[string]bool{"plain": false, "as through a pooler": true} {
		t.Run(name, func(t *testing.T) {
			dsn := servicestest.Postgres(t, "")
			statetest.Run(t, statetest.Kit{Open: func(t testing.TB) state.Store {
				return openStore(t, StateStoreConfig{DSN: dsn, Pooler: pooler})
			}})
		})
	}
}

func TestStoresOfTwoNamesShareATableAndNothingElse(t *testing.T) {
	dsn := servicestest.Postgres(t, "")
	a, b := openStore(t, StateStoreConfig{DSN: dsn, Store: "a"}), openStore(t, StateStoreConfig{DSN: dsn, Store: "b"})
	if err := a.Put(t.Context(), "p", []byte("of a")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(t.Context(), "p"); !errors.Is(err, state.ErrNoPart) {
		t.Errorf("b sees a's part: %v", err)
	}
	if err := b.Delete(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if ids, err := a.List(t.Context(), ""); err != nil || len(ids) != 1 {
		t.Errorf("a lists %q, %v", ids, err)
	}
}

// Connections that lay idle while the server ended them are replaced, and a role with asynchronous commit
// writes with synchronous commit all the same.
func TestAStateStoreOutlivesItsConnections(t *testing.T) {
	dsn := servicestest.Postgres(t, "")
	queryOn(t, dsn, "ALTER ROLE CURRENT_USER SET synchronous_commit = off", "SELECT ''")
	t.Cleanup(func() { queryOn(t, dsn, "ALTER ROLE CURRENT_USER RESET synchronous_commit", "SELECT ''") })
	s := openStore(t, StateStoreConfig{DSN: dsn})
	if err := s.Put(t.Context(), "p", []byte("one")); err != nil {
		t.Fatal(err)
	}
	var sync string
	if err := s.pool.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&sync); err != nil || sync != "on" {
		t.Errorf("synchronous_commit is %q, %v", sync, err)
	}
	kill := "SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
	for _, call := range []func() error{
		func() error { return s.Put(t.Context(), "p", []byte("two")) },
		func() error { _, err := s.Get(t.Context(), "p"); return err },
		func() error { _, err := s.List(t.Context(), "p"); return err },
		func() error { return s.Delete(t.Context(), "p") },
	} {
		if killed := queryOn(t, dsn, kill); killed[0] == "0" {
			t.Fatal("no connection was ended")
		}
		if err := call(); err != nil {
			t.Error(err)
		}
	}
}

func TestAStateStoreSaysWhatItLacks(t *testing.T) {
	dsn := servicestest.Postgres(t, "")
	queryOn(t, dsn, "DROP ROLE IF EXISTS stateless", "CREATE ROLE stateless LOGIN", "SELECT ''")
	_, err := OpenStateStore(t.Context(), StateStoreConfig{DSN: withUser(dsn, "stateless")})
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "unisink postgres init --print") {
		t.Errorf("a role without rights: %v", err)
	}
	if _, err := OpenStateStore(t.Context(), StateStoreConfig{}); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("no connection string: %v", err)
	}
}

// withUser is the connection string of another role.
func withUser(dsn, user string) string {
	scheme, rest, _ := strings.Cut(dsn, "://")
	_, at, _ := strings.Cut(rest, "@")
	return scheme + "://" + user + "@" + at
}
