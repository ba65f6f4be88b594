package app_test

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/unisink/unisink/internal/services"
)

// pgServer VAR: the variable becomes the address of a PostgreSQL server of the script's own.
func pgServer(ts *testscript.TestScript, _ bool, args []string) {
	s, err := services.Postgres(context.Background(), services.PostgresConfig{})
	ts.Check(err)
	ts.Defer(func() { ts.Check(s.Close()) })
	cfg, err := pgx.ParseConfig(s.DSN())
	ts.Check(err)
	addr, _, _ := strings.Cut(strings.TrimPrefix(s.DSN(), "postgres://"+cfg.User+"@"), "/")
	ts.Setenv(args[0], addr)
	servers(ts)[addr] = s
}

// postgresServers is where a script keeps its servers, by address.
type postgresServers struct{}

func servers(ts *testscript.TestScript) map[string]*services.PostgresServer {
	return ts.Value(postgresServers{}).(map[string]*services.PostgresServer)
}

// pgKill ADDRESS: the script's server is gone at once.
func pgKill(ts *testscript.TestScript, _ bool, args []string) { ts.Check(servers(ts)[args[0]].Kill()) }

// pgStart ADDRESS: it is back.
func pgStart(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(servers(ts)[args[0]].Restart(context.Background()))
}

// runSQL ADDRESS STATEMENT [WANT]: runs it, and compares the first row's columns, put together by "|".
func runSQL(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, "postgres://postgres@"+args[0]+"/postgres?sslmode=disable")
	ts.Check(err)
	defer func() { _ = conn.Close(ctx) }() // it was only asked
	rows, err := conn.Query(ctx, args[1], pgx.QueryExecModeSimpleProtocol)
	ts.Check(err)
	var got []string
	for first := true; rows.Next(); first = false {
		for _, v := range rows.RawValues() {
			if first {
				got = append(got, string(v))
			}
		}
	}
	ts.Check(rows.Err())
	if is := strings.Join(got, "|"); len(args) > 2 && is != args[2] {
		ts.Fatalf("%s: %s, want %s", args[1], is, args[2])
	}
}
