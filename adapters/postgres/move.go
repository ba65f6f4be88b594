package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Op is what a staged row does to its table.
type Op string

const (
	// OpPut adds the row; with a key it takes the place of the row with the same key.
	OpPut Op = "put"
	// OpDelete removes the row with the same key.
	OpDelete Op = "delete"
)

// Move says how the staged rows of one table get there. It stands beside them in the database, in the
// branch's row of unisink.staged, so that any process can finish the branch, also one whose settings
// do not name the table: rows are moved by statements made from it, never by SQL that is stored.
type Move struct {
	// Schema and Table, unquoted.
	Schema string `json:"schema"`
	Table  string `json:"table"`
	// Columns that the rows have.
	Columns []string `json:"columns"`
	// Key columns: the last row of a key in a branch counts, and replaces what the table has. Without
	// a key every row is added.
	Key []string `json:"key,omitempty"`
	// DeleteOnly: no row is put, and the key needs no unique index.
	DeleteOnly bool `json:"delete_only,omitempty"`
	// OID of the table when the branch was prepared: one that was dropped and made anew is another (T5).
	OID string `json:"oid,omitempty"`
}

func (m Move) same(o Move) bool {
	return m.Schema == o.Schema && m.Table == o.Table && slices.Equal(m.Columns, o.Columns) && slices.Equal(m.Key, o.Key) && m.DeleteOnly == o.DeleteOnly
}

// name is the table's name for people.
func (m Move) name() string { return m.Schema + "." + m.Table }

// which asks for the table's oid.
func (m Move) which() step {
	return step{sql: "SELECT to_regclass($1)::oid", args: []string{pgx.Identifier{m.Schema, m.Table}.Sanitize()}}
}

// statements move the rows that a branch staged as its i-th move. Rows are taken in order, those with
// a key in the key's order, so that two branches lock them in one order.
func (m Move) statements(gid string, i int) []step {
	table := pgx.Identifier{m.Schema, m.Table}.Sanitize()
	args := []string{gid, strconv.Itoa(i)}
	columns := listed("", m.Columns)
	from := fmt.Sprintf("FROM unisink.staged_rows q, jsonb_populate_record(NULL::%s, q.row) r WHERE q.gid = $1 AND q.move = $2::int", table)
	if len(m.Key) == 0 {
		return []step{{args: args, sql: fmt.Sprintf("INSERT INTO %s (%s) SELECT %s %s ORDER BY q.ord", table, columns, listed("r.", m.Columns), from)}}
	}
	key := listed("r.", m.Key)
	last := fmt.Sprintf("(SELECT DISTINCT ON (%s) q.op AS unisink_op, r.* %s ORDER BY %s, q.ord DESC)", key, from, key)
	var set []string
	for _, c := range m.Columns {
		if !slices.Contains(m.Key, c) {
			set = append(set, fmt.Sprintf("%[1]s = excluded.%[1]s", pgx.Identifier{c}.Sanitize()))
		}
	}
	conflict := "DO NOTHING"
	if len(set) > 0 {
		conflict = "DO UPDATE SET " + strings.Join(set, ", ")
	}
	steps := []step{
		{args: args, sql: fmt.Sprintf("DELETE FROM %s t USING %s r WHERE r.unisink_op = 'delete' AND (%s) = (%s)", table, last, listed("t.", m.Key), key)},
	}
	if m.DeleteOnly {
		return steps
	}
	return append(steps, step{args: args, sql: fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s r WHERE r.unisink_op = 'put' ON CONFLICT (%s) %s",
		table, columns, listed("r.", m.Columns), last, listed("", m.Key), conflict)})
}

// listed are columns in SQL, each behind a prefix.
func listed(prefix string, columns []string) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = prefix + pgx.Identifier{c}.Sanitize()
	}
	return strings.Join(out, ", ")
}
