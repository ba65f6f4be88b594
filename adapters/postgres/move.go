package postgres

import (
	"encoding/json"
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
	// JSON and JSONB are those of the columns that hold documents of these types. A staged row has their texts apart, as
	// strings: as a part of the row they would be jsonb meanwhile, which has an order, blanks and repeated names of its own.
	JSON  []string `json:"json,omitempty"`
	JSONB []string `json:"jsonb,omitempty"`
	// OID of the table when the branch was prepared: one that was dropped and made anew is another (T5).
	OID string `json:"oid,omitempty"`
}

func (m Move) same(o Move) bool {
	return m.Schema == o.Schema && m.Table == o.Table && slices.Equal(m.Columns, o.Columns) && slices.Equal(m.Key, o.Key) && m.DeleteOnly == o.DeleteOnly &&
		slices.Equal(m.JSON, o.JSON) && slices.Equal(m.JSONB, o.JSONB)
}

// storedMove is a Move in the database. One with documents has its columns under another name: a build that does not
// know of them would write null there, and refuses a move without columns.
type storedMove struct {
	plainMove

	All []string `json:"all_columns,omitempty"`
}

type plainMove Move

// MarshalJSON implements json.Marshaler.
func (m Move) MarshalJSON() ([]byte, error) {
	s := storedMove{plainMove: plainMove(m)}
	if len(m.JSON)+len(m.JSONB) > 0 {
		s.Columns, s.All = []string{}, m.Columns
	}
	return json.Marshal(s)
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Move) UnmarshalJSON(text []byte) error {
	var s storedMove
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*m = Move(s.plainMove)
	if s.All != nil {
		m.Columns = s.All
	}
	return nil
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
	columns := listed("", m.Columns)
	rows, args := m.rows(gid, i)
	if len(m.Key) == 0 {
		return []step{{args: args, sql: fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s ORDER BY r.unisink_ord", table, columns, listed("r.", m.Columns), rows)}}
	}
	key := listed("r.", m.Key)
	last := fmt.Sprintf("(SELECT DISTINCT ON (%s) r.* FROM %s ORDER BY %s, r.unisink_ord DESC)", key, rows, key)
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

// rows are what a branch staged as its i-th move, with the columns of the table and in its types, as r.
func (m Move) rows(gid string, i int) (sql string, args []string) {
	args = []string{gid, strconv.Itoa(i)}
	var columns []string
	for _, c := range m.Columns {
		name := pgx.Identifier{c}.Sanitize()
		document := func(typ string) {
			args = append(args, c)
			columns = append(columns, fmt.Sprintf("(q.row->''->>$%d::text)::%s AS %s", len(args), typ, name))
		}
		switch {
		case slices.Contains(m.JSON, c):
			document("json")
		case slices.Contains(m.JSONB, c):
			document("jsonb")
		default:
			columns = append(columns, "p."+name)
		}
	}
	return fmt.Sprintf(`(SELECT q.ord AS unisink_ord, q.op AS unisink_op, %s FROM unisink.staged_rows q, jsonb_populate_record(NULL::%s, q.row) p
		WHERE q.gid = $1 AND q.move = $2::int) r`, strings.Join(columns, ", "), pgx.Identifier{m.Schema, m.Table}.Sanitize()), args
}

// listed are columns in SQL, each behind a prefix.
func listed(prefix string, columns []string) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = prefix + pgx.Identifier{c}.Sanitize()
	}
	return strings.Join(out, ", ")
}
