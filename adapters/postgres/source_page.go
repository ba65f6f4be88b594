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
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/veil"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// queries are the statements over one table.
type queries struct {
	table string
	value string   // a row as JSON
	keys  []string // "t.a"
	types []string
}

func newQueries(r *relation, key, columns []string) queries {
	q := queries{table: r.name.Sanitize() + " t"}
	var list []string
	for _, c := range columns {
		name := pgx.Identifier{c}.Sanitize()
		if r.column(c).typ.Kind == column.Numeric { // as a number of JSON it would be taken for an inexact one
			list = append(list, "t."+name+"::text AS "+name)
			continue
		}
		list = append(list, "t."+name)
	}
	q.value = "(SELECT row_to_json(\"unisink row\")::text FROM (SELECT " + strings.Join(list, ", ") + ") \"unisink row\")"
	for _, k := range key {
		q.keys = append(q.keys, "t."+pgx.Identifier{k}.Sanitize())
		q.types = append(q.types, r.column(k).typ.Name)
	}
	return q
}

// texts are the key columns as texts.
func (q queries) texts() string { return strings.Join(q.keys, "::text, ") + "::text" }

// key is the key of parameters that begin at n, which are texts.
func (q queries) key(n int) string {
	out := make([]string, len(q.types))
	for i, t := range q.types {
		out[i] = fmt.Sprintf("$%d::text::%s", n+i, t)
	}
	return "(" + strings.Join(out, ", ") + ")"
}

func (q queries) row() string { return "(" + strings.Join(q.keys, ", ") + ")" }

// page asks for rows up to the key in the first parameters, behind the one in the others.
func (q queries) page(behind bool, limit int) string {
	sql := fmt.Sprintf("SELECT %s, t.xmin::text, %s FROM %s WHERE %s <= %s", q.value, q.texts(), q.table, q.row(), q.key(1))
	if behind {
		sql += " AND " + q.row() + " > " + q.key(1+len(q.keys))
	}
	return sql + " ORDER BY " + strings.Join(q.keys, ", ") + " LIMIT " + strconv.Itoa(limit)
}

// last is the greatest key behind another one; nil: there is none.
func (q queries) last(ctx context.Context, conn *pgx.Conn, behind []string) ([]string, error) {
	sql := "SELECT ARRAY[" + q.texts() + "] FROM " + q.table
	if len(behind) > 0 {
		sql += " WHERE " + q.row() + " > " + q.key(1)
	}
	sql += " ORDER BY " + strings.Join(q.keys, " DESC, ") + " DESC LIMIT 1"
	var out []string
	err := conn.QueryRow(ctx, sql, anys(behind)...).Scan(&out)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return out, err
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

// read fills the batch with the next page, and moves the position behind it.
func (s *Source) read(ctx context.Context) error {
	var first snapshot
	if s.at.Snapshot != s.now.text && s.c.Changed == ChangedFails {
		var err error
		if first, err = readSnapshot(s.at.Snapshot); err != nil {
			return fmt.Errorf("the position's snapshot: %w: %w", participant.ErrMisconfigured, err)
		}
	}
	rows, err := s.conn.Query(ctx, s.q.page(len(s.at.Key) > 0, s.c.BatchRecords), anys(slices.Concat(s.at.Until, s.at.Key))...)
	if err != nil {
		return err
	}
	defer rows.Close()
	s.arena = s.arena[:0]
	var ends []int // of each value and key in the arena
	var last []string
	n := 0
	for rows.Next() {
		raw := rows.RawValues()
		last = last[:0]
		for _, k := range raw[2:] {
			last = append(last, string(k))
		}
		if first.text != "" {
			if err := s.unchanged(first, raw[1], last); err != nil {
				return err
			}
		}
		n++
		s.arena = append(s.arena, raw[0]...)
		ends = append(ends, len(s.arena))
		s.arena = appendKey(s.arena, last)
		ends = append(ends, len(s.arena))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	from := 0
	for i := range n {
		value, key := ends[2*i], ends[2*i+1]
		s.batch.Records = append(s.batch.Records, stream.Record{
			Value: s.arena[from:value:value], Key: s.arena[value:key:key], Topic: s.c.Table, Offset: s.rows + int64(i),
		})
		from = key
	}
	s.stop = n < s.c.BatchRecords
	if n > 0 {
		s.rows += int64(n)
		s.at.Key = slices.Clone(last)
		s.stop = s.stop || slices.Equal(last, s.at.Until)
	}
	return nil
}

// unchanged refuses a row that is newer than the snapshot that the source began with.
func (s *Source) unchanged(first snapshot, version []byte, key []string) error {
	id, err := strconv.ParseUint(string(version), 10, 32)
	if err != nil {
		return fmt.Errorf("the version of a row: %w", err)
	}
	if first.wrote(uint32(id), s.now) || mutant.On("postgres/rows-as-they-were") {
		return nil
	}
	return fmt.Errorf("the row with %s was added or changed after reading had begun, and reading goes on after a restart, so this would be no one state of the table; "+
		"start from scratch, or say changed: take to read such rows as they are now: %w", veil.Key(appendKey(nil, key)), participant.ErrMisconfigured)
}

// appendKey appends a record's key: the text of one column, or a JSON list of several.
func appendKey(dst []byte, key []string) []byte {
	if len(key) == 1 {
		return append(dst, key[0]...)
	}
	text, err := json.Marshal(key)
	if err != nil { // texts alone
		panic(fmt.Sprintf("postgres: a key: %s", err))
	}
	return append(dst, text...)
}
