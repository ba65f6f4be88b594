package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// TableReading reads again what was written to a table, as it was when the reading was opened. One goroutine uses it.
type TableReading struct {
	conn *pgx.Conn
	t    *target
}

// Stored is a row as a record. What no column holds of it is empty.
type Stored struct {
	Record stream.Record
	// Generation and N are the epoch that wrote it; zero: the table does not tell.
	Generation, N uint64
	// Place says which row it is, for people.
	Place string
}

// ReadTable opens a reading of the one table of the options. The error wraps what CheckTables' does.
func ReadTable(ctx context.Context, o Options) (*TableReading, error) {
	if len(o.Tables) != 1 {
		return nil, fmt.Errorf("read a table again: %d are set: %w", len(o.Tables), participant.ErrBug)
	}
	conn, err := connect(ctx, o.DSN, o.Pooler)
	if err != nil {
		return nil, err
	}
	r := &TableReading{conn: conn}
	err = beginReading(ctx, conn)
	if err == nil {
		_, err = takeSnapshot(ctx, conn)
	}
	if err == nil {
		r.t, err = newTarget(ctx, conn, o.Tables[0])
	}
	if err != nil {
		hangUp(ctx, conn)
		return nil, err
	}
	return r, nil
}

// Has reports whether a column holds a part of the records, in a type that gives it back as it was.
func (r *TableReading) Has(p column.Part) bool {
	return slices.ContainsFunc(r.t.columns, func(c column.Column) bool {
		k := c.Type.Kind
		switch {
		case c.From.Part != p:
			return false
		case p == column.Time:
			return k == column.Timestamp || k == column.LocalTime || k == column.Integer
		case k == column.JSON:
			return !c.Type.Binary || p == column.Headers
		}
		return k == column.Bytes || k == column.Text && !strings.HasPrefix(c.Type.Name, "character(") // which pads
	})
}

// Keeps reports whether every record has a row of its own: rows take no other's place, and none goes.
func (r *TableReading) Keeps() bool { return r.t.t.Write == Append }

// Read calls f with every row. What f is given is its own until it returns.
func (r *TableReading) Read(ctx context.Context, f func(Stored) error) error {
	var list []string
	for _, c := range r.t.columns {
		list = append(list, readAgain(c))
	}
	rows, err := r.conn.Query(ctx, "SELECT t.tableoid::text || t.ctid::text, "+strings.Join(list, ", ")+" FROM "+r.t.name.Sanitize()+" t")
	if err != nil {
		return fmt.Errorf("read table %s: %w", shown(r.t.name), err)
	}
	defer rows.Close()
	for rows.Next() {
		raw := rows.RawValues()
		s, err := r.t.stored(raw[1:])
		if err != nil {
			return fmt.Errorf("read table %s: %w", shown(r.t.name), err)
		}
		s.Place = fmt.Sprintf("%s row %s", shown(r.t.name), raw[0][bytesBefore(raw[0], '('):])
		if err := f(s); err != nil {
			return err
		}
	}
	return rows.Err()
}

func bytesBefore(b []byte, c byte) int { return max(strings.IndexByte(string(b), c), 0) }

// readAgain is the expression that gives a column back as it was written.
func readAgain(c column.Column) string {
	name := "t." + pgx.Identifier{c.Name}.Sanitize()
	switch k := c.Type.Kind; {
	case k == column.Timestamp:
		return "(extract(epoch FROM " + name + ") * 1000)::bigint::text"
	case k == column.LocalTime:
		return "(extract(epoch FROM " + name + " AT TIME ZONE 'UTC') * 1000)::bigint::text"
	case k == column.Bytes:
		return "encode(" + name + ", 'base64')"
	case c.From.Part == column.Field:
		return "to_json(" + name + ")::text"
	}
	return name + "::text"
}

// stored makes a record of a row.
func (t *target) stored(raw [][]byte) (Stored, error) {
	var s Stored
	value := []byte{'{'}
	for i, c := range t.columns {
		text := raw[i]
		if c.From.Part == column.Field {
			name, err := json.Marshal(c.From.Name)
			if err != nil {
				return s, err
			}
			if len(value) > 1 {
				value = append(value, ',')
			}
			value = append(append(value, name...), ':')
			switch {
			case text == nil:
				value = append(value, "null"...)
			case c.Type.Kind == column.Bytes:
				value = strconv.AppendQuote(value, strings.ReplaceAll(string(text), "\n", ""))
			default:
				value = append(value, text...)
			}
			continue
		}
		if err := s.take(c, text); err != nil {
			return s, fmt.Errorf("column %q: %w", c.Name, err)
		}
	}
	if s.Record.Value == nil && len(value) > 1 {
		s.Record.Value = append(value, '}')
	}
	return s, nil
}

// take puts a part in its place.
func (s *Stored) take(c column.Column, text []byte) (err error) {
	if text == nil {
		return nil
	}
	text, err = c.Type.Raw(text)
	if err != nil {
		return err
	}
	switch c.From.Part {
	case column.Key:
		s.Record.Key = text
	case column.Value:
		s.Record.Value = text
	case column.Time:
		s.Record.Time, err = strconv.ParseInt(string(text), 10, 64)
	case column.Header:
		s.Record.Headers = append(s.Record.Headers, stream.Header{Key: c.From.Name, Value: text})
	case column.Headers:
		s.Record.Headers, err = column.ReadHeaders(text)
	case column.Generation:
		s.Generation, err = strconv.ParseUint(string(text), 10, 64)
	case column.N:
		s.N, err = strconv.ParseUint(string(text), 10, 64)
	case column.Field: // read with the others
	default:
		return errors.New("it holds no part of a record")
	}
	return err
}

// Close ends the reading.
func (r *TableReading) Close() error {
	hangUp(context.Background(), r.conn)
	return nil
}

// beginReading starts a transaction that sees the database as it is now for as long as it lasts.
func beginReading(ctx context.Context, conn *pgx.Conn) error {
	for _, sql := range []string{
		"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
		// Keys are told as texts, and read as such. And waiting for a slow pipeline is no reason to lose the snapshot.
		`SELECT set_config(name, CASE name WHEN 'DateStyle' THEN 'ISO, YMD' WHEN 'TimeZone' THEN 'UTC' WHEN 'IntervalStyle' THEN 'postgres' WHEN 'extra_float_digits' THEN '1' ELSE '0' END, true)
		   FROM pg_catalog.pg_settings WHERE name IN ('DateStyle', 'TimeZone', 'IntervalStyle', 'extra_float_digits', 'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Place names a table for people, by where it is: two that are equal are one table.
func Place(dsn, table string) (string, error) {
	if err := checkDSN(dsn); err != nil {
		return "", err
	}
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", errors.New("the connection string can't be read")
	}
	name, err := splitName(table)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("table %s of %s", shown(name), whereOf(c)), nil
}
