package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

func TestAppendAddsARowForEachRecord(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string, mode postgres.Mode) {
		sql(t, dsn, `CREATE TABLE "All Kinds" (n serial, i int, b bigint, f double precision, d numeric(30,10), t text, v varchar(10), ok boolean, at timestamptz, l timestamp, day date, j json, jb jsonb, raw bytea, u uuid, arr int[],
			generation bigint, epoch bigint)`)
		s := open(t, postgres.Options{DSN: dsn, Mode: mode, Tables: []postgres.Table{{Name: `"All Kinds"`, GenerationColumn: "generation", EpochColumn: "epoch"}}})
		s.epoch(
			value(1, `{"i":1,"b":9223372036854775807,"f":0.1,"d":"12345678901234567890.0123456789","t":"a\tb\\\n\"ä😀","v":"x","ok":true,"at":1700000000123,"l":"2024-01-02T03:04:05","day":"2024-02-29","j":{"a":[1,null]},"jb":{"b":1.50},"raw":"AQI=","u":"6f1c2a4e-0000-4000-8000-000000000000","arr":"{1,2}"}`),
			value(2, `{}`),
			value(3, `{"t":"","i":null,"jb":null,"v":"\\N"}`),
		)
		s.epoch(value(4, `{"i":4}`))
		same(t, ask(t, dsn, `SELECT row_number() OVER (ORDER BY n), i, b, f, d, t, v, ok, at AT TIME ZONE 'UTC', l, day, j, jb, raw, u, arr, generation, epoch FROM "All Kinds" ORDER BY n`),
			"1|1|9223372036854775807|0.1|12345678901234567890.0123456789|a\tb\\\n\"ä😀|x|t|2023-11-14 22:13:20.123|2024-01-02 03:04:05|2024-02-29|"+`{"a":[1,null]}|{"b": 1.50}|\x0102|6f1c2a4e-0000-4000-8000-000000000000|{1,2}|7|1`,
			"2|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|7|1",
			`3|<null>|<null>|<null>|<null>||\N|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|7|1`,
			"4|4|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|<null>|7|2",
		)
	})
}

// Both modes write the very same texts: what a document looks like is part of it.
func TestDocumentsStayAsTheyAre(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string, mode postgres.Mode) {
		sql(t, dsn, `CREATE DOMAIN doc AS json CHECK (json_typeof(VALUE) <> 'number')`, `CREATE TABLE docs (id int PRIMARY KEY, "it's" json, jb jsonb, d doc)`)
		s := open(t, postgres.Options{DSN: dsn, Mode: mode, Tables: []postgres.Table{{Name: "docs", Write: postgres.Upsert, Key: []string{"id"}, DeleteWhen: "gone"}}})
		s.epoch(
			value(1, `{"id":1,"it's":{"b": 1.0, "a":2,  "b":1e2, "n":"\u0000<&>"},"jb":{"b":1,"a":1,"b":2.50},"d":[1 ,2]}`),
			value(2, `{"id":2,"it's":"a text","jb":"a \"text\"","d":"[1]"}`),
			value(3, `{"id":3}`),
			value(4, `{"id":4,"it's":1}`), value(5, `{"id":4,"gone":true}`),
		)
		same(t, ask(t, dsn, `SELECT * FROM docs ORDER BY id`),
			`1|{"b": 1.0, "a":2,  "b":1e2, "n":"\u0000<&>"}|{"a": 1, "b": 2.50}|[1 ,2]`,
			`2|"a text"|"a \"text\""|"[1]"`,
			"3|<null>|<null>|<null>",
		)
		if err := s.refused(value(6, `{"id":6,"d":6}`)); !strings.Contains(fmt.Sprint(err), "violates check constraint") {
			t.Errorf("a document that the domain refuses: %v", err)
		}
		sql(t, dsn, "CREATE TABLE whole (k jsonb PRIMARY KEY, j json, jb jsonb)")
		s = open(t, postgres.Options{DSN: dsn, Mode: mode, Tables: []postgres.Table{{
			Name: "whole", Write: postgres.Upsert, Key: []string{"k"}, Columns: cols(t, "k=key()", "j=value()", "jb=value()"),
		}}})
		s.n = 100
		s.epoch(stream.Record{Key: []byte(`{"k":1, "k":2}`), Value: []byte("1")}, stream.Record{Key: []byte(`{ "k":2 }`), Value: []byte("null")},
			stream.Record{Key: []byte("2"), Value: []byte("2")}, stream.Record{Key: []byte("2")})
		same(t, ask(t, dsn, `SELECT * FROM whole`), `{"k": 2}|null|null`)
	})
}

func TestUpsertAndDeleteAreInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string, mode postgres.Mode) {
		sql(t, dsn, "CREATE TABLE totals (customer text, day date, total numeric, note text DEFAULT 'new', PRIMARY KEY (customer, day))")
		s := open(t, postgres.Options{DSN: dsn, Mode: mode, Tables: []postgres.Table{{
			Name: "totals", Write: postgres.Upsert, Key: []string{"day", "customer"}, DeleteWhen: "gone",
			Columns: cols(t, "customer", "day", "total"),
		}}})
		row := func(n int64, customer, total string, gone bool) stream.Record {
			return value(n, `{"customer":%q,"day":"2024-01-01","total":%s,"gone":%v}`, customer, total, gone)
		}
		s.epoch(row(1, "a", "1", false), row(2, "b", "1", false), row(3, "a", "2", false), row(4, "c", "1", false), row(5, "b", "0", true), row(6, "d", "0", true))
		same(t, ask(t, dsn, "SELECT customer, total, note FROM totals ORDER BY 1"), "a|2|new", "c|1|new")
		s.epoch(row(7, "c", "0", true), row(8, "c", "5", false), row(9, "a", "3", false), row(10, "b", "9", false), row(11, "b", "9", true))
		same(t, ask(t, dsn, "SELECT customer, total, note FROM totals ORDER BY 1"), "a|3|new", "c|5|new")
	})
}

func TestTombstonesAndDeletionsByKey(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string, mode postgres.Mode) {
		sql(t, dsn, "CREATE TABLE latest (id int PRIMARY KEY, v jsonb)", "INSERT INTO latest VALUES (9, '9')", "CREATE TABLE plain (id int)", "INSERT INTO plain VALUES (1), (1), (2)")
		s := open(t, postgres.Options{DSN: dsn, Mode: mode, Tables: []postgres.Table{
			{Name: "latest", Write: postgres.Upsert, Key: []string{"id"}, Columns: cols(t, "id=key()", "v=value()")},
			{Name: "plain", Write: postgres.Delete, Key: []string{"id"}},
		}})
		b := s.begin()
		put := func(key, v string) stream.Record {
			r := stream.Record{Key: []byte(key)}
			if v != "" {
				r.Value = []byte(v)
			}
			return r
		}
		if err := errors.Join(
			b.WriteTo(t.Context(), "latest", []stream.Record{put("1", `{"a":1}`), put("2", "2"), put("1", ""), put("9", ""), put("2", "3")}),
			b.WriteTo(t.Context(), "plain", []stream.Record{value(1, `{"id":1,"more":true}`)}),
		); err != nil {
			t.Fatal(err)
		}
		s.commit(b)
		same(t, ask(t, dsn, "SELECT * FROM latest"), "2|3")
		same(t, ask(t, dsn, "SELECT * FROM plain"), "2")
	})
}

func TestManyRowsArriveOnceAndInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string, mode postgres.Mode) {
		sql(t, dsn, "CREATE TABLE many (n bigserial, i int, t text)", "CREATE TABLE last (k int PRIMARY KEY, i int)")
		s := open(t, postgres.Options{DSN: dsn, Mode: mode, Tables: []postgres.Table{
			{Name: "many"}, {Name: "last", Write: postgres.Upsert, Key: []string{"k"}},
		}})
		const total = 20_000 // more than one COPY, and pipelines larger than a socket's buffers
		b := s.begin()
		for from := 0; from < total; from += 500 {
			var many, last []stream.Record
			for i := from; i < from+500; i++ {
				many = append(many, value(int64(i), `{"i":%d,"t":%q}`, i, strings.Repeat("x", 100)))
				last = append(last, value(int64(i), `{"i":%d,"k":%d}`, i, i%100))
			}
			if err := errors.Join(b.WriteTo(t.Context(), "many", many), b.WriteTo(t.Context(), "last", last)); err != nil {
				t.Fatal(err)
			}
		}
		s.commit(b)
		same(t, ask(t, dsn, "SELECT count(*), count(DISTINCT i), bool_and(i = n - (SELECT min(n) FROM many)) FROM many"), fmt.Sprintf("%d|%d|t", total, total))
		same(t, ask(t, dsn, "SELECT count(*), min(i), max(i) FROM last"), fmt.Sprintf("100|%d|%d", total-100, total-1))
	})
}

