package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/freeport"
)

const (
	// PostgresVariable names the environment variable with the connection string of a user's
	// own server.
	PostgresVariable = "UNISINK_TEST_POSTGRES"
	// PostgresCurrent and PostgresOlder are the newest and the oldest supported line.
	PostgresCurrent = "18"
	PostgresOlder   = "15"
)

// postgresRelease returns the release of a line that is fetched.
func postgresRelease(line string) (string, bool) {
	release, known := map[string]string{PostgresCurrent: "18.1", PostgresOlder: "15.15"}[line]
	return release, known
}

// PostgresConfig says what Postgres starts. The zero value is the newest line.
type PostgresConfig struct {
	Version string // PostgresCurrent (the default) or PostgresOlder
	// Settings are given to the server in addition to those in DESIGN.md and over them.
	Settings map[string]string
}

// Validate reports every mistake at once.
func (c PostgresConfig) Validate() error {
	if _, known := postgresRelease(c.Version); !known {
		return fmt.Errorf("line %q of PostgreSQL is not known here: say %s or %s", c.Version, PostgresCurrent, PostgresOlder)
	}
	return nil
}

// PostgresServer is one server on its own data, running or not. Whoever connects is the
// superuser postgres. Methods may be called from anywhere; one of Kill, Pause, Continue, Stop
// and Restart at a time.
type PostgresServer struct {
	cfg    PostgresConfig
	dir    string       // reachable for user
	remove func() error // of dir
	home   string       // bin, lib and share
	addr   string
	user   *syscall.Credential // nil for this process's own
	crew   *child.Crew

	mu   sync.Mutex // guards proc; held for memory only
	proc *child.Process
}

