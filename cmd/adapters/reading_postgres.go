package adapters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

func postgresReading() *Reading { return &Reading{Source: readTableSource, Sink: readTableSink} }

// rows reads a source table again, as it is now.
type rows struct{ source *postgres.Source }

func readTableSource(ctx context.Context, e spec.Env, u Use) (*SourceReading, error) {
	s, err := newPostgresSource(e, u.Name, u.Settings)
	if err != nil {
		return nil, err
	}
	if err := s.Open(ctx, nil); err != nil {
		return nil, errors.Join(placed(u, err), s.Close()) //nolint:contextcheck // closing has a time of its own
	}
	return &SourceReading{
		SourceReader: &rows{s}, Splits: s.Splits(), Bounded: true, Close: s.Close,
		Behind: func(at []stream.Position) bool { return slices.ContainsFunc(at, postgres.Behind) },
		Ended: func(at []stream.Position) (ended []stream.Split) {
			for _, p := range at {
				if postgres.Ended(p) {
					ended = append(ended, p.Split)
				}
			}
			return ended
		},
	}, nil
}

// Read can be called once. The table may have changed since: then there are other rows than were read, or another number.
func (t *rows) Read(ctx context.Context, to []stream.Position, f func(stream.Split, *stream.Record) error) error {
	for _, p := range to {
		if err := t.read(ctx, p, f); err != nil {
			return err
		}
	}
	return nil
}

func (t *rows) read(ctx context.Context, to stream.Position, f func(stream.Split, *stream.Record) error) error {
	if err := t.source.Knows(to.Split.ID); err != nil {
		return err
	}
	last, err := postgres.LastKey(to)
	if err != nil || last == nil {
		return err
	}
	for {
		b, err := t.source.Poll(ctx)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the row that was read last is not in table %s any more, so what was read is not known", to.Split.ID)
		}
		if err != nil {
			return err
		}
		for i := range b.Records {
			if err := f(b.Split, &b.Records[i]); err != nil {
				return err
			}
			if bytes.Equal(b.Records[i].Key, last) {
				return nil
			}
		}
	}
}

// table reads what a sink has written.
type table struct{ r *postgres.TableReading }

func readTableSink(ctx context.Context, e spec.Env, u Use, _ bool) (*SinkReading, error) {
	o, err := postgresOptions(e, u.Settings, defaultColumns(u.Document, u.Name))
	if err != nil {
		return nil, err
	}
	r, err := postgres.ReadTable(ctx, o)
	if err != nil {
		return nil, placed(u, err)
	}
	out := &SinkReading{
		OutputReader: &table{r}, Key: r.Has(column.Key), Headers: r.Has(column.Headers), Time: r.Has(column.Time), Close: r.Close,
	}
	switch {
	case !r.Keeps():
		out.NoCopies = "its rows take each other's place or are removed, so not every record is there any more"
	case !r.Has(column.Value):
		out.NoCopies = "its table has fields of the records and not their values as they were; a column of type text or bytea with value() would have"
	}
	return out, nil
}

func (t *table) Read(ctx context.Context, f func(verify.Output) error) error {
	return t.r.Read(ctx, func(s postgres.Stored) error {
		return f(verify.Output{
			Key: s.Record.Key, Value: s.Record.Value, Headers: s.Record.Headers, Time: s.Record.Time, Generation: s.Generation, N: s.N, Part: s.Place, Place: s.Place,
		})
	})
}
