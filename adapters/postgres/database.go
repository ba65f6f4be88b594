package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/unisink/unisink/participant"
)

// Database is one PostgreSQL database as a participant.Resource: several tables, one branch per
// transaction. A finisher need not open it. It is safe for concurrent use.
type Database struct {
	o Options
}

// New makes a database. Nothing is connected before Describe, Open or a call by handle.
func New(o Options) (*Database, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Database{o: o.withDefaults()}, nil
}

// Options returns the settings with their defaults.
func (d *Database) Options() Options { return d.o }

// pool is the connections, made with the first call. Whoever takes one gives it back reset.
func (d *Database) pool(context.Context) (*pgxpool.Pool, error) { return nil, errNotYet }

// Describe connects and tells the database's identity: the server's system identifier and the
// database's oid, which survive a change of name or address.
func (d *Database) Describe(context.Context) (participant.Description, error) {
	return participant.Description{}, errNotYet
}

// Open raises the member's fence and ends what older generations still write. See fence.go.
func (d *Database) Open(context.Context, participant.Opening) error { return errNotYet }

// Begin returns a *Branch; its transaction begins with the first statement.
func (d *Database) Begin(context.Context, participant.BranchName) (participant.Branch, error) {
	return nil, errNotYet
}

// Commit implements participant.Resource.
func (d *Database) Commit(context.Context, participant.Handle) (participant.Proof, error) {
	return participant.Proof{}, errNotYet
}

// Rollback implements participant.Resource.
func (d *Database) Rollback(context.Context, participant.Handle) (participant.Proof, error) {
	return participant.Proof{}, errNotYet
}

// Inspect implements participant.Resource.
func (d *Database) Inspect(context.Context, participant.Handle) (participant.State, error) {
	return 0, errNotYet
}

// List implements participant.Resource.
func (d *Database) List(context.Context, participant.Namespace) ([]participant.Listed, error) {
	return nil, errNotYet
}

// Close implements participant.Resource.
func (d *Database) Close() error { return nil }
