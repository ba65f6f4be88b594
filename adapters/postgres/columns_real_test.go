package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/internal/secrets"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// as is a connection string for another role.
func as(t testing.TB, dsn, role, password string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	return u.String()
}

func TestATableThatDoesNotSuitIsToldInASentence(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	role := fmt.Sprintf("reader_%s", strings.ToLower(t.Name()[:8]))
	sql(t, dsn,
		"CREATE TABLE plain (id int PRIMARY KEY, n int NOT NULL, note text NOT NULL DEFAULT '', twice int GENERATED ALWAYS AS (id * 2) STORED)",
		"CREATE TABLE counted (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text)",
		"CREATE VIEW seen AS SELECT * FROM plain", "CREATE UNLOGGED TABLE quick (id int)", `CREATE TABLE "Plain" (id int)`,
		"CREATE TABLE later (id int UNIQUE DEFERRABLE)", "CREATE TABLE partly (id int)", "CREATE UNIQUE INDEX ON partly (id) WHERE id > 0",
		"DROP ROLE IF EXISTS "+role, "CREATE ROLE "+role+" LOGIN", "GRANT SELECT ON plain TO "+role)
	t.Cleanup(func() { sql(t, dsn, "DROP OWNED BY "+role, "DROP ROLE "+role) })
	key := []string{"id"}
	for name, c := range map[string]struct {
		dsn   string
		table postgres.Table
		want  []string
	}{
		"fine":             {dsn, postgres.Table{Name: "public.plain", Write: postgres.Upsert, Key: key}, nil},
		"no table":         {dsn, postgres.Table{Name: "nowhere"}, []string{"table nowhere does not exist; create it"}},
		"capitals":         {dsn, postgres.Table{Name: "PLAIN"}, []string{"table PLAIN does not exist (there is public.Plain, public.plain)"}},
		"no column":        {dsn, postgres.Table{Name: "plain", Columns: cols(t, "id", "n", "x")}, []string{`table public.plain: there is no column "x"; it has id, n, note, twice`}},
		"nothing written":  {dsn, postgres.Table{Name: "plain", Columns: cols(t, "id")}, []string{`column "n" may not be null and has no default, and nothing is written to it`}},
		"computed":         {dsn, postgres.Table{Name: "plain", Columns: cols(t, "id", "n", "twice")}, []string{`column "twice" is computed by the server`}},
		"always":           {dsn, postgres.Table{Name: "counted", Columns: cols(t, "id", "v")}, []string{`column "id" is GENERATED ALWAYS`}},
		"no index":         {dsn, postgres.Table{Name: "plain", Write: postgres.Upsert, Key: []string{"id", "n"}}, []string{"no unique index is over just id, n"}},
		"deferrable":       {dsn, postgres.Table{Name: "later", Write: postgres.Upsert, Key: key}, []string{"no unique index is over just id"}},
		"partial":          {dsn, postgres.Table{Name: "partly", Write: postgres.Upsert, Key: key}, []string{"no unique index is over just id"}},
		"no key column":    {dsn, postgres.Table{Name: "plain", Write: postgres.Delete, Key: []string{"k"}}, []string{`there is no column "k", which is to be the key`}},
		"a view":           {dsn, postgres.Table{Name: "seen"}, []string{"it is a view"}},
		"unlogged":         {dsn, postgres.Table{Name: "quick"}, []string{"it is unlogged"}},
		"several at once":  {dsn, postgres.Table{Name: "plain", Columns: cols(t, "id", "x", "twice")}, []string{`no column "x"`, `"twice" is computed`, `column "n" may not be null`}},
		"no right":         {as(t, dsn, role, ""), postgres.Table{Name: "plain", Write: postgres.Upsert, Key: key, DeleteWhen: "gone"}, []string{`no right to INSERT column "id"`, `no right to INSERT and UPDATE column "n"`, "no right to delete"}},
		"no right to none": {as(t, dsn, role, ""), postgres.Table{Name: "plain", Write: postgres.Delete, Key: key}, []string{"no right to delete; GRANT DELETE"}},
		"no such role":     {as(t, dsn, "nobody_at_all", ""), postgres.Table{Name: "plain"}, []string{`role "nobody_at_all" does not exist`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := newSink(t, postgres.Options{DSN: c.dsn, Tables: []postgres.Table{c.table}}).CheckTables(t.Context())
			if (err != nil) != (c.want != nil) || err != nil && !errors.Is(err, participant.ErrMisconfigured) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q", err, want)
				}
			}
		})
	}
}

