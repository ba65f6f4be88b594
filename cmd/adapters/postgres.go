package adapters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec"
)

type postgresSource struct {
	DSN          spec.Secret `yaml:"dsn,required" doc:"Connection string, by reference: a URL or key=value pairs."`
	Table        string      `yaml:"table,required" doc:"Table that is read, table or schema.table: the names as they are, capitals included. A name with a dot stands in double quotes."`
	Key          []string    `yaml:"key,required" doc:"Columns in whose order rows are read: a unique index is over just these, and none of them is null."`
	Columns      []string    `yaml:"columns" doc:"Columns that are read; default all."`
	Changed      string      `yaml:"changed" doc:"What becomes of rows that were added or changed since reading began, which a restart notices: fail halts (default), take reads them as they are." enum:"fail,take"`
	BatchRecords int         `yaml:"batch_records" doc:"The most rows that are read at once; default 1024."`
	Pooler       bool        `yaml:"pooler" doc:"The connection goes through a pooler in transaction mode, such as pgbouncer."`
}

type postgresSink struct {
	DSN              spec.Secret            `yaml:"dsn,required" doc:"Connection string, by reference: a URL or key=value pairs."`
	Table            string                 `yaml:"table,required" doc:"Table that is written, table or schema.table: the names as they are, capitals included. A name with a dot stands in double quotes."`
	Write            string                 `yaml:"write" doc:"What a record does: append adds a row (default), upsert puts it in the place of the one with its key, delete removes the row of its key." enum:"append,upsert,delete"`
	Key              []string               `yaml:"key" doc:"Key columns of upsert and delete; a unique index is over just these."`
	Columns          map[string]column.From `yaml:"columns" doc:"What stands in which column: the name of a field of the value, key(), value(), time(), headers() or header(NAME). By default each field stands in the column of its name."`
	DeleteWhen       string                 `yaml:"delete_when" doc:"Field of the value that is true in records which remove their row; with upsert. Tombstones do so too."`
	GenerationColumn string                 `yaml:"generation_column" doc:"Column that takes the generation of the epoch which wrote a row; with epoch_column."`
	EpochColumn      string                 `yaml:"epoch_column" doc:"Column that takes the number of the epoch which wrote a row; with generation_column."`
	Mode             string                 `yaml:"mode" doc:"How an epoch waits for its decision: as a prepared transaction (default), or staged in tables of unisink, for servers without them or where locks may not be held." enum:"prepared,staged"`
	LockTimeout      time.Duration          `yaml:"lock_timeout" doc:"Longest wait for a lock; then the epoch fails, and says who holds it. Default 5s."`
	Retention        time.Duration          `yaml:"retention" doc:"How long the markers of commits are kept; default 720h. It must be longer than any decided epoch may stay unfinished."`
	Pooler           bool                   `yaml:"pooler" doc:"The connection goes through a pooler in transaction mode, such as pgbouncer."`
}

// Postgres is the adapter of tables.
func Postgres() Adapter {
	return Adapter{Kind: postgres.Kind, Check: checkPostgres, Reading: postgresReading(), Finisher: finishPostgres, Spec: func(doc *spec.Document) spec.Adapter {
		return spec.Adapter{
			Kind: postgres.Kind, SourceSchema: spec.SchemaOf(postgresSource{}), SinkSchema: spec.SchemaOf(postgresSink{}), Places: postgresPlaces, Shares: postgresShares,
			Store: newPostgresStore, StoreSchema: spec.SchemaOf(postgresStore{}),
			Source: func(e spec.Env, name string, s spec.Settings) (processor.Source, error) {
				if needsTimes(doc) {
					return nil, s.Mistake("", "a row has no timestamp, and the window needs one: say which column it is, for example event_time: timestamp(rec.at)")
				}
				return newPostgresSource(e, name, s)
			},
			Sink: func(e spec.Env, name string, s spec.Settings) (processor.Sink, error) {
				o, err := postgresOptions(e, s, defaultColumns(doc, name))
				if err != nil {
					return nil, err
				}
				out, err := postgres.New(o)
				if err != nil {
					return nil, told(s, err)
				}
				if err := besideOthers(e, doc, name, o, s); err != nil {
					return nil, errors.Join(err, out.Close())
				}
				return out, nil
			},
		}
	}}
}

