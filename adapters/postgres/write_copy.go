package postgres

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/processor/stream"
)

// copyBytes is how much is gathered before it is sent.
const copyBytes = 1 << 20

// copy gathers rows to append.
func (t *tableWriter) copy(ctx context.Context, records []stream.Record) error {
	for i := range records {
		r := &records[i]
		_, row, err := t.row(r)
		if err != nil {
			return misfit(placeOf(r), err)
		}
		t.buf = appendCopy(t.buf, row)
		t.remember(r)
		if len(t.buf) >= copyBytes {
			if err := t.flush(ctx); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// flush sends what is gathered.
func (t *tableWriter) flush(ctx context.Context) error {
	if len(t.buf) == 0 {
		return nil
	}
	_, err := t.of.b.run(ctx, false, func(ctx context.Context, c *pgx.Conn) (pgconn.CommandTag, error) {
		tag, err := c.PgConn().CopyFrom(ctx, bytes.NewReader(t.buf), t.copyIn)
		if err == nil && tag.RowsAffected() != int64(len(t.places)) {
			err = fmt.Errorf("%d rows were sent, and the server took %d", len(t.places), tag.RowsAffected())
		}
		if err != nil {
			return tag, refused(err, func(line int) string { return t.places[min(max(line-1, 0), len(t.places)-1)].String() })
		}
		t.of.b.wrote(shown(t.t.name))
		return tag, nil
	})
	if err != nil {
		return err
	}
	t.buf, t.places, t.keys = t.buf[:0], t.places[:0], t.keys[:0]
	return nil
}

// remember keeps where a gathered record is from, for the server's complaints.
func (t *tableWriter) remember(r *stream.Record) {
	p := placeOf(r)
	if p.key != nil { // the record's slices are the caller's again
		at := len(t.keys)
		t.keys = append(t.keys, p.key...)
		p.key = t.keys[at:]
	}
	t.places = append(t.places, p)
}

// appendCopy appends a row in the text format of COPY.
func appendCopy(dst []byte, row column.Row) []byte {
	for i, text := range row {
		if i > 0 {
			dst = append(dst, '\t')
		}
		if text == nil {
			dst = append(dst, '\\', 'N')
			continue
		}
		for _, c := range text {
			switch c {
			case '\\':
				dst = append(dst, '\\', '\\')
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, c)
			}
		}
	}
	return append(dst, '\n')
}
