package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Init makes what the adapter keeps in a database, where it is missing, and returns what it made. It may be run again. It is
// for roles that may create a schema; the SQL for those who have to ask is Schema.
func (d *Database) Init(ctx context.Context) (made []string, err error) {
	id, err := d.known(ctx)
	if err != nil {
		return nil, err
	}
	err = d.with(ctx, func(c *pgx.Conn) error {
		made, err = d.missingTables(ctx, c)
		return err
	})
	if err != nil || len(made) == 0 {
		return nil, err
	}
	return made, d.furnish(ctx, id)
}
