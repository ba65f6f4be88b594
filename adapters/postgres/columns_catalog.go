package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/participant"
)

// querier is a connection or a pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// relation is a table as the server has it.
type relation struct {
	oid         uint32
	name        pgx.Identifier // schema and table
	kind        string         // pg_class.relkind
	persistence string         // pg_class.relpersistence
	schemaUsage bool
	canDelete   bool
	columns     []attribute
	unique      [][]string // column names of unique indexes that can be used, as sets in order of names
}

// attribute is a column as the server has it.
type attribute struct {
	name       string
	typ        column.Type
	notNull    bool
	hasDefault bool
	// computed: nobody writes it. always: GENERATED ALWAYS AS IDENTITY.
	computed, always             bool
	canInsert, canUpdate, canSee bool
}

const relationSQL = `SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text,
       has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'DELETE')
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = to_regclass($1::text)`

// A domain is taken for the type that it is made of, one level deep; the server knows its rules.
const attributesSQL = `SELECT a.attname, coalesce(b.oid, t.oid), CASE WHEN b.oid IS NULL THEN a.atttypmod ELSE t.typtypmod END,
       format_type(a.atttypid, a.atttypmod), a.attnotnull OR t.typnotnull, a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
       a.attgenerated <> '', a.attidentity = 'a',
       has_column_privilege(a.attrelid, a.attnum, 'INSERT'), has_column_privilege(a.attrelid, a.attnum, 'UPDATE'),
       has_column_privilege(a.attrelid, a.attnum, 'SELECT')
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_catalog.pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum`

// Of a deferrable index ON CONFLICT has no use, and a partial one covers not every row.
const uniqueSQL = `SELECT array_agg(a.attname::text ORDER BY a.attname::text)
  FROM pg_catalog.pg_index i
  CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, ord)
  JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
 WHERE i.indrelid = $1 AND k.ord <= i.indnkeyatts
   AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
 GROUP BY i.indexrelid`

// errNoTable is wrapped where a table is not there.
var errNoTable = errors.New("no such table")

// ErrNoTable reports whether an error says that a table does not exist.
func ErrNoTable(err error) bool { return errors.Is(err, errNoTable) }

// lookUp reads what the server has under a name.
func lookUp(ctx context.Context, q querier, name pgx.Identifier) (*relation, error) {
	rows, err := q.Query(ctx, relationSQL, name.Sanitize())
	if err != nil {
		return nil, err
	}
	r, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (*relation, error) {
		r := &relation{name: make(pgx.Identifier, 2)}
		return r, row.Scan(&r.oid, &r.name[0], &r.name[1], &r.kind, &r.persistence, &r.schemaUsage, &r.canDelete)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &marked{errNoTable, fmt.Errorf("table %s does not exist%s; create it, or name another: %w", shown(name), elsewhere(ctx, q, name), participant.ErrMisconfigured)}
	}
	if err != nil {
		return nil, err
	}
	if rows, err = q.Query(ctx, attributesSQL, r.oid); err != nil {
		return nil, err
	}
	r.columns, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a attribute, err error) {
		var oid uint32
		var modifier int32
		var typ string
		err = row.Scan(&a.name, &oid, &modifier, &typ, &a.notNull, &a.hasDefault, &a.computed, &a.always, &a.canInsert, &a.canUpdate, &a.canSee)
		a.typ = column.TypeOf(oid, modifier, typ)
		return a, err
	})
	if err != nil {
		return nil, err
	}
	if rows, err = q.Query(ctx, uniqueSQL, r.oid); err != nil {
		return nil, err
	}
	r.unique, err = pgx.CollectRows(rows, pgx.RowTo[[]string])
	return r, err
}

// elsewhere says where a table of the name is that was not found: in another schema, or with other capitals.
func elsewhere(ctx context.Context, q querier, name pgx.Identifier) string {
	rows, err := q.Query(ctx, `SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE lower(c.relname) = lower($1::text) AND c.relkind IN ('r', 'p') ORDER BY 1 LIMIT 3`, name[len(name)-1])
	if err != nil {
		return ""
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(found) == 0 {
		return ""
	}
	return " (there is " + strings.Join(found, ", ") + ")"
}

// marked is an error in its own words that also is a sentinel.
type marked struct{ sentinel, err error }

func (m *marked) Error() string   { return m.err.Error() }
func (m *marked) Unwrap() []error { return []error{m.sentinel, m.err} }

func (r *relation) column(name string) *attribute {
	for i := range r.columns {
		if r.columns[i].name == name {
			return &r.columns[i]
		}
	}
	return nil
}

// uniqueOver reports whether a unique index is over just these columns.
func (r *relation) uniqueOver(key []string) bool {
	sorted := slices.Sorted(slices.Values(key))
	return slices.ContainsFunc(r.unique, func(u []string) bool { return slices.Equal(u, sorted) })
}

// names of the columns, for messages.
func (r *relation) names() string {
	out := make([]string, len(r.columns))
	for i, c := range r.columns {
		out[i] = c.name
	}
	return strings.Join(out, ", ")
}
