package postgres_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

func newSource(t testing.TB, c postgres.SourceConfig) *postgres.Source {
	t.Helper()
	s, err := postgres.NewSource(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestTheTableSourceIsASource(t *testing.T) {
	for _, version := range []string{services.PostgresCurrent, services.PostgresOlder} {
		t.Run(version, func(t *testing.T) {
			dsn := servicestest.Postgres(t, version)
			processortest.RunSource(t, processortest.SourceKit{
				New: func(t testing.TB) processortest.Reader {
					return newSource(t, postgres.SourceConfig{DSN: dsn, Table: "rows", Key: []string{"id"}, BatchRecords: 7})
				},
				Fill: func(t testing.TB, n int) {
					sql(t, dsn, "CREATE TABLE rows (id int PRIMARY KEY)", fmt.Sprintf("INSERT INTO rows SELECT i FROM generate_series(0, %d) i ORDER BY random()", n-1))
				},
				Value: func(i int) []byte { return fmt.Appendf(nil, `{"id":%d}`, i) },
			})
		})
	}
}

// reading is a source that is read, and what came out of it.
type reading struct {
	t    testing.TB
	s    *postgres.Source
	at   []stream.Position
	keys []string
}

func (r *reading) poll() bool {
	r.t.Helper()
	b, err := r.s.Poll(r.t.Context())
	if errors.Is(err, io.EOF) {
		return false
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for _, rec := range b.Records {
		r.keys = append(r.keys, string(rec.Key))
	}
	r.at = []stream.Position{b.Next}
	return true
}

func (r *reading) all() []string {
	r.t.Helper()
	for more := true; more; {
		more = r.poll()
	}
	return r.keys
}

func read(t testing.TB, c postgres.SourceConfig, from []stream.Position) *reading {
	t.Helper()
	r := &reading{t: t, s: newSource(t, c)}
	if err := r.s.Open(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestATableIsReadAsItWasAtTheStart(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	sql(t, dsn, "CREATE TABLE things (a text, b int, v text, at timestamptz DEFAULT '2024-01-01T00:00:00Z', d numeric DEFAULT 1.50, PRIMARY KEY (a, b))", "INSERT INTO things VALUES ('x', 2, 'old'), ('x', 10, 'old'), ('ä\"', 1, 'old'), ('a', 5, 'old')")
	c := postgres.SourceConfig{Name: "in", DSN: dsn, Table: "things", Key: []string{"a", "b"}, Columns: []string{"b", "v", "at", "d"}, BatchRecords: 1}
	r := read(t, c, nil)
	b, err := r.s.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Records[0]; string(got.Value) != `{"b":5,"v":"old","at":"2024-01-01T00:00:00+00:00","d":"1.50"}` || string(got.Key) != `["a","5"]` || got.Topic != "things" || got.Offset != 0 || b.Next.Offset != 1 || b.Split.Resource != "in" {
		t.Errorf("%+v, key %s, value %s", b, got.Key, got.Value)
	}
	sql(t, dsn, "UPDATE things SET v = 'new'", "DELETE FROM things WHERE b = 10", "INSERT INTO things VALUES ('b', 1, 'new'), ('z', 1, 'new')")
	same(t, r.all(), `["x","2"]`, `["x","10"]`, `["ä\"","1"]`)
	// Opened again in the same process at an earlier position, it is in the same transaction.
	if err := r.s.Open(t.Context(), []stream.Position{b.Next}); err != nil {
		t.Fatal(err)
	}
}

// Row P9 and Z5 speak of what a restart may assume; here it finds a table that went on.
func TestARestartNoticesRowsThatAreNewer(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	c := postgres.SourceConfig{DSN: dsn, Table: "things", Key: []string{"id"}, BatchRecords: 2}
	for name, d := range map[string]struct {
		change string
		fails  bool
		taken  []string
	}{
		"nothing":             {"SELECT 1", false, []string{"3", "4", "5"}},
		"behind what is read": {"UPDATE things SET v = 'new' WHERE id = 1", false, []string{"3", "4", "5"}},
		"past the end":        {"INSERT INTO things VALUES (6)", false, []string{"3", "4", "5"}},
		"changed":             {"UPDATE things SET v = 'new' WHERE id = 4", true, []string{"3", "4", "5"}},
		"added":               {"INSERT INTO things VALUES (35)", false, []string{"3", "4", "5"}},
		"added between":       {"UPDATE things SET id = 45 WHERE id = 4; INSERT INTO things VALUES (4)", true, []string{"3", "4", "5"}},
		"removed":             {"DELETE FROM things WHERE id = 4", false, []string{"3", "5"}}, // as documented, this is not seen
	} {
		t.Run(name, func(t *testing.T) {
			sql(t, dsn, "DROP TABLE IF EXISTS things", "CREATE TABLE things (id int PRIMARY KEY, v text)", "INSERT INTO things SELECT generate_series(1, 5)")
			first := read(t, c, nil)
			first.poll()
			if err := first.s.Close(); err != nil {
				t.Fatal(err)
			}
			sql(t, dsn, d.change)
			second := newSource(t, c)
			if err := second.Open(t.Context(), first.at); err != nil {
				t.Fatal(err)
			}
			_, err := second.Poll(t.Context())
			for err == nil {
				_, err = second.Poll(t.Context())
			}
			if failed := errors.Is(err, participant.ErrMisconfigured); failed != d.fails || !failed && !errors.Is(err, io.EOF) {
				t.Errorf("error %v, want it to fail: %v", err, d.fails)
			}
			taking := c
			taking.Changed = postgres.ChangedTaken
			same(t, read(t, taking, first.at).all(), d.taken...)
		})
	}
}

func TestATransactionThatWasOpenAtTheStartIsNewer(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	sql(t, dsn, "CREATE TABLE things (id int PRIMARY KEY)", "INSERT INTO things SELECT generate_series(1, 5)",
		"BEGIN; INSERT INTO things VALUES (0), (-1); DELETE FROM things WHERE id = 3; INSERT INTO things VALUES (3); PREPARE TRANSACTION 'open'")
	c := postgres.SourceConfig{DSN: dsn, Table: "things", Key: []string{"id"}, BatchRecords: 1}
	first := read(t, c, nil)
	first.poll()
	same(t, first.keys, "1")
	if err := first.s.Close(); err != nil {
		t.Fatal(err)
	}
	sql(t, dsn, "COMMIT PREPARED 'open'")
	second := read(t, c, first.at)
	second.poll()
	_, err := second.s.Poll(t.Context())
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "the row with a key of 1 bytes (SHA-256 begins with 4e07408562bedb8b) was added or changed") {
		t.Errorf("error %v", err)
	}
}

func TestAfterItsEndASourceGoesOnBehindIt(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	c := postgres.SourceConfig{DSN: dsn, Table: "things", Key: []string{"id"}, BatchRecords: 2}
	sql(t, dsn, "CREATE TABLE things (id int PRIMARY KEY)")
	empty := read(t, c, nil)
	same(t, empty.all())
	if len(empty.at) != 1 || empty.at[0].Offset != 0 || postgres.Behind(empty.at[0]) {
		t.Fatalf("position %+v", empty.at)
	}
	sql(t, dsn, "INSERT INTO things SELECT generate_series(1, 4)")
	first := read(t, c, empty.at)
	same(t, first.all(), "1", "2", "3", "4")
	sql(t, dsn, "INSERT INTO things VALUES (0), (5)")
	second := read(t, c, first.at)
	same(t, second.all(), "5")
	if at := second.at[0]; at.Offset != 5 || !postgres.Behind(at) {
		t.Errorf("position %+v", at)
	}
	third := read(t, c, second.at)
	same(t, third.all())
}

func TestADrainedSourceGoesOnWithWhatWasLeft(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	c := postgres.SourceConfig{DSN: dsn, Table: "things", Key: []string{"id"}, BatchRecords: 2}
	sql(t, dsn, "CREATE TABLE things (id int PRIMARY KEY)", "INSERT INTO things SELECT generate_series(1, 5)")
	first := read(t, c, nil)
	first.poll()
	drained := first.s.Drained(first.at[0])
	sql(t, dsn, "UPDATE things SET id = 6 WHERE id = 5")
	second := read(t, c, []stream.Position{drained})
	same(t, second.all(), "3", "4", "6")
	if !postgres.Behind(second.at[0]) {
		t.Error("it does not say that it was drained before")
	}
}

func TestWhatCannotBeReadIsToldInASentence(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	sql(t, dsn, "CREATE TABLE things (id int PRIMARY KEY, n int, m int UNIQUE)", "CREATE VIEW seen AS SELECT * FROM things", `CREATE TABLE "Odd" (id int PRIMARY KEY)`)
	for name, d := range map[string]struct {
		c    postgres.SourceConfig
		from []stream.Position
		want string
	}{
		"no table":      {postgres.SourceConfig{Table: "nowhere", Key: []string{"id"}}, nil, "table nowhere does not exist; create it"},
		"capitals":      {postgres.SourceConfig{Table: "odd", Key: []string{"id"}}, nil, "table odd does not exist (there is public.Odd)"},
		"no column":     {postgres.SourceConfig{Table: "things", Key: []string{"id"}, Columns: []string{"x"}}, nil, `table public.things: there is no column "x"; it has id, n, m`},
		"no index":      {postgres.SourceConfig{Table: "things", Key: []string{"id", "n"}}, nil, "no unique index is over just id, n"},
		"may be null":   {postgres.SourceConfig{Table: "things", Key: []string{"m"}}, nil, `the key column "m" may be null`},
		"a view":        {postgres.SourceConfig{Table: "seen", Key: []string{"id"}}, nil, "it is no table"},
		"another table": {postgres.SourceConfig{Table: "things", Key: []string{"id"}}, []stream.Position{{Split: stream.Split{ID: "others"}, Offset: 1}}, "reads table things, and others has been read"},
		"another key":   {postgres.SourceConfig{Table: "things", Key: []string{"id"}}, []stream.Position{{Split: stream.Split{ID: "things"}, Offset: 1, Opaque: []byte(`{"key":["1","2"]}`)}}, "was read by a key of 2 columns, and its key has 1 now"},
		"nonsense":      {postgres.SourceConfig{Table: "things", Key: []string{"id"}}, []stream.Position{{Split: stream.Split{ID: "things"}, Offset: 1, Opaque: []byte(`x`)}}, "the position of table things can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			d.c.DSN = dsn
			err := newSource(t, d.c).Open(t.Context(), d.from)
			if err == nil || !strings.Contains(err.Error(), d.want) || !errors.Is(err, participant.ErrMisconfigured) {
				t.Errorf("error %v, want misconfigured with %q", err, d.want)
			}
		})
	}
}

func TestASourceSurvivesTheLossOfItsConnection(t *testing.T) {
	dsn := servicestest.Postgres(t, services.PostgresCurrent)
	sql(t, dsn, "CREATE TABLE things (id int PRIMARY KEY)", "INSERT INTO things SELECT generate_series(1, 5)")
	c := postgres.SourceConfig{DSN: dsn, Table: "things", Key: []string{"id"}, BatchRecords: 2}
	r := read(t, c, nil)
	r.poll()
	sql(t, dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'unisink' AND datname = current_database()")
	_, err := r.s.Poll(t.Context())
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, participant.ErrMisconfigured) {
		t.Fatalf("the connection is gone, and the error is %v", err)
	}
	if err := r.s.Open(t.Context(), r.at); err != nil {
		t.Fatal(err)
	}
	same(t, r.all(), "1", "2", "3", "4", "5")
}
