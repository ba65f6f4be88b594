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
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

var (
	_ processor.Sharer       = (*postgres.Database)(nil)
	_ processor.SharedWriter = (*postgres.Branch)(nil)
)

// Both tables count into one row: with a branch for each the second would wait for the first, which is prepared.
func TestWhatTwoSinksWriteToOneDatabaseIsOneBranch(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string, mode postgres.Mode) {
		sql(t, dsn, "CREATE TABLE tally (n int)", "INSERT INTO tally VALUES (0)", "CREATE TABLE sums (id int PRIMARY KEY)", "CREATE TABLE late (id int)",
			"CREATE FUNCTION count_in() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE tally SET n = n + 1; RETURN NULL; END $$",
			"CREATE TRIGGER counts AFTER INSERT ON sums FOR EACH ROW EXECUTE FUNCTION count_in()",
			"CREATE TRIGGER counts AFTER INSERT ON late FOR EACH ROW EXECUTE FUNCTION count_in()")
		s := open(t, postgres.Options{DSN: dsn, Mode: mode, Tables: []postgres.Table{{Name: "sums", Write: postgres.Upsert, Key: []string{"id"}}}})
		late := newSink(t, postgres.Options{DSN: dsn, Mode: mode, Tables: []postgres.Table{{Name: "late"}}})
		if shares, err := s.d.Shares(t.Context(), late); !shares || err != nil {
			t.Fatalf("one database: %v, %v", shares, err)
		}
		b := s.begin()
		if err := b.WriteFor(t.Context(), late, number(1)); err != nil {
			t.Fatal(err)
		}
		if err := b.Write(t.Context(), number(2)); err != nil {
			t.Fatal(err)
		}
		if err := b.WriteFor(t.Context(), late, number(3)); err != nil {
			t.Fatal(err)
		}
		v, err := b.Prepare(t.Context())
		if err != nil || v.Kind != participant.Yes || !strings.Contains(v.Handle.Text, "public.late") || !strings.Contains(v.Handle.Text, "public.sums") {
			t.Fatalf("vote %+v, %v", v, err)
		}
		same(t, ask(t, dsn, "SELECT n FROM tally"), "0")
		if p, err := late.Commit(t.Context(), v.Handle); err != nil || p.Verdict != participant.Committed { // either of the two ends it
			t.Fatalf("proof %+v, %v", p, err)
		}
		same(t, ask(t, dsn, "SELECT n, (SELECT string_agg(id::text, ',') FROM sums), (SELECT string_agg(id::text, ',' ORDER BY id) FROM late) FROM tally"), "3|2|1,3")
	})
}

func TestSharedBranchesAreForOneDatabaseSetUpInOneWay(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	tables := []postgres.Table{{Name: "sums"}}
	d := newSink(t, postgres.Options{DSN: dsn, Tables: tables})
	other := strings.Replace(dsn, "127.0.0.1", "localhost", 1)
	for name, c := range map[string]struct {
		o    postgres.Options
		says string
	}{
		"mode":         {postgres.Options{DSN: dsn, Mode: postgres.Staged}, "mode is prepared and staged"},
		"lock time":    {postgres.Options{DSN: dsn, LockTimeout: time.Second}, "lock_timeout is 5s and 1s"},
		"parameters":   {postgres.Options{DSN: with(dsn, "statement_timeout=9s")}, "the parameters of the session (statement_timeout) are not the same"},
		"other host":   {postgres.Options{DSN: other}, ""},
		"same options": {postgres.Options{DSN: dsn}, ""},
		"own name":     {postgres.Options{DSN: with(dsn, "application_name=late")}, ""},
		"role":         {postgres.Options{DSN: strings.Replace(dsn, "postgres://", "postgres://late_", 1)}, "the role is postgres and late_postgres"},
	} {
		c.o.Tables = []postgres.Table{{Name: "late"}}
		together, lint := postgres.Together(d.Options(), c.o)
		if together != (name != "other host") {
			t.Errorf("%s: together %v", name, together)
		}
		errs := []error{lint}
		if name != "role" { // there is none, and nobody is let in
			shares, err := d.Shares(t.Context(), newSink(t, c.o))
			if errs = append(errs, err); !shares {
				t.Errorf("%s: they do not share", name)
			}
		}
		for _, err := range errs {
			if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %v, want %q", name, err, c.says)
			}
		}
	}
	elsewhere := newSink(t, postgres.Options{DSN: servicestest.Postgres(t, services.PostgresCurrent), Tables: tables, Mode: postgres.Staged})
	if shares, err := d.Shares(t.Context(), elsewhere); shares || err != nil {
		t.Errorf("another database: %v, %v", shares, err)
	}
}

// with adds a parameter to a connection string.
func with(dsn, parameter string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&" + parameter
	}
	return dsn + "?" + parameter
}

// number is a record with an id.
func number(id int64) []stream.Record { return []stream.Record{value(id, `{"id":%d}`, id)} }
