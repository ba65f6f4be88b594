package postgres

import "errors"

// Table is one table that records are written to.
type Table struct {
	// Name is "table" or "schema.table", as in SQL without quotes.
	Name string
}

func (t Table) check() error {
	if t.Name == "" {
		return errors.New("a table has no name")
	}
	return nil
}
