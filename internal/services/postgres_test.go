package services_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
)

// query runs statements on one connection and returns what the last one answers as one value.
func query(t testing.TB, dsn string, statements ...string) string {
	t.Helper()
	ctx := patient(t)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	last := len(statements) - 1
	for _, s := range statements[:last] {
		if _, err := conn.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	var out string
	if err := conn.QueryRow(ctx, statements[last]).Scan(&out); err != nil {
		t.Fatalf("%s: %v", statements[last], err)
	}
	return out
}

// state returns the letter of Linux for what a process does; elsewhere what is hoped for.
func state(t testing.TB, pid int) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return "T"
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return after[:1]
}

func TestPostgresSurvivesKillPauseAndStop(t *testing.T) {
	for _, version := range []string{services.PostgresCurrent, services.PostgresOlder} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s := servicestest.OwnPostgres(t, services.PostgresConfig{Version: version, Settings: map[string]string{"max_prepared_transactions": "3"}})
			t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
			if got := query(t, s.DSN(), "SHOW server_version"); !strings.HasPrefix(got, version+".") {
				t.Errorf("it is %s", got)
			}
			if got := query(t, s.DSN(), "SHOW max_prepared_transactions"); got != "3" {
				t.Errorf("max_prepared_transactions is %s", got)
			}
			query(t, s.DSN(), "CREATE TABLE kept (v text)", "BEGIN", "INSERT INTO kept VALUES ('one')", "PREPARE TRANSACTION 'p'", "SELECT 'done'")

			family := append(children(t, s.PID()), s.PID())
			if len(family) < 3 {
				t.Errorf("it has processes %v", family)
			}
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			ended(t, family)
			began = time.Now()
			if err := s.Restart(patient(t)); err != nil {
				t.Fatal(err)
			}
			t.Logf("ready %s after a kill", time.Since(began).Round(time.Millisecond))
			if got := query(t, s.DSN(), "COMMIT PREPARED 'p'", "SELECT v FROM kept"); got != "one" {
				t.Errorf("it holds %q", got)
			}

			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
			for _, pid := range append(children(t, s.PID()), s.PID()) {
				if got := state(t, pid); got != "T" && got != "Z" { // Z: a connection that had just ended
					t.Errorf("process %d of a paused server is in state %s", pid, got)
				}
			}
			if err := s.Continue(); err != nil {
				t.Fatal(err)
			}
			if got := query(t, s.DSN(), "SELECT v FROM kept"); got != "one" {
				t.Errorf("it holds %q", got)
			}
			if err := s.Restart(patient(t)); err != nil {
				t.Fatal(err)
			}

			family = append(children(t, s.PID()), s.PID())
			if err := s.Stop(patient(t)); err != nil {
				t.Error(err)
			}
			ended(t, family)
			gone(t, s.Dir())
		})
	}
}

func children(t testing.TB, pid int) []int {
	t.Helper()
	pids, err := services.Children(pid)
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

// ended fails the test unless the processes are gone, or wait for the init process to see it.
func ended(t testing.TB, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && state(t, pid) != "Z" {
			t.Errorf("process %d runs on", pid)
		}
	}
}

func TestSharedPostgresGivesEachTestADatabaseAndDropsIt(t *testing.T) {
	t.Parallel()
	var first string
	t.Run("leaves a prepared transaction", func(t *testing.T) {
		dsn := servicestest.Postgres(t, services.PostgresCurrent)
		if other := servicestest.Postgres(t, services.PostgresCurrent); other == dsn {
			t.Errorf("two tests share %s", dsn)
		}
		first = query(t, dsn, "SELECT current_database()")
		query(t, dsn, "CREATE TABLE a (v int)", "BEGIN", "INSERT INTO a VALUES (1)", "PREPARE TRANSACTION 'it''s left'", "SELECT 'done'")
	})
	left := query(t, servicestest.Postgres(t, services.PostgresCurrent),
		"SELECT (SELECT count(*) FROM pg_prepared_xacts) + (SELECT count(*) FROM pg_database WHERE datname = '"+first+"') || ''")
	if left != "0" {
		t.Errorf("%s things are left", left)
	}
}

func TestPostgresDiesWithAKilledProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real server; left out by -short")
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux promises that")
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asProcess+"=start-postgres")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("it said %q: %v", line, err)
	}
	number, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("it said %q", line)
	}
	family := append(children(t, pid), pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for end := time.Now().Add(time.Minute); ; {
		runs := false
		for _, pid := range family {
			_, err := os.Stat("/proc/" + strconv.Itoa(pid))
			runs = runs || (err == nil && state(t, pid) != "Z")
		}
		if !runs {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("some of %v outlived who started them", family)
		}
		time.Sleep(10 * time.Millisecond) // the kernel tells nobody but the init process
	}
}

func TestPostgresThatDoesNotStartShowsItsLogAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server; left out by -short")
	}
	t.Setenv("TMPDIR", open(t))
	_, err := services.Postgres(patient(t), services.PostgresConfig{Settings: map[string]string{"max_prepared_transactions": "many"}})
	if err == nil || !strings.Contains(err.Error(), `the last lines of its log`) || !strings.Contains(err.Error(), "max_prepared_transactions") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

// open returns an empty directory that everybody can enter, as a test's own is not.
func open(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "unisink-open-") //nolint:usetesting // others cannot enter a test's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // that is what it is for
		t.Fatal(err)
	}
	return dir
}

func TestPostgresSaysWhereNobodyCannotGo(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root runs PostgreSQL as somebody else")
	}
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := services.Reachable()
	if err == nil || !strings.Contains(err.Error(), "set TMPDIR") {
		t.Errorf("got %q, %v", dir, err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

func TestPostgresOfAnUnknownLineIsRefused(t *testing.T) {
	_, err := services.Postgres(t.Context(), services.PostgresConfig{Version: "9"})
	if err == nil || !strings.Contains(err.Error(), "say 18 or 15") {
		t.Errorf("got %v", err)
	}
}
