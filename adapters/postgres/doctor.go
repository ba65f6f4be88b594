package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	findings "github.com/unisink/unisink/internal/finding" // finding is a proof's here
	"github.com/unisink/unisink/participant"
)

// Severity of a finding.
type Severity = findings.Severity

// Finding is one setting that was looked at.
type Finding = findings.Finding

// The severities, mildest first.
const (
	Fine    = findings.Fine    // found as wanted
	Note    = findings.Note    // it works, and one should know; or it could not be looked at
	Warning = findings.Warning // it works until something fails
	Wrong   = findings.Wrong   // it cannot work
)

// DoctorConfig says what is to be looked at.
type DoctorConfig struct {
	// Options that the pipeline's sinks will have. Tables are held against the server too.
	Options Options
	// Members that write to the server at once, each with as many epochs as may be pending; default 1.
	Members int
	// MaxPending epochs of a member; default 2.
	MaxPending int
	// InDoubt is how old a prepared transaction may be before it is a warning; default 1 h.
	InDoubt time.Duration
}

// Examine looks at a server with the rights of its own role, and changes nothing there. It returns everything that it
// looked at, what is worst first. The error says that no server answers, or that the settings are wrong.
func Examine(ctx context.Context, cfg DoctorConfig) ([]Finding, error) {
	if err := cfg.Options.Validate(); err != nil {
		return nil, err
	}
	cfg.Options = cfg.Options.withDefaults()
	cfg.Members, cfg.MaxPending = max(cfg.Members, 1), max(cfg.MaxPending, 2)
	if cfg.InDoubt <= 0 {
		cfg.InDoubt = time.Hour
	}
	conn, err := connect(ctx, cfg.Options.DSN, cfg.Options.Pooler)
	if err != nil {
		return nil, err
	}
	defer hangUp(ctx, conn)
	d := &doctor{cfg: cfg, c: conn, server: "the server at " + whereOf(conn.Config())}
	if err := d.begin(ctx); err != nil {
		return nil, fmt.Errorf("examine %s: %w", d.server, err)
	}
	for _, look := range []func(context.Context){d.versions, d.prepared, d.durability, d.patience, d.replication, d.between, d.clock, d.schema, d.rights, d.tables} {
		look(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("examine %s: %w", d.server, context.Cause(ctx))
		}
	}
	findings.Sort(d.found)
	return d.found, nil
}

// Refuse returns an error, which is one sentence, for the first finding with which nothing can work.
func Refuse(found []Finding) error {
	if f, bad := findings.Forbids(found); bad {
		return fmt.Errorf("%w: %s", participant.ErrMisconfigured, f.Sentence())
	}
	return nil
}

// doctor is one examination.
type doctor struct {
	cfg      DoctorConfig
	c        *pgx.Conn
	server   string
	database string
	role     string
	version  int

	found []Finding
}

func (d *doctor) begin(ctx context.Context) error {
	return d.c.QueryRow(ctx, "SELECT current_database()::text, current_user::text, current_setting('server_version_num')::int").Scan(&d.database, &d.role, &d.version)
}

// judge adds a finding that is fine if ok, else bad and because of why.
func (d *doctor) judge(ok bool, bad Severity, f Finding) {
	d.found = append(d.found, findings.Judged(ok, bad, f))
}

// unknown adds a finding about what could not be looked at.
func (d *doctor) unknown(subject, setting, wanted string, err error) {
	d.found = append(d.found, findings.Unknown(subject, setting, wanted, err))
}

// one asks for a row.
func (d *doctor) one(ctx context.Context, sql string, into ...any) error {
	return d.c.QueryRow(ctx, sql).Scan(into...)
}

// settings reads several settings as the server tells them to this role.
func (d *doctor) settings(ctx context.Context, names ...string) (map[string]string, error) {
	rows, err := d.c.Query(ctx, "SELECT name, current_setting(name) FROM pg_catalog.pg_settings WHERE name = ANY($1::text[])", names)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		out[name] = value
		return nil
	})
	return out, err
}
