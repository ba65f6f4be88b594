package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/internal/mutant"
)

// Write says what a record does to its table.
type Write string

const (
	// Append adds a row for each record; the default.
	Append Write = "append"
	// Upsert puts a row in the place of the one with the same key, or adds it. A tombstone removes the row of
	// its key, and so does a record whose field DeleteWhen is true.
	Upsert Write = "upsert"
	// Delete removes the row of each record's key.
	Delete Write = "delete"
)

// Table is one table that records are written to.
type Table struct {
	// Name is "table" or "schema.table". Each part is taken as it is, capitals included; one with a dot in it
	// stands in double quotes. Without a schema the search path of the connection says where it is.
	Name string
	// Write; default Append.
	Write Write
	// Key columns of Upsert and Delete: a unique index has just these. They take what Columns says.
	Key []string
	// Columns says what stands in which; those not named are left to their defaults. Empty: each field of the value
	// stands in the column of its name, the table's columns without a default are all written, a field that is not
	// there is null, and one without such a column is refused.
	Columns []Column
	// DeleteWhen names a field of the value that is true in records which remove their row; Upsert only. It needs no column.
	DeleteWhen string
	// GenerationColumn and EpochColumn take the epoch that wrote a row, so that readers can take a cut; both or none.
	GenerationColumn, EpochColumn string
}

// Column is one that is written.
type Column struct {
	Name string
	From column.From
}

// maxName is how long a name may be, bytes; PostgreSQL cuts longer ones off without an error.
const maxName = 63

func (t Table) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	name, err := splitName(t.Name)
	if err != nil {
		return err
	}
	write := t.Write.orDefault()
	switch write {
	case Append, Upsert, Delete:
	default:
		wrong("write %q is not known; say append, upsert or delete", t.Write)
	}
	switch keyed := write == Upsert || write == Delete; {
	case keyed && len(t.Key) == 0:
		wrong("%s needs the key columns, by which a row is found", write)
	case !keyed && len(t.Key) > 0:
		wrong("append has no use for a key; say upsert to put rows in the place of others")
	}
	if t.DeleteWhen != "" && write != Upsert {
		wrong("a field that says when a row goes is for upsert")
	}
	if (t.GenerationColumn == "") != (t.EpochColumn == "") {
		wrong("the epoch needs both columns, one for the generation and one for the number")
	} else if t.GenerationColumn != "" && write == Delete {
		wrong("delete writes no epoch")
	}
	named := map[string]bool{}
	for _, c := range t.all() {
		if c.Name == "" || c.From == (column.From{}) {
			wrong("a column needs a name, and what stands in it")
		} else if err := checkName(c.Name); err != nil {
			errs = append(errs, err)
		}
		if named[c.Name] {
			wrong("the column %q is named twice", c.Name)
		}
		named[c.Name] = true
	}
	for _, k := range t.Key {
		if len(t.Columns) > 0 && !slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Name == k }) {
			wrong("the key column %q is none of the columns that are written", k)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("table %s: %w", shown(name), err)
	}
	return nil
}

func (w Write) orDefault() Write {
	if w == "" {
		return Append
	}
	return w
}

// all are the columns that are named, those of the epoch too.
func (t Table) all() []Column {
	out := slices.Clone(t.Columns)
	if t.GenerationColumn != "" {
		out = append(out, Column{t.GenerationColumn, column.From{Part: column.Generation}}, Column{t.EpochColumn, column.From{Part: column.N}})
	}
	return out
}

// splitName reads "table", "schema.table" or either part in double quotes.
func splitName(s string) (pgx.Identifier, error) {
	var parts pgx.Identifier
	rest := s
	for {
		part, after := rest, ""
		if strings.HasPrefix(rest, `"`) {
			end := 1
			for end < len(rest) && (rest[end] != '"' || strings.HasPrefix(rest[end:], `""`)) {
				if rest[end] == '"' {
					end++
				}
				end++
			}
			if end >= len(rest) {
				return nil, fmt.Errorf("the name %s has a quote that nothing closes", s)
			}
			part, after = strings.ReplaceAll(rest[1:end], `""`, `"`), rest[end+1:]
		} else if at := strings.IndexByte(rest, '.'); at >= 0 {
			part, after = rest[:at], rest[at:]
		}
		if err := checkName(part); err != nil {
			return nil, err
		}
		parts = append(parts, part)
		switch {
		case after == "" && len(parts) <= 2:
			return parts, nil
		case len(parts) > 2 || after == "." || !strings.HasPrefix(after, "."):
			return nil, fmt.Errorf("%q is no name of a table: write table or schema.table, and a part with a dot in double quotes", s)
		}
		rest = after[1:]
	}
}

func checkName(s string) error {
	switch {
	case s == "":
		return errors.New("a name of a table, schema or column is empty")
	case len(s) > maxName:
		return fmt.Errorf("the name %.20s... has %d bytes, and PostgreSQL takes %d", s, len(s), maxName)
	case strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s):
		return fmt.Errorf("the name %q holds what a name cannot", s)
	}
	return nil
}

// shown is a table's name for people.
func shown(name pgx.Identifier) string { return strings.Join(name, ".") }

// checkDSN says what is wrong with a connection string, and never shows it.
func checkDSN(dsn string) error {
	if dsn == "" {
		return errors.New("the connection string is not set")
	}
	if _, err := pgxpool.ParseConfig(dsn); err != nil { // whose text may show a password that stands in the wrong place
		return errors.New("the connection string can't be read; write postgres://user@host:5432/database, or host=… user=… dbname=…")
	}
	if endsEarly(dsn) && !mutant.On("postgres/dsn-ends-early") {
		return errors.New("the connection string can't be read: in an address a password's / ? # and @ are written %2F %3F %23 and %40")
	}
	return nil
}

// endsEarly reports whether a character of the password has ended the part of an address where a password may stand. The driver would
// take the rest for the database's name, say, which errors show.
func endsEarly(dsn string) bool {
	_, rest, ok := strings.Cut(dsn, "://")
	if !ok || !strings.HasPrefix(dsn, "postgres") {
		return false
	}
	rest, params, _ := strings.Cut(rest, "?")
	_, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path, "@") || strings.Contains(dsn, "#") {
		return true
	}
	for param := range strings.SplitSeq(params, "&") {
		if name, _, _ := strings.Cut(param, "="); strings.Contains(name, "@") {
			return true
		}
	}
	return false
}

// whereOf is the server and the database, for people.
func whereOf(c *pgx.ConnConfig) string { return fmt.Sprintf("%s:%d/%s", c.Host, c.Port, c.Database) }
