package pairs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/participant"
)

// lab is the server, the coordinators, and our side's resources.
type lab struct {
	c       Config
	dir     string
	pgbench string
	crew    *child.Crew
	server  *services.PostgresServer
	group   *group.Group

	names     []string // of resources, which are those of databases and tables too
	resources map[string]*postgres.Database
	ns        participant.Namespace
}

// bareDatabase is where pgbench has both its tables: it speaks with one database.
const bareDatabase = "bare"

// start starts all, and makes databases and tables.
func (l *lab) start(ctx context.Context) (err error) {
	l.names = []string{"one", "two"}
	l.c.say("starting PostgreSQL")
	if l.server, err = services.Postgres(ctx, services.PostgresConfig{}); err != nil {
		return err
	}
	if err := l.furnish(ctx); err != nil {
		return err
	}
	l.c.say("starting %d coordinator nodes", l.c.Nodes)
	if l.group, err = group.Start(ctx, group.Config{Exe: l.c.Exe, Nodes: l.c.Nodes, Dir: l.dir, Crew: l.crew}); err != nil {
		return err
	}
	if l.ns, err = l.group.Client.Namespace(ctx); err != nil {
		return err
	}
	l.resources = map[string]*postgres.Database{}
	open := map[string]participant.Resource{}
	for _, name := range l.names {
		d, err := postgres.New(postgres.Options{DSN: l.server.Database(name)})
		if err != nil {
			return err
		}
		l.resources[name], open[name] = d, d
	}
	return l.group.Client.Open(ctx, "bench", open)
}

// furnish makes a database for each branch with one table, and one with both tables.
func (l *lab) furnish(ctx context.Context) error {
	where := map[string][]string{bareDatabase: l.names}
	for _, name := range l.names {
		where[name] = []string{name}
	}
	for database, tables := range where {
		if _, err := l.server.Query(ctx, "postgres", "CREATE DATABASE "+database); err != nil {
			return err
		}
		for _, t := range tables {
			if _, err := l.server.Query(ctx, database, "CREATE TABLE "+t+" (v text)"); err != nil {
				return err
			}
		}
	}
	return nil
}

// rows counts those of a side's tables.
func (l *lab) rows(ctx context.Context, bare bool) (map[string]int, error) {
	out := map[string]int{}
	for _, name := range l.names {
		database := name
		if bare {
			database = bareDatabase
		}
		text, err := l.server.Query(ctx, database, "SELECT count(*)::text FROM "+name)
		if err != nil {
			return nil, err
		}
		if out[name], err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("count the rows of %s: %w", name, err)
		}
	}
	return out, nil
}

// close ends what start has begun, also when that failed.
func (l *lab) close() error {
	var errs []error
	for _, d := range l.resources {
		errs = append(errs, d.Close())
	}
	l.group.Close()
	if l.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		errs = append(errs, l.server.Stop(ctx))
	}
	return errors.Join(errs...)
}
