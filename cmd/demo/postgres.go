package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/unisink/unisink/internal/services"
)

// WithDatabase is a Workload that writes to a PostgreSQL database as well. The demo then starts a server and a
// resolver, and kills both.
type WithDatabase interface {
	Workload
	// Tables is the SQL that makes what it writes to.
	Tables() string
	// Environment names the places for the processes of the demo, and for Verify.
	Environment(broker, dsn, dir string) []string
	// ResolverArgs start a resolver with `unisink resolver`. Files may be written into a directory.
	ResolverArgs(dir string) ([]string, error)
}

// victim is what a strike can kill.
type victim interface {
	// kill ends it with -9 and returns when it has ended; it tells when the signal was sent.
	kill() (time.Time, error)
	alive() bool
}

// server is the PostgreSQL server as a victim.
type server struct{ *services.PostgresServer }

func (s server) alive() bool { return s.Alive() }

func (s server) kill() (time.Time, error) {
	at := time.Now()
	return at, s.Kill()
}

// startPostgres starts the server and says so, since it is fetched the first time.
func (d *demo) startPostgres(ctx context.Context, w WithDatabase) error {
	fmt.Fprintf(d.c.Out, "starting PostgreSQL %s\n", services.PostgresCurrent)
	var err error
	if d.postgres, err = services.Postgres(ctx, services.PostgresConfig{}); err != nil {
		return err
	}
	if _, err := d.postgres.Query(ctx, "postgres", w.Tables()); err != nil {
		return fmt.Errorf("prepare the database: %w", err)
	}
	d.crew.env = w.Environment(d.broker, d.postgres.DSN(), filepath.Join(d.dir, "out"))
	return nil
}

// startResolver starts the resolver, or does nothing where there is no database.
func (d *demo) startResolver() error {
	w, ok := d.c.Workload.(WithDatabase)
	if !ok {
		return nil
	}
	args, err := w.ResolverArgs(d.dir)
	if err != nil {
		return err
	}
	for _, n := range d.nodes {
		args = append(args, "--coordinator", n.client)
	}
	p, err := d.crew.start("resolver", append(args, "--log-format", "json")...)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.resolver = p
	d.mu.Unlock()
	return nil
}

// reviveOthers starts what a strike has killed beside nodes and pipeline.
func (d *demo) reviveOthers(ctx context.Context) error {
	if d.resolver != nil && !d.resolver.alive() {
		if err := d.startResolver(); err != nil {
			return err
		}
	}
	if d.postgres != nil && !d.postgres.Alive() {
		return d.postgres.Restart(ctx)
	}
	return nil
}

// nothingPrepared asks the server, in words of its own, for what is left prepared.
func (d *demo) nothingPrepared(ctx context.Context) error {
	if d.postgres == nil {
		return nil
	}
	left, err := d.postgres.Query(ctx, "postgres", "SELECT coalesce(string_agg(gid, ', '), '') FROM pg_prepared_xacts")
	if err != nil {
		return fmt.Errorf("look for what is left prepared: %w", err)
	}
	if left != "" {
		return fmt.Errorf("%w: left prepared in PostgreSQL: %s", ErrBroken, left)
	}
	return nil
}