func TestARecordThatDoesNotFitIsNamed(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string, mode postgres.Mode) {
		sql(t, dsn, "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
			"CREATE TABLE strict (id int PRIMARY KEY, n smallint NOT NULL, c text CHECK (c <> 'bad'), u uuid, p positive)")
		for name, c := range map[string]struct {
			write   postgres.Write
			records []stream.Record
			want    string
		}{
			"too large":      {postgres.Append, []stream.Record{value(1, `{"id":1,"n":1}`), value(2, `{"id":2,"n":70000}`)}, `the record from in[3]@2 does not fit: column "n" (smallint): the field "n" is no whole number of 16 bits`},
			"null":           {postgres.Append, []stream.Record{value(5, `{"id":1}`)}, `the record from in[3]@5 does not fit: column "n" may not be null`},
			"no such field":  {postgres.Append, []stream.Record{value(5, `{"id":1,"n":1,"x":1}`)}, `the value has a field "x", for which no column is written`},
			"a result":       {postgres.Append, []stream.Record{{Key: []byte("k7"), Value: []byte(`{"id":"x","n":1}`)}}, `the result with a key of 2 bytes (SHA-256 begins with fb848c99b9a43ec7) does not fit: column "id" (integer): the field "id" is no number`},
			"tombstone":      {postgres.Append, []stream.Record{{Topic: "in", Offset: 9}}, `the record from in[0]@9 does not fit: it is a tombstone, and append adds rows`},
			"keyless":        {postgres.Upsert, []stream.Record{{Topic: "in", Offset: 9}}, `a tombstone has no fields, and can remove a row only where the key columns take key()`},
			"other type":     {postgres.Append, []stream.Record{value(1, `{"id":1,"n":1}`), value(2, `{"id":2,"n":1,"u":"zz"}`)}, `invalid input syntax for type uuid: "..." (SQLSTATE 22P02)`},
			"other, upsert":  {postgres.Upsert, []stream.Record{value(1, `{"id":1,"n":1}`), value(2, `{"id":2,"n":1,"u":"zz"}`)}, `invalid input syntax for type uuid: "..." (SQLSTATE 22P02)`},
			"check":          {postgres.Append, []stream.Record{value(1, `{"id":1,"n":1}`), value(2, `{"id":2,"n":1,"c":"bad"}`)}, `violates check constraint`},
			"domain":         {postgres.Upsert, []stream.Record{value(1, `{"id":1,"n":1,"p":-1}`)}, `violates check constraint`},
			"twice the same": {postgres.Append, []stream.Record{value(1, `{"id":1,"n":1}`), value(2, `{"id":1,"n":1}`)}, `duplicate key value violates unique constraint "strict_pkey" (SQLSTATE 23505)`},
		} {
			t.Run(name, func(t *testing.T) {
				table := postgres.Table{Name: "strict", Write: c.write}
				if c.write != postgres.Append {
					table.Key = []string{"id"}
				}
				s := open(t, postgres.Options{DSN: dsn, Mode: mode, Tables: []postgres.Table{table}})
				err := s.refused(c.records...)
				for _, content := range []string{"70000", "k7", `"zz"`, `"bad"`, "(1)"} {
					if err != nil && strings.Contains(err.Error(), content) {
						t.Errorf("error %v shows %s of the record", err, content)
					}
				}
				if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, participant.ErrMisconfigured) {
					t.Fatalf("error %v, want misconfigured with %q", err, c.want)
				}
				// What the server says itself names the record where the rows go to the table at once.
				if mode == postgres.Prepared && !strings.Contains(err.Error(), "in[3]@") && !strings.Contains(c.want, "result") && !strings.Contains(c.want, "tombstone") {
					t.Errorf("the record is not named: %v", err)
				}
				same(t, ask(t, dsn, "SELECT * FROM strict"))
			})
		}
	})
}