func TestSettingsThatMakeNoSenseAreToldTogether(t *testing.T) {
	for name, c := range map[string]struct {
		table postgres.Table
		want  []string
	}{
		"nothing":     {postgres.Table{}, []string{"is empty"}},
		"too long":    {postgres.Table{Name: strings.Repeat("x", 64)}, []string{"has 64 bytes, and PostgreSQL takes 63"}},
		"long column": {postgres.Table{Name: "t", Columns: cols(t, strings.Repeat("y", 64)+"=x")}, []string{"has 64 bytes, and PostgreSQL takes 63"}},
		"many":        {postgres.Table{Name: "t", Write: "replace", DeleteWhen: "x", EpochColumn: "e"}, []string{`write "replace" is not known`, "is for upsert", "the epoch needs both columns"}},
		"keyless":     {postgres.Table{Name: "t", Write: postgres.Upsert}, []string{"upsert needs the key columns"}},
		"keyed":       {postgres.Table{Name: "t", Key: []string{"a"}}, []string{"append has no use for a key"}},
		"twice":       {postgres.Table{Name: "t", Columns: cols(t, "a", "a=b")}, []string{`the column "a" is named twice`}},
		"key unsaid":  {postgres.Table{Name: "t", Write: postgres.Upsert, Key: []string{"k"}, Columns: cols(t, "a")}, []string{`the key column "k" is none of the columns`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := postgres.New(postgres.Options{DSN: "postgres://h/d", Tables: []postgres.Table{c.table}})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, participant.ErrMisconfigured) {
					t.Errorf("error %v, want misconfigured with %q", err, want)
				}
			}
		})
	}
}

// A password is in no error, whatever is wrong with the rest.
func TestNoErrorShowsThePassword(t *testing.T) {
	nobody, err := freeport.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	secret := secrets.Plant(t, "postgres-dsn")
	for i, dsn := range []string{
		"postgres://u:" + secret + "@" + nobody + "/d?connect_timeout=1",
		"postgres://u:" + secret + "@h:notaport/d",
		"postgres://u:" + secret + "@h/d?sslmode=sideways",
		"host=h password=" + secret + " port=x",
		"host=h password='" + secret,
		"postgres://u:" + secret + "%zz@h/d",
		"postgres://127.0.0.1:/" + secret + "@h/d", // the user was to be 127.0.0.1, and becomes the host
		"postgres://127.0.0.1:1/" + secret + "@h/d",
		"postgres://127.0.0.1:1#" + secret + "@h/d",
		"postgresql://127.0.0.1:1?" + secret + "@h/d",
		"postgres://u:x@127.0.0.1:1/" + secret + "@h/d",
		"postgres://u:x@" + secret + "@h/d?sslmode=sideways",
		"postgres://u@h/d?sslmode=sideways&password=" + secret,
		"postgres:/u:" + secret + "@h/d",
		"host=h password=my " + secret,
		"host=127.0.0.1 port=1 user=u password= " + secret + " dbname=d",
		"host=127.0.0.1 port=1 password=x" + `\' ` + secret + " dbname=d",
		secret,
	} {
		table := []postgres.Table{{Name: "t"}}
		var errs []error
		d, err := postgres.New(postgres.Options{DSN: dsn, Tables: table})
		errs = append(errs, err)
		if err == nil {
			errs = append(errs, d.CheckTables(t.Context()), d.Close())
		}
		s, err := postgres.NewSource(postgres.SourceConfig{DSN: dsn, Table: "t", Key: []string{"id"}})
		errs = append(errs, err)
		if err == nil {
			errs = append(errs, s.Open(t.Context(), nil))
		}
		_, err = postgres.Examine(t.Context(), postgres.DoctorConfig{Options: postgres.Options{DSN: dsn}})
		errs = append(errs, err)
		_, err = postgres.Place(dsn, "t")
		if errs = append(errs, err); errors.Join(errs...) == nil {
			t.Errorf("nothing is wrong with connection string %d", i)
		}
		text := fmt.Sprintf("%v %+v", errors.Join(errs...), errs)
		t.Log(text)
		secrets.Absent(t, "an error", text)
	}
}

