package postgres_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/processor/stream"
)

// pooled starts pgbouncer in transaction mode before a database, and returns the way through it.
func pooled(t *testing.T, dsn string) string {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Skip("pgbouncer is not installed; apt-get install pgbouncer")
		}
	}
	server, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := freeport.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgbouncer") //nolint:usetesting // another user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	users := filepath.Join(dir, "users")
	config := fmt.Sprintf("[databases]\n%s = host=%s port=%d dbname=%s user=%s\n[pgbouncer]\nlisten_addr = %s\nlisten_port = %s\nunix_socket_dir =\n"+
		"auth_type = any\nauth_file = %s\npool_mode = transaction\ndefault_pool_size = 3\nignore_startup_parameters = extra_float_digits\n",
		server.Database, server.Host, server.Port, server.Database, server.User, host, port, users)
	for name, text := range map[string]string{"users": "\"postgres\" \"\"\n", "pgbouncer.ini": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // another user reads it
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	crew := child.New()
	p, err := crew.Start(child.Spec{Name: "pgbouncer", Path: path, Args: []string{filepath.Join(dir, "pgbouncer.ini")}, Dir: dir, Log: filepath.Join(dir, "log"), User: nobody(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := crew.End(); err != nil {
			t.Error(err)
		}
	})
	way := url.URL{Scheme: "postgres", User: url.User(server.User), Host: addr, Path: "/" + server.Database, RawQuery: "sslmode=disable"}
	answers(t, p, way.String(), filepath.Join(dir, "log"))
	return way.String()
}

// nobody is a user without rights, for a program that refuses to run as root.
func nobody(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skipf("pgbouncer does not run as root, and there is no other user: %v", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func answers(t *testing.T, p *child.Process, dsn, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			if err := conn.Close(ctx); err != nil {
				t.Fatal(err)
			}
			return
		}
		select {
		case <-tick.C:
			continue
		case <-p.Done():
		case <-ctx.Done():
		}
		text, _ := os.ReadFile(log) // it is for the message alone
		t.Fatalf("pgbouncer does not answer: %v\n%s", err, text)
	}
}

func TestAPoolerMayStandBetween(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string, mode postgres.Mode) {
		way := pooled(t, dsn)
		sql(t, dsn, "CREATE TABLE many (i int, t text)", "CREATE TABLE last (k int PRIMARY KEY, i int)")
		s := open(t, postgres.Options{DSN: way, Mode: mode, Pooler: true, Tables: []postgres.Table{
			{Name: "many"}, {Name: "last", Write: postgres.Upsert, Key: []string{"k"}, DeleteWhen: "gone"},
		}})
		for epoch := range 6 { // more than the pooler has connections
			b := s.begin()
			for i := range 20 {
				r := value(int64(i), `{"i":%d,"t":"x"}`, epoch*20+i)
				u := value(int64(i), `{"i":%d,"k":%d,"gone":%v}`, epoch*20+i, i%5, i == 19)
				if err := b.WriteTo(t.Context(), "many", []stream.Record{r}); err != nil {
					t.Fatal(err)
				}
				if err := b.WriteTo(t.Context(), "last", []stream.Record{u}); err != nil {
					t.Fatal(err)
				}
			}
			s.commit(b)
		}
		same(t, ask(t, dsn, "SELECT count(*), count(DISTINCT i) FROM many"), "120|120")
		same(t, ask(t, dsn, "SELECT * FROM last ORDER BY k"), "0|115", "1|116", "2|117", "3|118")
		src := read(t, postgres.SourceConfig{DSN: way, Pooler: true, Table: "last", Key: []string{"k"}, BatchRecords: 1}, nil)
		same(t, src.all(), "0", "1", "2", "3")
		if f := finds(t, examine(t, postgres.DoctorConfig{Options: postgres.Options{DSN: way, Mode: mode}}), "pooler"); f.Severity != postgres.Warning {
			t.Errorf("it is not seen: %+v", f)
		}
		if f := finds(t, examine(t, postgres.DoctorConfig{Options: postgres.Options{DSN: way, Mode: mode, Pooler: true}}), "pooler"); f.Severity != postgres.Fine {
			t.Errorf("%+v", f)
		}
	})
}