// Postgres starts a server and returns when it answers. When it fails nothing is left of it.
// Stop or Close ends it.
func Postgres(ctx context.Context, cfg PostgresConfig) (*PostgresServer, error) {
	if cfg.Version == "" {
		cfg.Version = PostgresCurrent
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	release, _ := postgresRelease(cfg.Version)
	home, err := fetchPostgres(ctx, release)
	if err != nil {
		return nil, err
	}
	var s *PostgresServer
	err = onFreePorts(func() error {
		s, err = newServer(cfg, home)
		if err != nil {
			return err
		}
		if err := s.initialise(ctx); err != nil {
			return errors.Join(fmt.Errorf("initialise PostgreSQL %s: %w", release, err), s.Close())
		}
		if err := s.start(ctx); err != nil {
			return errors.Join(fmt.Errorf("start PostgreSQL %s: %w", release, err), s.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// newServer lays out the directories of a server that has no data yet.
func newServer(cfg PostgresConfig, home string) (*PostgresServer, error) {
	addr, err := freeport.Loopback()
	if err != nil {
		return nil, fmt.Errorf("find a port for PostgreSQL: %w", err)
	}
	user, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, remove, err := reachable(user)
	if err != nil {
		return nil, fmt.Errorf("make a directory for PostgreSQL: %w", err)
	}
	s := &PostgresServer{cfg: cfg, dir: dir, remove: remove, home: home, addr: addr, user: user, crew: child.New()}
	err = os.Mkdir(s.data(), 0o700)
	if user != nil && err == nil {
		// The cache may lie where that user cannot go.
		s.home = filepath.Join(dir, "postgres")
		err = errors.Join(os.Chown(s.data(), int(user.Uid), int(user.Gid)), mirror(home, s.home))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lay out a directory for PostgreSQL: %w", err), s.Close())
	}
	return s, nil
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }
func (s *PostgresServer) log() string  { return filepath.Join(s.dir, "log") }

// program returns how one of the server's programs is run.
func (s *PostgresServer) program(name string, args ...string) child.Spec {
	return child.Spec{
		Name: name, Path: filepath.Join(s.home, "bin", name), Args: args,
		Dir: s.dir, Env: []string{"LC_ALL=C"}, Log: s.log(), User: s.user,
	}
}

func (s *PostgresServer) initialise(ctx context.Context) error {
	return once(ctx, s.crew, s.program("initdb", "-D", s.data(), "-U", "postgres", "--no-sync", "-E", "UTF8", "--no-locale", "--auth=trust"))
}

// start starts the process and returns when it answers a query.
func (s *PostgresServer) start(ctx context.Context) error {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	settings := map[string]string{
		"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
		"max_connections": "300", "max_prepared_transactions": "256",
	}
	maps.Copy(settings, s.cfg.Settings)
	args := []string{"-D", s.data()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	p, err := s.crew.Start(s.program("postgres", args...))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	return await(ctx, "PostgreSQL", s.log(), p, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, s.DSN())
		if err != nil {
			return err
		}
		var one int
		return errors.Join(conn.QueryRow(ctx, "SELECT 1").Scan(&one), conn.Close(ctx))
	})
}

// DSN returns the connection string, which stays the same over restarts.
func (s *PostgresServer) DSN() string { return s.Database("postgres") }

// Database returns the connection string of another database of the server.
func (s *PostgresServer) Database(name string) string {
	return "postgres://postgres@" + s.addr + "/" + name + "?sslmode=disable"
}

// Query runs one statement in a database, or several where the first one answers nothing, on a connection of its own,
// and returns the text that it answers in the first column of its first row; "" where it answers none.
func (s *PostgresServer) Query(ctx context.Context, database, statement string) (out string, err error) {
	conn, err := pgx.Connect(ctx, s.Database(database))
	if err != nil {
		return "", fmt.Errorf("connect to database %s: %w", database, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", fmt.Errorf("%s: %w", statement, err)
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(&out)
	}
	rows.Close()
	if err = errors.Join(err, rows.Err()); err != nil {
		return "", fmt.Errorf("%s: %w", statement, err)
	}
	return out, nil
}

// PID returns the process id of its last start.
func (s *PostgresServer) PID() int { return s.process().PID() }

// Alive reports whether its first process runs, paused or not.
func (s *PostgresServer) Alive() bool { return s.process().Alive() }

// Tail returns the last lines of its log.
func (s *PostgresServer) Tail() string { return tail(s.log()) }

func (s *PostgresServer) process() *child.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// Pause stops the first process and all that it started where they are, and returns when they
// stand. Connections stay.
func (s *PostgresServer) Pause() error {
	pids, err := s.halt()
	if err != nil {
		return err
	}
	if err := signalAll(pids, syscall.SIGSTOP); err != nil {
		return err
	}
	return until("stop the processes of PostgreSQL", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return !halted(pid) })
	})
}

// halt stops the first process and returns those that it has started: there will be no more.
func (s *PostgresServer) halt() ([]int, error) {
	p := s.process()
	if err := halt(p); err != nil {
		return nil, err
	}
	return children(p.PID())
}

// Continue lets all processes of a paused server go on.
func (s *PostgresServer) Continue() error {
	p := s.process()
	pids, err := children(p.PID())
	return errors.Join(err, signalAll(pids, syscall.SIGCONT), p.Signal(syscall.SIGCONT))
}

// Kill ends all processes with -9 and returns when they have ended.
func (s *PostgresServer) Kill() error {
	p := s.process()
	if !p.Alive() {
		return nil
	}
	pids, err := s.halt()
	if err := errors.Join(err, signalAll(pids, syscall.SIGKILL), p.Kill()); err != nil {
		return err
	}
	return until("kill the processes of PostgreSQL", func() bool { return !slices.ContainsFunc(pids, runs) })
}

// Restart starts it again on the same data and port, after a stop if it runs, and returns when
// it answers: then it has recovered.
func (s *PostgresServer) Restart(ctx context.Context) error {
	if err := s.end(ctx); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return nil
}

// end has it write all down and end, whatever its connections do. When ctx ends first, or after
// 40 s, it is killed, and that is an error.
func (s *PostgresServer) end(ctx context.Context) error {
	if !s.Alive() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := s.Continue(); err != nil {
		return err
	}
	return s.process().Stop(ctx, syscall.SIGINT)
}

// Stop ends it in order and then does what Close does.
func (s *PostgresServer) Stop(ctx context.Context) error {
	return errors.Join(s.end(ctx), s.Close())
}

// Close kills what runs and removes its data. A second call does nothing.
func (s *PostgresServer) Close() error {
	var errs []error
	if s.process() != nil {
		errs = append(errs, s.Kill())
	}
	return errors.Join(append(errs, s.crew.End(), s.remove())...)
}
