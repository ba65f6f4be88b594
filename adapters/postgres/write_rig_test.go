package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

var (
	_ processor.Sink    = (*postgres.Database)(nil)
	_ processor.Writer  = (*postgres.Branch)(nil)
	_ processor.Source  = (*postgres.Source)(nil)
	_ processor.Drainer = (*postgres.Source)(nil)
)

// onBoth runs a test on the newest and the oldest line, in both modes.
func onBoth(t *testing.T, f func(t *testing.T, dsn string, mode postgres.Mode)) {
	t.Helper()
	for _, version := range []string{services.PostgresCurrent, services.PostgresOlder} {
		for _, mode := range []postgres.Mode{postgres.Prepared, postgres.Staged} {
			t.Run(version+"/"+mode.String(), func(t *testing.T) { f(t, servicestest.Postgres(t, version), mode) })
		}
	}
}

// sql runs statements, each on its own.
func sql(t testing.TB, dsn string, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// ask returns a query's rows as lines of texts.
func ask(t testing.TB, dsn, query string) []string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, query, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var line []string
		for _, v := range rows.RawValues() {
			if v == nil {
				line = append(line, "<null>")
			} else {
				line = append(line, string(v))
			}
		}
		out = append(out, strings.Join(line, "|"))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// sink is an open database, and the epochs that a test writes to it.
type sink struct {
	t testing.TB
	d *postgres.Database
	n uint64
}

func newSink(t testing.TB, o postgres.Options) *postgres.Database {
	t.Helper()
	d, err := postgres.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

var ns = participant.Namespace{Name: "ns", Incarnation: 1}

func opening(generation uint64) participant.Opening {
	return participant.Opening{Namespace: ns, Scope: "p/0", Member: "m", Resource: "r", Generation: generation, MaxPending: 2, EpochInterval: time.Second}
}

// open opens a database for generation 7.
func open(t testing.TB, o postgres.Options) *sink {
	t.Helper()
	s := &sink{t: t, d: newSink(t, o)}
	if err := s.d.Open(t.Context(), opening(7)); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin starts the next epoch.
func (s *sink) begin() *postgres.Branch {
	s.t.Helper()
	s.n++
	b, err := s.d.Begin(s.t.Context(), participant.BranchName{Namespace: ns, Pipeline: "p", Member: "m", Resource: "r", Generation: 7, N: s.n})
	if err != nil {
		s.t.Fatal(err)
	}
	return b.(*postgres.Branch)
}

// epoch writes, prepares and commits.
func (s *sink) epoch(records ...stream.Record) {
	s.t.Helper()
	b := s.begin()
	if err := b.Write(s.t.Context(), records); err != nil {
		s.t.Fatal(err)
	}
	s.commit(b)
}

func (s *sink) commit(b *postgres.Branch) {
	s.t.Helper()
	v, err := b.Prepare(s.t.Context())
	if err != nil || v.Kind != participant.Yes {
		s.t.Fatalf("vote %+v, %v", v, err)
	}
	p, err := s.d.Commit(s.t.Context(), v.Handle)
	if err != nil || p.Verdict != participant.Committed {
		s.t.Fatalf("proof %+v, %v", p, err)
	}
}

// refused writes and prepares, and returns why that failed.
func (s *sink) refused(records ...stream.Record) error {
	s.t.Helper()
	b := s.begin()
	written := b.Write(s.t.Context(), records)
	v, err := b.Prepare(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if v.Kind != participant.No {
		s.t.Fatalf("vote %+v", v)
	}
	if written != nil {
		return written
	}
	return v.Reason
}

// value is a record of a source.
func value(offset int64, format string, args ...any) stream.Record {
	return stream.Record{Topic: "in", Partition: 3, Offset: offset, Value: fmt.Appendf(nil, format, args...)}
}

// cols reads "id=key()" and "name" as columns.
func cols(t testing.TB, names ...string) (out []postgres.Column) {
	t.Helper()
	for _, n := range names {
		name, from, has := strings.Cut(n, "=")
		if !has {
			from = name
		}
		f, err := column.ParseFrom(from)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, postgres.Column{Name: name, From: f})
	}
	return out
}

func same(t testing.TB, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
