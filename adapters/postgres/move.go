package postgres

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
}
