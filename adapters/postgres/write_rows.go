package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/internal/veil"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// each sends a statement for each record, all of a call in one round trip and in order. The statement without a name is
// parsed where it changes: it lives in the transaction, and nothing is left in the session for a pooler to hand on.
func (t *tableWriter) each(ctx context.Context, records []stream.Record) error {
	if len(records) == 0 {
		return ctx.Err()
	}
	_, err := t.of.b.run(ctx, false, func(ctx context.Context, c *pgx.Conn) (pgconn.CommandTag, error) {
		p := c.PgConn().StartPipeline(ctx)
		bad := t.send(p, records)
		tag, err := settle(p, records)
		if closing := p.Close(); err == nil {
			err = closing
		}
		if bad != nil { // what was wrong first; the transaction goes either way
			err = bad
		}
		t.of.b.wrote(shown(t.t.name))
		return tag, err
	})
	return err
}

// send queues the statements.
func (t *tableWriter) send(p *pgconn.Pipeline, records []stream.Record) error {
	var last Op
	for i := range records {
		op, row, err := t.row(&records[i])
		if err != nil {
			return misfit(placeOf(&records[i]), err)
		}
		if op != last {
			p.SendPrepare("", map[Op]string{OpPut: t.insert, OpDelete: t.remove}[op], nil)
			last = op
		}
		p.SendQueryPrepared("", row, nil, nil)
	}
	return nil
}

// settle sends a pipeline and reads its answers up to the end. The first error counts: the statements behind it were skipped.
func settle(p *pgconn.Pipeline, records []stream.Record) (pgconn.CommandTag, error) {
	done, changed := 0, int64(0)
	at := func(int) string { return placeOf(&records[min(done, len(records)-1)]).String() }
	if err := p.Sync(); err != nil {
		return pgconn.CommandTag{}, err
	}
	for {
		answer, err := p.GetResults()
		if err != nil {
			return pgconn.CommandTag{}, refused(err, at)
		}
		switch a := answer.(type) {
		case *pgconn.ResultReader:
			tag, err := a.Close()
			if err != nil {
				return tag, refused(err, at)
			}
			done, changed = done+1, changed+tag.RowsAffected()
		case *pgconn.PipelineSync:
			return pgconn.NewCommandTag(fmt.Sprintf("INSERT 0 %d", changed)), nil
		}
	}
}

// stage hands records over to be moved when the branch is committed.
func (t *tableWriter) stage(ctx context.Context, records []stream.Record) error {
	var ops []Op
	var ends []int
	t.buf = t.buf[:0]
	for i := range records {
		op, row, err := t.row(&records[i])
		if err != nil {
			return misfit(placeOf(&records[i]), err)
		}
		if t.buf, err = t.appendStaged(t.buf, row, op == OpDelete); err != nil {
			return misfit(placeOf(&records[i]), err)
		}
		ops, ends = append(ops, op), append(ends, len(t.buf))
	}
	rows := make([][]byte, len(ends))
	from := 0
	for i, to := range ends {
		rows[i], from = t.buf[from:to:to], to
	}
	t.buf = t.buf[:0]
	if len(rows) == 0 {
		return ctx.Err()
	}
	if err := t.of.b.stage(ctx, t.t.move(), ops, rows); err != nil {
		return refused(err, func(int) string { return placeOf(&records[0]).String() + " or one behind it" })
	}
	return nil
}

// appendStaged appends a row as the staging table holds it: texts by the names of their columns, those of documents apart.
func (t *tableWriter) appendStaged(dst []byte, row column.Row, keyOnly bool) ([]byte, error) {
	var err error
	dst = append(dst, '{')
	if dst, err = t.appendTexts(dst, row, keyOnly, false); err != nil {
		return dst, err
	}
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(dst, `"":{`...)
	if dst, err = t.appendTexts(dst, row, keyOnly, true); err != nil {
		return dst, err
	}
	return append(dst, "}}"...), nil
}

// appendTexts appends those of a row that are of documents, or the others.
func (t *tableWriter) appendTexts(dst []byte, row column.Row, keyOnly, documents bool) ([]byte, error) {
	i := -1
	for _, c := range t.t.columns {
		if keyOnly && !c.Key {
			continue
		}
		i++
		if (c.Type.Kind == column.JSON) != documents {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		name, err := json.Marshal(c.Name)
		if err != nil {
			return dst, err
		}
		text := []byte("null")
		if row[i] != nil {
			if text, err = json.Marshal(string(row[i])); err != nil {
				return dst, err
			}
		}
		dst = append(append(append(dst, name...), ':'), text...)
	}
	return dst, nil
}

// place is where a record is from.
type place struct {
	from stream.Origin
	key  []byte // of a result of several records
}

func placeOf(r *stream.Record) place {
	if from, ok := r.Came(); ok {
		return place{from: from}
	}
	key := r.Key
	if key == nil {
		key = []byte{}
	}
	return place{key: key}
}

// String says which record it is: by where it stood in its source or, for results, by what tells its key from others.
func (p place) String() string {
	if p.from.Topic == "" {
		return "the result with " + veil.Key(p.key)
	}
	return "the record from " + p.from.String()
}

// refused says which record the server did not take, where that is the record's fault or the table's; what may pass
// by itself stays as it is. At knows the place by the line of a COPY.
func refused(err error, at func(line int) string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	line, col := copied(pg.Where)
	if !lasts(pg.Code) {
		return fmt.Errorf("%s was refused by the server: %w", at(line), err)
	}
	if pg.ColumnName != "" {
		col = pg.ColumnName
	}
	text := complaint(pg)
	switch {
	case col != "":
		text = fmt.Sprintf("column %q: %s", col, text)
	case pg.TableName != "":
		text = fmt.Sprintf("table %s.%s: %s", pg.SchemaName, pg.TableName, text)
	}
	text = fmt.Sprintf("%s was refused by the server: %s (SQLSTATE %s)", at(line), text, pg.Code)
	return veil.Error(&marked{err, participant.ErrMisconfigured}, text)
}

// complaint is what the server says of a row, without the row's content: messages of class 22 quote it, and details of
// class 23 show the key or the whole row. What class 23 quotes in messages are names.
func complaint(pg *pgconn.PgError) string {
	switch {
	case pg.Code[:2] == "22":
		return veil.Quoted(pg.Message)
	case pg.Detail != "" && pg.Code[:2] != "23":
		return pg.Message + " (" + pg.Detail + ")"
	}
	return pg.Message
}

// lasts reports whether an error comes again with the same record: a value that does not fit, a rule that it breaks, a
// table that is another now, a right that is missing. A foreign key is none of these: what it points to may come.
func lasts(code string) bool {
	switch code {
	case "23503": // foreign_key_violation
		return false
	}
	return len(code) == 5 && (code[:2] == "22" || code[:2] == "23" || code[:2] == "42" || code[:2] == "0A")
}
