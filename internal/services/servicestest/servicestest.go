package servicestest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/services"
)

// shared is what the tests of this process share. A package variable, because tests have
// nothing else in common that could carry it; Main empties it.
var shared = struct {
	mu       sync.Mutex // guards kafka, postgres and their errors; held while one starts: others need it too
	kafka    *services.KafkaCluster
	kafkaErr error
	postgres map[string]*services.PostgresServer
	errs     map[string]error
}{postgres: map[string]*services.PostgresServer{}, errs: map[string]error{}}

// Runner runs tests and stops what they shared.
type Runner struct{ m *testing.M }

// Main returns what TestMain runs instead of m.
func Main(m *testing.M) Runner { return Runner{m} }

// Run runs the tests, stops the shared servers and returns the exit code.
func (r Runner) Run() int {
	code := r.m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared servers:", err)
		code = max(code, 1)
	}
	return code
}

func stop() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	if shared.kafka != nil {
		errs = append(errs, shared.kafka.Close())
		shared.kafka = nil
	}
	for version, s := range shared.postgres {
		errs = append(errs, s.Close())
		delete(shared.postgres, version)
	}
	return errors.Join(errs...)
}

// long skips the test under -short: servers take seconds to start.
func long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real server; left out by -short")
	}
}

// Kafka returns the addresses of the broker that the tests of this process share: a user's own,
// or one of the newest version. Nobody kills it. Topics and ids must be named apart.
func Kafka(t testing.TB) []string {
	t.Helper()
	long(t)
	if own := os.Getenv(services.KafkaVariable); own != "" {
		return strings.Split(own, ",")
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.kafka == nil && shared.kafkaErr == nil {
		// Not the test's context: the broker outlives the test. And Kafka's own session timeout:
		// nobody kills it, and a busy machine must not make it lose its partitions.
		shared.kafka, shared.kafkaErr = services.Kafka(context.WithoutCancel(t.Context()), services.KafkaConfig{SessionTimeout: 9 * time.Second})
	}
	if shared.kafkaErr != nil {
		t.Fatal(shared.kafkaErr)
	}
	return shared.kafka.Addrs()
}

// OwnKafka starts a cluster for this test alone, which is closed after it. When the test has
// failed the ends of its brokers' logs are shown.
func OwnKafka(t testing.TB, cfg services.KafkaConfig) *services.KafkaCluster {
	t.Helper()
	long(t)
	c, err := services.Kafka(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i := range c.Addrs() {
			if b := c.Broker(int32(i + 1)); t.Failed() {
				t.Logf("the log of broker %d ends:\n%s", b.ID(), b.Tail())
			}
		}
		if err := c.Close(); err != nil {
			t.Errorf("close Kafka: %v", err)
		}
	})
	return c
}

// databases numbers those that this process made.
var databases atomic.Int64

// Postgres returns the connection string of an empty database on the server of a line
// (services.PostgresCurrent or PostgresOlder) that the tests of this process share. A user's own
// server stands for the newest line. What is left in the database is dropped after the test,
// prepared transactions included.
func Postgres(t testing.TB, version string) string {
	t.Helper()
	long(t)
	admin, err := pgx.ParseConfig(server(t, version))
	if err != nil {
		t.Fatalf("read %s: %v", services.PostgresVariable, err)
	}
	name := fmt.Sprintf("unisink_test_%d_%d", os.Getpid(), databases.Add(1))
	run(t.Context(), t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		dropPrepared(ctx, t, admin, name)
		run(ctx, t, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	return withDatabase(t, admin.ConnString(), name)
}

// withDatabase returns a connection string, of either form, with another database.
func withDatabase(t testing.TB, dsn, name string) string {
	t.Helper()
	if !strings.Contains(dsn, "://") {
		return dsn + " dbname=" + name // the last one said counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("read %s: %v", services.PostgresVariable, err)
	}
	u.Path = "/" + name
	q := u.Query()
	q.Del("dbname")
	u.RawQuery = q.Encode()
	return u.String()
}

// server returns the connection string of the shared server of a line.
func server(t testing.TB, version string) string {
	t.Helper()
	if own := os.Getenv(services.PostgresVariable); own != "" && version == services.PostgresCurrent {
		return own
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.postgres[version] == nil && shared.errs[version] == nil {
		s, err := services.Postgres(context.WithoutCancel(t.Context()), services.PostgresConfig{Version: version})
		if err != nil {
			shared.errs[version] = err
		} else {
			shared.postgres[version] = s
		}
	}
	if err := shared.errs[version]; err != nil {
		t.Fatal(err)
	}
	return shared.postgres[version].DSN()
}

// dropPrepared rolls back what a test left prepared: it would keep the database from going.
func dropPrepared(ctx context.Context, t testing.TB, admin *pgx.ConnConfig, database string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(withDatabase(t, admin.ConnString(), database))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, gid := range left {
		if _, err := conn.Exec(ctx, "ROLLBACK PREPARED '"+strings.ReplaceAll(gid, "'", "''")+"'"); err != nil {
			t.Errorf("roll back what was left prepared: %v", err)
		}
	}
}

// run runs one statement on a connection of its own.
func run(ctx context.Context, t testing.TB, cfg *pgx.ConnConfig, statement string) {
	t.Helper()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// OwnPostgres starts a server for this test alone, which is closed after it. When the test has
// failed the end of its log is shown.
func OwnPostgres(t testing.TB, cfg services.PostgresConfig) *services.PostgresServer {
	t.Helper()
	long(t)
	s, err := services.Postgres(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of PostgreSQL ends:\n%s", s.Tail())
		}
		if err := s.Close(); err != nil {
			t.Errorf("close PostgreSQL: %v", err)
		}
	})
	return s
}