// besideOthers refuses a sink that is set up otherwise than one before it in the same database: what an epoch writes there
// is one branch for both. One under another address shows when it is connected to.
func besideOthers(e spec.Env, doc *spec.Document, name string, o postgres.Options, s spec.Settings) error {
	if doc == nil {
		return nil
	}
	for _, u := range Uses(doc, postgres.Kind) {
		switch other, err := postgresOptions(e, u.Settings, nil); {
		case u.Source || err != nil: // what is wrong there is told there
		case u.Name == name:
			return nil
		default:
			if together, err := postgres.Together(other, o); together && err != nil {
				return s.Mistake("", "sink %q is in the same database: %s", u.Name, plain(err))
			}
		}
	}
	return nil
}

func newPostgresSource(e spec.Env, name string, s spec.Settings) (*postgres.Source, error) {
	var in postgresSource
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	out, err := postgres.NewSource(postgres.SourceConfig{
		Name: name, DSN: in.DSN.Reveal(), Table: in.Table, Key: in.Key, Columns: in.Columns, Changed: postgres.Changed(in.Changed), BatchRecords: in.BatchRecords,
		Pooler: in.Pooler, Logger: e.Logger,
	})
	if err != nil {
		return nil, told(s, err)
	}
	return out, nil
}

// postgresOptions are those of a sink; columns are what it writes where it does not say.
func postgresOptions(e spec.Env, s spec.Settings, columns []postgres.Column) (postgres.Options, error) {
	var in postgresSink
	if err := s.Decode(&in); err != nil {
		return postgres.Options{}, err
	}
	table := postgres.Table{
		Name: in.Table, Write: postgres.Write(in.Write), Key: in.Key, DeleteWhen: in.DeleteWhen, GenerationColumn: in.GenerationColumn, EpochColumn: in.EpochColumn,
	}
	for _, name := range slices.Sorted(maps.Keys(in.Columns)) {
		table.Columns = append(table.Columns, postgres.Column{Name: name, From: in.Columns[name]})
	}
	if len(table.Columns) == 0 && table.Write != postgres.Delete {
		table.Columns = slices.DeleteFunc(columns, func(c postgres.Column) bool {
			return c.From == column.From{Part: column.Field, Name: in.DeleteWhen}
		})
	}
	mode := map[string]postgres.Mode{"prepared": postgres.Prepared, "staged": postgres.Staged}[in.Mode]
	return postgres.Options{
		DSN: in.DSN.Reveal(), Mode: mode, Tables: []postgres.Table{table}, Pooler: in.Pooler, LockTimeout: in.LockTimeout, Retention: in.Retention, Logger: e.Logger,
	}, nil
}

// defaultColumns are what a sink of a document writes if it names no columns: the fields of its results, or of dead letters
// the parts that they have whatever they are. None: what the records have.
func defaultColumns(doc *spec.Document, name string) (out []postgres.Column) {
	if doc == nil {
		return nil
	}
	field := func(name string) {
		out = append(out, postgres.Column{Name: name, From: column.From{Part: column.Field, Name: name}})
	}
	for i := range doc.Sinks {
		s := &doc.Sinks[i]
		switch {
		case s.Name.Value != name || s.Value.Value != "":
		case len(s.Fields) > 0:
			for _, f := range s.Fields {
				field(f.Name)
			}
		case doc.Use(i) == spec.UseDeadLetter:
			for name, part := range map[string]column.Part{"key": column.Key, "value": column.Value, "time": column.Time, "headers": column.Headers} {
				out = append(out, postgres.Column{Name: name, From: column.From{Part: part}})
			}
			slices.SortFunc(out, func(a, b postgres.Column) int { return strings.Compare(a.Name, b.Name) })
		case doc.Use(i) == spec.UseResults && doc.Window != nil:
			for _, n := range []string{"key", "window_start", "window_end"} {
				field(n)
			}
			for _, a := range doc.Window.Aggregates {
				field(a.Name)
			}
		}
	}
	return out
}

