package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Write adds records to the branch, for a database with one table. They are in the order of the call in the
// table's eyes: the last record of a key counts. What is appended may be buffered until Prepare. A record that does
// not fit is an error that names it and its column, and makes Prepare answer No.
func (b *Branch) Write(ctx context.Context, records []stream.Record) error {
	if n := len(b.d.o.Tables); n != 1 {
		return fmt.Errorf("write records to %s: %d tables are set, and Write is for one: %w", b.name, n, participant.ErrBug)
	}
	return b.write(ctx, 0, records)
}

// WriteTo is Write for one of several tables, by its Table.Name.
func (b *Branch) WriteTo(ctx context.Context, table string, records []stream.Record) error {
	for i, t := range b.d.o.Tables {
		if t.Name == table {
			return b.write(ctx, i, records)
		}
	}
	return fmt.Errorf("write records to %s: table %q is not among those of the database's options: %w", b.name, table, participant.ErrBug)
}

func (b *Branch) write(ctx context.Context, table int, records []stream.Record) error {
	return b.add(ctx, b.d.o.Tables[table].Name, func(w *writing) (*tableWriter, error) { return w.tables[table], nil }, records)
}

// add has one of the branch's table writers take records in.
func (b *Branch) add(ctx context.Context, table string, of func(w *writing) (*tableWriter, error), records []stream.Record) error {
	w, err := b.writing(ctx)
	var t *tableWriter
	if err == nil {
		t, err = of(w)
	}
	if err == nil {
		err = t.add(ctx, records)
	}
	if err != nil {
		err = fmt.Errorf("write to %s for %s: %w", table, b.name, err)
		b.fail(err)
	}
	return err
}

// writing returns what the branch writes with, which it makes with the first record.
func (b *Branch) writing(ctx context.Context) (*writing, error) {
	if w, ok := b.rows.(*writing); ok {
		return w, nil
	}
	targets, err := b.d.tables.get(ctx, b.d)
	if err != nil {
		return nil, err
	}
	w := &writing{b: b, epoch: column.Epoch{Generation: b.name.Generation, N: b.name.N}}
	for _, t := range targets {
		w.tables = append(w.tables, w.writer(t))
	}
	b.rows = w
	return w, nil
}

// writer makes what writes to one table.
func (w *writing) writer(t *target) *tableWriter {
	closed := len(t.t.Columns) == 0 && t.t.Write != Delete
	return &tableWriter{
		of: w, t: t, rows: column.NewWriter(t.columns, closed, t.besides...), insert: t.insertSQL(), remove: t.deleteSQL(), copyIn: t.copySQL(),
	}
}

// tableCache are the tables as they were found last.
type tableCache struct {
	mu    sync.Mutex // guards found; memory only
	found []*target
}

// get looks the tables up where that has not been done since the last forget.
func (c *tableCache) get(ctx context.Context, d *Database) ([]*target, error) {
	c.mu.Lock()
	found := c.found
	c.mu.Unlock()
	if found != nil {
		return found, nil
	}
	return c.renew(ctx, d)
}

// renew looks the tables up: at each Open, since they may have changed.
func (c *tableCache) renew(ctx context.Context, d *Database) ([]*target, error) {
	found, err := d.targets(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = found
	return found, nil
}

// writing is what a branch writes to its tables with.
type writing struct {
	b      *Branch
	epoch  column.Epoch
	tables []*tableWriter
	others map[*Database]*tableWriter // among tables, for the databases that share the branch
}

// flush implements rowWriter.
func (w *writing) flush(ctx context.Context) error {
	for _, t := range w.tables {
		if err := t.flush(ctx); err != nil {
			return fmt.Errorf("write to %s for %s: %w", t.t.t.Name, w.b.name, err)
		}
	}
	return nil
}

// tableWriter writes one table for one branch.
type tableWriter struct {
	of                     *writing
	t                      *target
	rows                   *column.Writer
	insert, remove, copyIn string

	buf    []byte // rows that are not sent yet, in the text format of COPY
	places []place
	keys   []byte // of the places
}

// op is what a record does, and the row it does it with.
func (t *tableWriter) row(r *stream.Record) (Op, column.Row, error) {
	if err := t.rows.Open(r); err != nil {
		return "", nil, err
	}
	op := OpPut
	switch t.t.t.Write {
	case Append:
		if r.Value == nil && t.rows.Fields() {
			return "", nil, errTombstone
		}
	case Upsert:
		if r.Value == nil {
			op = OpDelete
		} else if f := t.t.t.DeleteWhen; f != "" {
			gone, err := t.rows.True(f)
			if err != nil {
				return "", nil, err
			}
			if gone {
				op = OpDelete
			}
		}
	case Delete:
		op = OpDelete
	}
	row, err := t.rows.Fill(r, t.of.epoch, op == OpDelete)
	if err != nil && r.Value == nil && op == OpDelete {
		err = fmt.Errorf("%w; a tombstone has no fields, and can remove a row only where the key columns take key()", err)
	}
	return op, row, err
}

var errTombstone = errors.New("it is a tombstone, and append adds rows; say upsert, or leave tombstones out")

// add takes records in.
func (t *tableWriter) add(ctx context.Context, records []stream.Record) error {
	switch {
	case t.of.b.d.o.Mode == Staged:
		return t.stage(ctx, records)
	case t.t.t.Write == Append:
		return t.copy(ctx, records)
	}
	return t.each(ctx, records)
}

// misfit says which record does not fit, and how.
func misfit(p place, err error) error {
	return fmt.Errorf("%s does not fit: %w: %w", p, err, participant.ErrMisconfigured)
}