func TestAddressesWithSignsInTheirParametersAreRead(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:a%2Fb%40c@h/d", "postgres://h/d?user=etl@shop&password=x@y/z", "postgresql://u@[::1]:5432,h:1/d%40e?application_name=a", "host=h user=u password=a/b@c#d dbname=d",
	} {
		if _, err := postgres.Place(dsn, "t"); err != nil {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

// A server that asks for passwords says which user was refused; nobody says with what. Nor does a handle say how its database is reached.
func TestNeitherARefusalNorAHandleShowsThePassword(t *testing.T) {
	s := servicestest.OwnPostgres(t, services.PostgresConfig{})
	secret := secrets.Plant(t, "postgres-role")
	sql(t, s.DSN(), "CREATE ROLE etl LOGIN SUPERUSER PASSWORD '"+secret+"'")
	sql(t, s.DSN(), "CREATE TABLE t (a text)")
	sql(t, s.DSN(), `DO $$ BEGIN EXECUTE format('COPY (SELECT ''host all etl 127.0.0.1/32 scram-sha-256'' UNION ALL SELECT ''host all postgres 127.0.0.1/32 trust'') TO %L', current_setting('hba_file')); PERFORM pg_reload_conf(); END $$`)
	var log bytes.Buffer
	by := func(password string) postgres.Options {
		return postgres.Options{
			DSN: as(t, s.DSN(), "etl", password), Tables: []postgres.Table{{Name: "t", Columns: cols(t, "a")}},
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
	}
	d, err := postgres.New(by(secret + "-wrong"))
	if err != nil {
		t.Fatal(err)
	}
	_, examined := postgres.Examine(t.Context(), postgres.DoctorConfig{Options: by(secret + "-wrong")})
	for _, err := range []error{d.CheckTables(t.Context()), examined} {
		if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "password authentication failed") {
			t.Errorf("a wrong password: %v; want it refused", err)
		}
		t.Log(err)
		secrets.Absent(t, "the error", fmt.Sprintf("%v %+v", err, err))
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, mode := range []postgres.Mode{postgres.Prepared, postgres.Staged} {
		o := by(secret)
		o.Mode = mode
		b := open(t, o).begin()
		if err := b.Write(t.Context(), []stream.Record{value(1, `{"a": "x"}`)}); err != nil {
			t.Fatal(err)
		}
		v, err := b.Prepare(t.Context())
		if err != nil || v.Kind != participant.Yes {
			t.Fatalf("vote %d, %v, %v; want yes", v.Kind, v.Reason, err)
		}
		t.Logf("%s %+v", v.Handle.Body, v)
		secrets.Absent(t, "the handle", fmt.Sprintf("%s %+v", v.Handle.Body, v))
	}
	t.Log(log.String())
	secrets.Absent(t, "the log", log.String())
}

func TestWhatWasWrittenIsReadAgain(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	sql(t, dsn, "CREATE TABLE kept (k text, v bytea, at timestamptz, h jsonb, a numeric, g bigint, n bigint)")
	o := postgres.Options{DSN: dsn, Tables: []postgres.Table{{
		Name: "kept", Columns: cols(t, "k=key()", "v=value()", "at=time()", "h=headers()", "a"), GenerationColumn: "g", EpochColumn: "n",
	}}}
	s := open(t, o)
	r := value(1, `{"a": 1.50}`)
	r.Key, r.Time = []byte("key"), 1_700_000_000_123
	s.epoch(r)
	back, err := postgres.ReadTable(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	sql(t, dsn, "DELETE FROM kept") // it is read as it was when the reading was opened
	seen := 0
	err = back.Read(t.Context(), func(got postgres.Stored) error {
		seen++
		if string(got.Record.Key) != "key" || string(got.Record.Value) != `{"a": 1.50}` || got.Record.Time != r.Time || len(got.Record.Headers) != 0 || got.Generation != 7 || got.N != 1 || !strings.Contains(got.Place, "kept row (") {
			t.Errorf("%+v", got)
		}
		return nil
	})
	if err := errors.Join(err, back.Close()); err != nil || seen != 1 {
		t.Errorf("%d rows, %v", seen, err)
	}
}