func postgresPlaces(_ spec.Env, source bool, s spec.Settings) []string {
	var dsn, table string
	var err error // told where the settings are used
	if source {
		var in postgresSource
		err = s.Decode(&in)
		dsn, table = in.DSN.Reveal(), in.Table
	} else {
		var in postgresSink
		err = s.Decode(&in)
		dsn, table = in.DSN.Reveal(), in.Table
	}
	if err != nil {
		return nil
	}
	place, err := postgres.Place(dsn, table)
	if err != nil {
		return nil
	}
	return []string{place}
}

// postgresShares: what is written to one database is one branch, and one reference is one database.
func postgresShares(a, b spec.Settings) spec.Sharing {
	if a.Same(b, "dsn") {
		return spec.SharedBranch
	}
	return spec.MayShare
}

// checkPostgres looks for servers that do not answer, tables that are not there or are not as they must be, and settings of
// the servers with which nothing can work; those that are risky are logged.
func checkPostgres(ctx context.Context, e spec.Env, uses []Use) error {
	for _, u := range uses {
		if err := checkTable(ctx, e, u); err != nil {
			return err
		}
	}
	return nil
}

func checkTable(ctx context.Context, e spec.Env, u Use) error {
	if u.Source {
		s, err := newPostgresSource(e, u.Name, u.Settings)
		if err != nil {
			return err
		}
		return errors.Join(placed(u, s.Open(ctx, nil)), s.Close()) //nolint:contextcheck // closing has a time of its own
	}
	o, err := postgresOptions(e, u.Settings, defaultColumns(u.Document, u.Name))
	if err != nil {
		return err
	}
	d, err := postgres.New(o)
	if err != nil {
		return told(u.Settings, err)
	}
	if err := errors.Join(placed(u, d.CheckTables(ctx)), d.Close()); err != nil { //nolint:contextcheck // closing has a time of its own
		return err
	}
	return ExaminePostgres(ctx, e.Logger, postgres.DoctorConfig{Options: o})
}

// placed gives an error of a look at a table its place in the file.
func placed(u Use, err error) error {
	switch {
	case err == nil:
		return nil
	case postgres.ErrNoTable(err):
		return &marked{ErrNotFound, u.Settings.Mistake("table", "%s", plain(err))}
	case errors.Is(err, participant.ErrMisconfigured):
		return u.Settings.Mistake("", "%s", plain(err))
	}
	return &marked{ErrUnreachable, fmt.Errorf("%s: no PostgreSQL server answers: %w", u.Name, err)}
}

// plain is an error in one line, without its class.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), ": "+participant.ErrMisconfigured.Error(), "")
	return strings.ReplaceAll(strings.ReplaceAll(text, participant.ErrMisconfigured.Error()+": ", ""), "\n", "; ")
}

// ExaminePostgres looks at a server before a pipeline starts, as Examine does at brokers.
func ExaminePostgres(ctx context.Context, log *slog.Logger, cfg postgres.DoctorConfig) error {
	ctx, cancel := context.WithTimeout(ctx, examineWait)
	defer cancel()
	found, err := postgres.Examine(ctx, cfg)
	if err != nil {
		log.WarnContext(ctx, "the PostgreSQL server could not be examined", slog.String("error", err.Error()))
		return nil
	}
	for _, f := range found {
		if f.Severity == postgres.Warning {
			log.WarnContext(ctx, "a setting of the PostgreSQL server is risky", slog.String("subject", f.Subject), slog.String("setting", f.Setting),
				slog.String("found", f.Found), slog.String("wanted", f.Wanted), slog.String("why", f.Why))
		}
	}
	if err := postgres.Refuse(found); err != nil {
		return fmt.Errorf("refused to start: %w", err)
	}
	return nil
}
