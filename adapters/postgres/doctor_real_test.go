package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
)

// finds is the finding about a setting.
func finds(t testing.TB, found []postgres.Finding, setting string) postgres.Finding {
	t.Helper()
	for _, f := range found {
		if f.Setting == setting {
			return f
		}
	}
	t.Fatalf("nothing is said of %q: %+v", setting, found)
	return postgres.Finding{}
}

func examine(t testing.TB, c postgres.DoctorConfig) []postgres.Finding {
	t.Helper()
	found, err := postgres.Examine(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAServerThatIsWellHasNoWarnings(t *testing.T) {
	for _, version := range []string{services.PostgresCurrent, services.PostgresOlder} {
		dsn := servicestest.Postgres(t, version)
		sql(t, dsn, "CREATE TABLE out (v text)")
		found := examine(t, postgres.DoctorConfig{Options: postgres.Options{DSN: dsn, Tables: []postgres.Table{{Name: "out"}}}})
		for _, f := range found {
			if f.Severity == postgres.Warning || f.Severity == postgres.Wrong {
				t.Errorf("%s: %s", version, f.Sentence())
			}
		}
		if err := postgres.Refuse(found); err != nil {
			t.Error(err)
		}
		if got := finds(t, found, "version"); got.Found != version {
			t.Errorf("it is %s, and %s was found", version, got.Found)
		}
	}
}

// Rows L4 and L7.
func TestL7_ADoctorSeesThatNothingCanBePrepared(t *testing.T) {
	s := servicestest.OwnPostgres(t, services.PostgresConfig{Settings: map[string]string{
		"max_prepared_transactions": "0", "fsync": "off", "idle_in_transaction_session_timeout": "1s", "full_page_writes": "off", "synchronous_commit": "off",
	}})
	found := examine(t, postgres.DoctorConfig{Options: postgres.Options{DSN: s.DSN(), Tables: []postgres.Table{{Name: "nowhere"}}}})
	for setting, want := range map[string]postgres.Severity{
		"max_prepared_transactions": postgres.Wrong, "fsync": postgres.Warning, "idle_in_transaction_session_timeout": postgres.Warning,
		"full_page_writes": postgres.Warning, "synchronous_commit": postgres.Note, "columns, key and rights": postgres.Wrong, "schema unisink": postgres.Note,
	} {
		if f := finds(t, found, setting); f.Severity != want || f.Why == "" {
			t.Errorf("%+v, want %s", f, want)
		}
	}
	if err := postgres.Refuse(found); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("it is not refused: %v", err)
	}
	if f := finds(t, examine(t, postgres.DoctorConfig{Options: postgres.Options{DSN: s.DSN(), Mode: postgres.Staged}}), "max_prepared_transactions"); f.Severity != postgres.Fine {
		t.Errorf("mode staged needs none: %+v", f)
	}
}

func TestL4_ADoctorSeesTheOldestPreparedTransaction(t *testing.T) {
	s := servicestest.OwnPostgres(t, services.PostgresConfig{Settings: map[string]string{"max_prepared_transactions": "3"}})
	sql(t, s.DSN(), "CREATE TABLE t (v int)", "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'forgotten'", "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'newer'")
	found := examine(t, postgres.DoctorConfig{Options: postgres.Options{DSN: s.DSN()}, InDoubt: time.Nanosecond})
	// Ages are told in seconds.
	if f := finds(t, found, "oldest prepared transaction"); !strings.Contains(f.Found, "forgotten, since ") {
		t.Errorf("%+v", f)
	}
	if f := finds(t, found, "room for prepared transactions"); f.Severity != postgres.Warning || f.Found != "2 of 3 in use" {
		t.Errorf("%+v", f)
	}
	sql(t, s.DSN(), "ALTER SYSTEM SET max_prepared_transactions = 1")
	f := finds(t, examine(t, postgres.DoctorConfig{Options: postgres.Options{DSN: s.DSN()}}), "max_prepared_transactions after a restart")
	if f.Severity != postgres.Wrong || f.Found != "1" || !strings.Contains(f.Why, "does not start") {
		t.Errorf("%+v", f)
	}
	sql(t, s.DSN(), "ALTER SYSTEM RESET ALL", "ROLLBACK PREPARED 'forgotten'", "ROLLBACK PREPARED 'newer'")
}

func TestInitMakesWhatIsMissingOnce(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresOlder)
	d := newSink(t, postgres.Options{DSN: dsn})
	made, err := d.Init(t.Context())
	if err != nil || len(made) == 0 || !strings.Contains(strings.Join(made, " "), "unisink.commits") {
		t.Fatalf("%q, %v", made, err)
	}
	if made, err = d.Init(t.Context()); err != nil || len(made) != 0 {
		t.Errorf("again it made %q, %v", made, err)
	}
	sql(t, dsn, postgres.Schema()) // as somebody does who was sent it
	if f := finds(t, examine(t, postgres.DoctorConfig{Options: postgres.Options{DSN: dsn}}), "schema unisink"); f.Severity != postgres.Fine {
		t.Errorf("%+v", f)
	}
}
